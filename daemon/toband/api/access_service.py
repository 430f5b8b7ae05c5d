"""AccessService: see proto/toban/v1/access.proto."""

from __future__ import annotations

from collections.abc import Sequence

from toban.v1 import access_pb2 as pb
from toban.v1 import access_pb2_grpc, access_rule_pb2
from toband.api import access_messages, pages
from toband.api.audit_rpcs import AuditRpcs
from toband.api.common_requests import moment
from toband.api.handler import Context, unary
from toband.api.request_errors import InvalidFieldError
from toband.domain.identity import Identity, Narrowing, Role
from toband.engine.access import call_identity
from toband.engine.access.door import Door
from toband.engine.access.tokens import TOKEN_NAME, Tokens
from toband.ports import Clock, StoredToken

_PATTERNS = 100
_PATTERN_CHARS = 200


class AccessService(access_pb2_grpc.AccessServiceServicer):
    def __init__(
        self, *, tokens: Tokens, clock: Clock, doors: Sequence[Door], user: str, step_user: str, audit: AuditRpcs
    ) -> None:
        """`user` is that of the daemon; `step_user` that of steps that name none, empty if it is the same."""
        self._tokens = tokens
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
        expires_at = None
        if request.HasField("expires_at"):
            expires_at = moment(request.expires_at, "expires_at")
            if expires_at <= self._clock.now():
                raise InvalidFieldError("expires_at", "must be in the future")
        narrowing = _narrowing(request.narrowing) if request.HasField("narrowing") else None
        stored, text = await self._tokens.create(
            request.name, Role(request.role), narrowing, expires_at, by=_identity().name
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
    async def ListAuditEntries(
        self, request: pb.ListAuditEntriesRequest, context: Context
    ) -> pb.ListAuditEntriesResponse:
        return await self._audit.list(request)

    @unary
    async def VerifyAudit(self, request: pb.VerifyAuditRequest, context: Context) -> pb.VerifyAuditResponse:
        return await self._audit.verify(request)

    def _message(self, token: StoredToken) -> pb.Token:
        return access_messages.token(token, self._clock.now())


def _identity() -> Identity:
    identity = call_identity.current()
    assert identity is not None, "every call has an identity"
    return identity


def _key(token: StoredToken) -> str:
    """Their order."""
    return f"{token.created_at.isoformat()} {token.id} {token.name}"


def _narrowing(given: pb.Narrowing) -> Narrowing:
    """Raises InvalidFieldError."""
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
