"""Calls of the AccessService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from datetime import datetime
from functools import cached_property

from toban.sdk.base import Calls, paged
from toban.sdk.errors import Conflict, NotFound
from toban.sdk.message_values import to_timestamp
from toban.v1 import access_pb2, access_pb2_grpc, access_rule_pb2

VERIFY_WITHIN = 600.0
"""Seconds: a long audit log takes a while."""


class AccessCalls(Calls):
    """Says who the caller is, manages tokens, and reads the audit log."""

    @cached_property
    def _access(self) -> access_pb2_grpc.AccessServiceAsyncStub:
        return access_pb2_grpc.AccessServiceStub(self._connection.channel)

    async def who_am_i(self) -> access_pb2.WhoAmIResponse:
        """The identity of this client, and the address of the daemon that it called."""
        return await self._connection.call(self._access.WhoAmI, access_pb2.WhoAmIRequest())

    async def get_access(self) -> access_pb2.GetAccessResponse:
        """The addresses of the daemon with their roles, and whether steps are separated from the daemon."""
        return await self._connection.call(self._access.GetAccess, access_pb2.GetAccessRequest())

    async def create_token(
        self,
        name: str,
        role: access_rule_pb2.Role.ValueType,
        *,
        workflows: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> access_pb2.CreateTokenResponse:
        """Creates a token; the answer has its text for the only time.

        `workflows` and `labels` limit it to some workflows. Raises InvalidArgument, and Conflict `TOKEN_EXISTS`, also
        if the token was created and the answer with its text was lost.
        """
        request = access_pb2.CreateTokenRequest(name=name, role=role)
        narrowed = access_pb2.Narrowing(workflows=workflows, labels=labels or {})
        if narrowed.workflows or narrowed.labels:
            request.narrowing.CopyFrom(narrowed)
        if expires_at is not None:
            request.expires_at.CopyFrom(to_timestamp(expires_at))
        lost = False

        def repeated() -> None:
            nonlocal lost
            lost = True

        try:
            return await self._connection.call(self._access.CreateToken, request, repeated=repeated)
        except Conflict as error:
            if not lost or error.reason != "TOKEN_EXISTS":
                raise
            message = f"the answer with the text of {name} may be lost: revoke that token, and create another"
            raise Conflict(message, reason=error.reason, metadata=error.metadata) from None

    def list_tokens(self, *, include_ended: bool = False, page_size: int = 0) -> AsyncGenerator[access_pb2.Token, None]:
        """Tokens, oldest first; also expired and revoked ones with `include_ended`."""

        async def fetch(page: str) -> tuple[list[access_pb2.Token], str]:
            request = access_pb2.ListTokensRequest(include_ended=include_ended, page_size=page_size, page_token=page)
            answer = await self._connection.call(self._access.ListTokens, request)
            return list(answer.tokens), answer.next_page_token

        return paged(fetch)

    async def revoke_token(self, token: str) -> access_pb2.Token:
        """Ends a token, given by its name or id, at once. Raises NotFound, also if it was revoked before."""
        lost = False

        def repeated() -> None:
            nonlocal lost
            lost = True

        try:
            request = access_pb2.RevokeTokenRequest(token=token)
            answer = await self._connection.call(self._access.RevokeToken, request, repeated=repeated)
        except NotFound:
            if not lost:
                raise
            # The earlier try succeeded; only its answer was lost.
            found = [each async for each in self.list_tokens(include_ended=True) if token in (each.id, each.name)]
            if not found:
                raise
            return found[-1]
        return answer.token

    async def create_session(
        self,
        label: str = "",
        *,
        role: access_rule_pb2.Role.ValueType = access_rule_pb2.ROLE_UNSPECIFIED,
        workflows: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        expires_at: datetime | None = None,
    ) -> access_pb2.CreateSessionResponse:
        """Creates a short-lived token of this caller; the answer has its text for the only time.

        Without `role`, `workflows` and `labels` it has the rights of the caller, and it can have no others. Raises
        InvalidArgument, PermissionDenied, FailedPrecondition, and ResourceExhausted for too many sessions.
        """
        request = access_pb2.CreateSessionRequest(label=label, role=role)
        narrowed = access_pb2.Narrowing(workflows=workflows, labels=labels or {})
        if narrowed.workflows or narrowed.labels:
            request.narrowing.CopyFrom(narrowed)
        if expires_at is not None:
            request.expires_at.CopyFrom(to_timestamp(expires_at))
        return await self._connection.call(self._access.CreateSession, request)

    def list_sessions(self, *, page_size: int = 0) -> AsyncGenerator[access_pb2.Session, None]:
        """Valid sessions of this caller, oldest first; those of all callers for an admin."""

        async def fetch(page: str) -> tuple[list[access_pb2.Session], str]:
            request = access_pb2.ListSessionsRequest(page_size=page_size, page_token=page)
            answer = await self._connection.call(self._access.ListSessions, request)
            return list(answer.sessions), answer.next_page_token

        return paged(fetch)

    async def revoke_session(self, session_id: str) -> access_pb2.Session:
        """Ends a session at once. Raises NotFound, also if it has ended before."""
        request = access_pb2.RevokeSessionRequest(id=session_id)
        return (await self._connection.call(self._access.RevokeSession, request)).session

    def list_audit_entries(
        self,
        *,
        actor: str = "",
        method: str = "",
        target: str = "",
        outcome: access_pb2.AuditOutcome.ValueType = access_pb2.AUDIT_OUTCOME_UNSPECIFIED,
        recorded_after: datetime | None = None,
        recorded_before: datetime | None = None,
        after_sequence: int = 0,
        oldest_first: bool = False,
        page_size: int = 0,
    ) -> AsyncGenerator[access_pb2.AuditEntry, None]:
        """Entries of the audit log, newest first: those that match everything that is given."""
        wanted = access_pb2.ListAuditEntriesRequest(
            actor=actor,
            method=method,
            target=target,
            outcome=outcome,
            recorded_after=None if recorded_after is None else to_timestamp(recorded_after),
            recorded_before=None if recorded_before is None else to_timestamp(recorded_before),
            after_sequence=after_sequence,
            oldest_first=oldest_first,
            page_size=page_size,
        )

        async def fetch(page: str) -> tuple[list[access_pb2.AuditEntry], str]:
            wanted.page_token = page
            answer = await self._connection.call(self._access.ListAuditEntries, wanted)
            return list(answer.entries), answer.next_page_token

        return paged(fetch)

    async def verify_audit(self, *, known_sequence: int = 0, known_hash: str = "") -> access_pb2.VerifyAuditResponse:
        """Computes the hashes of the audit log again. `broken` is the first entry that was changed, added or removed.

        An entry that was noted before, with its hash, also shows whether the newest entries were removed.
        """
        request = access_pb2.VerifyAuditRequest(known_sequence=known_sequence, known_hash=known_hash)
        return await self._connection.call(self._access.VerifyAudit, request, within=VERIFY_WITHIN)
