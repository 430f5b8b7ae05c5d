"""AccessService: see proto/toban/v1/access.proto."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from toban.v1 import access_pb2 as pb
from toban.v1 import access_pb2_grpc, access_rule_pb2
from toband.api import access_messages, pages
from toband.api.audit_rpcs import AuditRpcs
from toband.api.common_requests import moment
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.domain.authority import described
from toband.domain.identity import Identity, Narrowing, Role
from toband.engine.access import call_identity
from toband.engine.access.door import Door
from toband.engine.access.sessions import LONGEST_LIFETIME, CallerSession, Sessions
from toband.engine.access.tokens import TOKEN_NAME, Tokens
from toband.ports import Clock, StoredToken, describe_call

_LABEL_CHARS = 64
_PATTERNS = 100
_PATTERN_CHARS = 200


class AccessService(access_pb2_grpc.AccessServiceServicer):
    def __init__(
        self,
        *,
        tokens: Tokens,
        sessions: Sessions,
        clock: Clock,
        doors: Sequence[Door],
        user: str,
        step_user: str,
        audit: AuditRpcs,
    ) -> None:
        """`user` is that of the daemon; `step_user` that of steps that name none, empty if it is the same."""
        self._tokens = tokens
        self._sessions = sessions
        self._clock = clock
        self._doors = doors
        self._user = user
        self._step_user = step_user
        self._audit = audit

    @unary
    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        return pb.WhoAmIResponse(identity=access_messages.identity(_identity()), address=call_identity.address())

    @unary
    async def GetAccess(self, request: pb.GetAccessRequest, context: Context) -> pb.GetAccessResponse:
        return pb.GetAccessResponse(
            doors=[pb.Door(address=door.address, role=access_messages.role(door.role)) for door in self._doors],
            steps_share_user=not self._step_user,
            daemon_user=self._user,
            step_user=self._step_user or self._user,
        )

    @unary
    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        if not TOKEN_NAME.fullmatch(request.name):
            raise InvalidFieldError("name", "must be 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
        if request.role not in access_rule_pb2.Role.values() or not request.role:
            raise InvalidFieldError("role", "must be viewer, operator, editor or admin")
        stored, text = await self._tokens.create(
            request.name, Role(request.role), _narrowing(request), self._expiry(request), by=_identity().name
        )
        return pb.CreateTokenResponse(token=self._message(stored), text=text.text)

    @unary
    async def ListTokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        limit = pages.size(request.page_size, 100)
        after = pages.last(request.page_token)
        found = [each for each in self._tokens.list(include_ended=request.include_ended) if _key(each) > after]
        messages = [self._message(each) for each in found[:limit]]
        count = pages.fitting(messages, pages.LIST_ROOM)
        more = pages.token(_key(found[count - 1])) if count < len(found) else ""
        return pb.ListTokensResponse(tokens=messages[:count], next_page_token=more)

    @unary
    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.RevokeTokenResponse:
        revoked = await self._tokens.revoke(request.token, by=_identity().name)
        return pb.RevokeTokenResponse(token=self._message(revoked))

    @unary
    async def CreateSession(self, request: pb.CreateSessionRequest, context: Context) -> pb.CreateSessionResponse:
        if len(request.label) > _LABEL_CHARS or not request.label.isprintable():
            raise InvalidFieldError("label", f"must be at most {_LABEL_CHARS} characters without control characters")
        if request.role not in access_rule_pb2.Role.values():
            raise InvalidFieldError("role", "must be viewer, operator, editor or admin, or absent")
        expires_at = self._expiry(request)
        if expires_at is not None and expires_at > self._clock.now() + LONGEST_LIFETIME:
            raise InvalidFieldError("expires_at", f"must be within the next {LONGEST_LIFETIME.days} days")
        session, text = self._sessions.create(
            _identity(),
            request.label,
            role=Role(request.role) if request.role else None,
            narrowing=_narrowing(request),
            expires_at=expires_at,
        )
        _describe(session)
        return pb.CreateSessionResponse(session=access_messages.session(session), text=text.text)

    @unary
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        limit = pages.size(request.page_size, 100)
        after = pages.last(request.page_token)
        found = [each for each in self._sessions.list(_identity()) if _session_key(each) > after]
        messages = [access_messages.session(each) for each in found[:limit]]
        count = pages.fitting(messages, pages.LIST_ROOM)
        more = pages.token(_session_key(found[count - 1])) if count < len(found) else ""
        return pb.ListSessionsResponse(sessions=messages[:count], next_page_token=more)

    @unary
    async def RevokeSession(self, request: pb.RevokeSessionRequest, context: Context) -> pb.RevokeSessionResponse:
        session = self._sessions.revoke(request.id, _identity())
        _describe(session)
        return pb.RevokeSessionResponse(session=access_messages.session(session))

    @unary
    async def ListAuditEntries(
        self, request: pb.ListAuditEntriesRequest, context: Context
    ) -> pb.ListAuditEntriesResponse:
        return await self._audit.list(request)

    @unary
    async def VerifyAudit(self, request: pb.VerifyAuditRequest, context: Context) -> pb.VerifyAuditResponse:
        return await self._audit.verify(request)

    def _expiry(self, request: pb.CreateTokenRequest | pb.CreateSessionRequest) -> datetime | None:
        """Raises InvalidFieldError."""
        if not request.HasField("expires_at"):
            return None
        expires_at = moment(request.expires_at, "expires_at")
        if expires_at <= self._clock.now():
            raise InvalidFieldError("expires_at", "must be in the future")
        return expires_at

    def _message(self, token: StoredToken) -> pb.Token:
        return access_messages.token(token, self._clock.now())


def _identity() -> Identity:
    identity = call_identity.current()
    assert identity is not None, "every call has an identity"
    return identity


def _key(token: StoredToken) -> str:
    """Their order."""
    return f"{token.created_at.isoformat()} {token.id} {token.name}"


def _session_key(session: CallerSession) -> str:
    """Their order."""
    return f"{session.created_at.isoformat()} {session.id}"


def _describe(session: CallerSession) -> None:
    """For the audit log."""
    identity = session.identity
    label = f", label={session.label}" if session.label else ""
    role = identity.role.label if identity.role is not None else "none"
    detail = f"of {identity.name}, role={role}, workflows={described(identity.narrowing)}{label}"
    describe_call(target=session.id, detail=f"{detail}, until {session.expires_at.isoformat(timespec='seconds')}")


def _narrowing(request: pb.CreateTokenRequest | pb.CreateSessionRequest) -> Narrowing | None:
    """Raises InvalidFieldError."""
    if not request.HasField("narrowing"):
        return None
    given = request.narrowing
    if len(given.workflows) > _PATTERNS or len(given.labels) > _PATTERNS:
        raise InvalidFieldError("narrowing", f"must have at most {_PATTERNS} patterns and labels")
    if not given.workflows and not given.labels:
        raise InvalidFieldError("narrowing", "must name workflows or labels; omit it for all workflows")
    for text in (*given.workflows, *given.labels, *given.labels.values()):
        if len(text) > _PATTERN_CHARS:
            raise InvalidFieldError("narrowing", f"must have at most {_PATTERN_CHARS} characters in each text")
    if not all(given.workflows):
        raise InvalidFieldError("narrowing.workflows", "must not be empty texts")
    return Narrowing(workflows=tuple(given.workflows), labels=tuple(sorted(given.labels.items())))
