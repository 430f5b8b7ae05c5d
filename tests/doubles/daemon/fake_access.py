"""Identities, tokens, TLS and the audit log of the fake daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from doubles.daemon.fake_errors import Context, abort, info
from toban.certificate_authority import KeyPair
from toban.token_text import new_token_text
from toban.v1 import access_pb2, access_pb2_grpc, access_rule_pb2

if TYPE_CHECKING:
    from doubles.daemon.fake_daemon import FakeDaemon


@dataclass
class AccessRecords:
    """What a test sets: who may call, and what the service answers."""

    # The texts of tokens that are accepted; None: every call is.
    accepted: set[str] | None = None
    # How a call without one of them fails.
    reason: str = "CREDENTIAL_INVALID"
    # The TLS listener on loopback, which a start opens; `address` is its address then.
    pair: KeyPair | None = None
    client_ca: bytes = b""
    # Plaintext on loopback.
    plain: bool = False
    address: str = ""
    # The login socket, which a start opens: what it hands out, one after another, the last one for ever.
    logins: list[str] = field(default_factory=list)
    login_lives: timedelta = timedelta(minutes=10)
    logged_in: int = 0
    # What the service answers.
    identity: access_pb2.Identity = field(
        default_factory=lambda: access_pb2.Identity(
            name="uid:1000 (aiko)", kind=access_pb2.IDENTITY_KIND_USER, role=access_rule_pb2.ROLE_ADMIN
        )
    )
    doors: access_pb2.GetAccessResponse = field(default_factory=access_pb2.GetAccessResponse)
    tokens: list[access_pb2.Token] = field(default_factory=list)
    sessions: list[access_pb2.Session] = field(default_factory=list)
    entries: list[access_pb2.AuditEntry] = field(default_factory=list)
    verified: access_pb2.VerifyAuditResponse = field(default_factory=access_pb2.VerifyAuditResponse)
    _login: asyncio.Server | None = None

    async def check(self, context: Context, metadata: Mapping[str, Any]) -> None:
        """Fails a call without an accepted token."""
        if self.accepted is None or str(metadata.get("authorization", "")).removeprefix("Bearer ") in self.accepted:
            return
        reason = self.reason if "authorization" in metadata else "CREDENTIAL_REQUIRED"
        await abort(context, grpc.StatusCode.UNAUTHENTICATED, "the credential is not accepted", info(reason))

    def listen(self, server: grpc.aio.Server) -> None:
        if self.pair is not None:
            credentials = grpc.ssl_server_credentials(
                [(self.pair.key, self.pair.certificate)],
                root_certificates=self.client_ca or None,
                require_client_auth=bool(self.client_ca),
            )
            self.address = f"tls://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
        elif self.plain:
            self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"

    async def start_login(self, path: Path) -> None:
        if self.logins:
            self._login = await asyncio.start_unix_server(self._log_in, f"{path}.login")

    async def stop_login(self) -> None:
        if self._login is not None:
            self._login.close()
            self._login = None

    async def _log_in(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.logged_in += 1
        text = self.logins.pop(0) if len(self.logins) > 1 else self.logins[0]
        expires_at = datetime.now(UTC) + self.login_lives
        writer.write(json.dumps({"token": text, "expires_at": expires_at.isoformat()}).encode() + b"\n")
        await writer.drain()
        writer.close()

    def add_token(self, name: str, role: access_rule_pb2.Role.ValueType, **more: Any) -> access_pb2.Token:
        token = access_pb2.Token(
            id=new_token_text().id,
            name=name,
            role=role,
            state=access_pb2.TOKEN_STATE_VALID,
            created_by="uid:1000 (aiko)",
            **more,
        )
        token.created_at.GetCurrentTime()
        self.tokens.append(token)
        return token

    def add_entry(self, actor: str, method: str, target: str = "", **more: Any) -> access_pb2.AuditEntry:
        sequence = len(self.entries) + 1
        entry = access_pb2.AuditEntry(
            sequence=sequence,
            actor=actor,
            role="admin",
            method=method,
            target=target,
            outcome=more.pop("outcome", access_pb2.AUDIT_OUTCOME_DONE),
            previous_hash=f"{sequence - 1:064x}",
            hash=f"{sequence:064x}",
            **more,
        )
        entry.recorded_at.GetCurrentTime()
        self.entries.append(entry)
        return entry


class Access(access_pb2_grpc.AccessServiceServicer):
    """Answers from the records; tokens are created and revoked there."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon
        self._records = daemon.access

    async def WhoAmI(self, request: access_pb2.WhoAmIRequest, context: Context) -> access_pb2.WhoAmIResponse:
        async def work() -> access_pb2.WhoAmIResponse:
            return access_pb2.WhoAmIResponse(identity=self._records.identity, address=self._daemon.address)

        return await self._daemon.answer("WhoAmI", context, request, work)

    async def GetAccess(self, request: access_pb2.GetAccessRequest, context: Context) -> access_pb2.GetAccessResponse:
        async def work() -> access_pb2.GetAccessResponse:
            return self._records.doors

        return await self._daemon.answer("GetAccess", context, request, work)

    async def CreateToken(
        self, request: access_pb2.CreateTokenRequest, context: Context
    ) -> access_pb2.CreateTokenResponse:
        async def work() -> access_pb2.CreateTokenResponse:
            if any(each.name == request.name and not each.HasField("revoked_at") for each in self._records.tokens):
                await abort(
                    context,
                    grpc.StatusCode.ALREADY_EXISTS,
                    f"a token has the name {request.name!r}",
                    info("TOKEN_EXISTS", {"name": request.name}),
                )
            text = new_token_text()
            token = self._records.add_token(request.name, request.role)
            token.id = text.id
            if request.HasField("narrowing"):
                token.narrowing.CopyFrom(request.narrowing)
            if request.HasField("expires_at"):
                token.expires_at.CopyFrom(request.expires_at)
            return access_pb2.CreateTokenResponse(token=token, text=text.text)

        return await self._daemon.answer("CreateToken", context, request, work)

    async def ListTokens(
        self, request: access_pb2.ListTokensRequest, context: Context
    ) -> access_pb2.ListTokensResponse:
        async def work() -> access_pb2.ListTokensResponse:
            valid = access_pb2.TOKEN_STATE_VALID
            found = [each for each in self._records.tokens if request.include_ended or each.state == valid]
            begin, size = int(request.page_token or 0), request.page_size or 100
            more = str(begin + size) if begin + size < len(found) else ""
            return access_pb2.ListTokensResponse(tokens=found[begin : begin + size], next_page_token=more)

        return await self._daemon.answer("ListTokens", context, request, work)

    async def RevokeToken(
        self, request: access_pb2.RevokeTokenRequest, context: Context
    ) -> access_pb2.RevokeTokenResponse:
        async def work() -> access_pb2.RevokeTokenResponse:
            valid = [each for each in self._records.tokens if not each.HasField("revoked_at")]
            token = next((each for each in valid if request.token in (each.id, each.name)), None)
            if token is None:
                text = f"there is no token {request.token!r}"
                await abort(context, grpc.StatusCode.NOT_FOUND, text, info("TOKEN_NOT_FOUND"))
            token.state = access_pb2.TOKEN_STATE_REVOKED
            token.revoked_at.GetCurrentTime()
            token.revoked_by = self._records.identity.name
            return access_pb2.RevokeTokenResponse(token=token)

        return await self._daemon.answer("RevokeToken", context, request, work)

    async def CreateSession(
        self, request: access_pb2.CreateSessionRequest, context: Context
    ) -> access_pb2.CreateSessionResponse:
        async def work() -> access_pb2.CreateSessionResponse:
            text, identity = new_token_text(), self._records.identity
            session = access_pb2.Session(
                id=text.id, owner=identity.name, label=request.label, role=request.role or identity.role
            )
            if request.HasField("narrowing"):
                session.narrowing.CopyFrom(request.narrowing)
            session.created_at.GetCurrentTime()
            session.expires_at.FromDatetime(datetime.now(UTC) + timedelta(hours=12))
            if request.HasField("expires_at"):
                session.expires_at.CopyFrom(request.expires_at)
            self._records.sessions.append(session)
            return access_pb2.CreateSessionResponse(session=session, text=text.text)

        return await self._daemon.answer("CreateSession", context, request, work)

    async def ListSessions(
        self, request: access_pb2.ListSessionsRequest, context: Context
    ) -> access_pb2.ListSessionsResponse:
        async def work() -> access_pb2.ListSessionsResponse:
            found = self._records.sessions
            begin, size = int(request.page_token or 0), request.page_size or 100
            more = str(begin + size) if begin + size < len(found) else ""
            return access_pb2.ListSessionsResponse(sessions=found[begin : begin + size], next_page_token=more)

        return await self._daemon.answer("ListSessions", context, request, work)

    async def RevokeSession(
        self, request: access_pb2.RevokeSessionRequest, context: Context
    ) -> access_pb2.RevokeSessionResponse:
        async def work() -> access_pb2.RevokeSessionResponse:
            session = next((each for each in self._records.sessions if each.id == request.id), None)
            if session is None:
                text = f"there is no session {request.id!r}, or it has ended"
                await abort(context, grpc.StatusCode.NOT_FOUND, text, info("SESSION_NOT_FOUND"))
            self._records.sessions.remove(session)
            return access_pb2.RevokeSessionResponse(session=session)

        return await self._daemon.answer("RevokeSession", context, request, work)

    async def ListAuditEntries(
        self, request: access_pb2.ListAuditEntriesRequest, context: Context
    ) -> access_pb2.ListAuditEntriesResponse:
        async def work() -> access_pb2.ListAuditEntriesResponse:
            found = [
                each
                for each in self._records.entries
                if each.sequence > request.after_sequence
                and request.actor in ("", each.actor)
                and request.target in ("", each.target)
                and request.outcome in (access_pb2.AUDIT_OUTCOME_UNSPECIFIED, each.outcome)
                and f"/{each.method}".endswith(f"/{request.method}" if request.method else "")
            ]
            found = found if request.oldest_first else found[::-1]
            begin, size = int(request.page_token or 0), request.page_size or 100
            more = str(begin + size) if begin + size < len(found) else ""
            return access_pb2.ListAuditEntriesResponse(entries=found[begin : begin + size], next_page_token=more)

        return await self._daemon.answer("ListAuditEntries", context, request, work)

    async def VerifyAudit(
        self, request: access_pb2.VerifyAuditRequest, context: Context
    ) -> access_pb2.VerifyAuditResponse:
        async def work() -> access_pb2.VerifyAuditResponse:
            return self._records.verified

        return await self._daemon.answer("VerifyAudit", context, request, work)
