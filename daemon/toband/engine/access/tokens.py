"""Tokens: created, listed, revoked, and found by their text without a query."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import structlog

from toban.token_text import TokenText, new_token_text
from toband.domain.credential_rules import ConfiguredToken
from toband.domain.identity import Identity, Narrowing, Role, token_identity
from toband.engine.access.live_streams import LiveStreams
from toband.engine.errors import (
    ConfiguredTokenError,
    CredentialReason,
    InvalidCredentialError,
    TokenNotFoundError,
)
from toband.ports import Clock, StoredToken, StoreError, TokenExistsError

TOKEN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
NOTE_EVERY = 5.0
CONFIGURATION = "configuration"
"""The creator of a token that the configuration names."""

log = structlog.get_logger()


class TokenStore(Protocol):
    """The part of `toband.ports.AccessStore` that tokens need."""

    async def create_token(self, token: StoredToken) -> None: ...

    async def list_tokens(self) -> Sequence[StoredToken]: ...

    async def forget_tokens(self, before: datetime) -> Sequence[str]: ...

    async def revoke_token(self, token_id: str, at: datetime, by: str) -> bool: ...

    async def note_token_use(self, token_id: str, at: datetime) -> None: ...


def invalid_credential() -> InvalidCredentialError:
    """The same for every credential that proves nothing: an outsider learns nothing of those that exist."""
    return InvalidCredentialError("the credential is not valid", CredentialReason.INVALID)


class Tokens:
    """Belongs to the event loop. The index of all tokens is read once, and changed with them."""

    def __init__(
        self, *, store: TokenStore, clock: Clock, streams: LiveStreams, configured: Sequence[ConfiguredToken] = ()
    ) -> None:
        self._store = store
        self._clock = clock
        self._streams = streams
        self._configured = {each.name: _as_stored(each) for each in configured}
        self._by_id: dict[str, StoredToken] = {}
        self._used: dict[str, datetime] = {}
        self._configured_used: dict[str, datetime] = {}

    def use(self, configured: Sequence[ConfiguredToken]) -> None:
        """Replaces the tokens of the configuration. Ends the streams of those that are gone or changed."""
        before, self._configured = self._configured, {each.name: _as_stored(each) for each in configured}
        for name, token in before.items():
            if self._configured.get(name) != token:
                self._streams.end(_configured_credential(name), _revoked())

    async def load(self) -> None:
        """Raises StoreError."""
        self._by_id = {each.id: each for each in await self._store.list_tokens()}

    def identify(self, text: TokenText) -> Identity:
        """Raises InvalidCredentialError."""
        token = self._find(text)
        if token is None:
            raise invalid_credential()
        now = self._clock.now()
        if token.revoked_at is not None:
            raise _revoked()
        if token.expires_at is not None and token.expires_at <= now:
            raise InvalidCredentialError("the credential has expired", CredentialReason.EXPIRED)
        self._note_use(token, now)
        return token_identity(
            token.id or _configured_credential(token.name), token.name, token.role, token.narrowing, token.expires_at
        )

    async def create(
        self, name: str, role: Role, narrowing: Narrowing | None, expires_at: datetime | None, *, by: str
    ) -> tuple[StoredToken, TokenText]:
        """Raises TokenExistsError, StoreError."""
        if name in self._configured:
            raise TokenExistsError(name)
        text = new_token_text()
        token = StoredToken(
            id=text.id,
            name=name,
            role=role,
            narrowing=narrowing,
            digest=text.digest,
            created_at=self._clock.now(),
            created_by=by,
            expires_at=expires_at,
        )
        await self._store.create_token(token)
        self._by_id[token.id] = token
        return token, text

    def list(self, *, include_ended: bool = False) -> Sequence[StoredToken]:
        """Those of the configuration first, then the oldest."""
        now = self._clock.now()
        used = self._configured_used
        configured = [dataclasses.replace(each, last_used_at=used.get(name)) for name, each in self._configured.items()]
        found = [*configured, *self._by_id.values()]
        return [each for each in found if include_ended or not has_ended(each, now)]

    async def revoke(self, name_or_id: str, *, by: str) -> StoredToken:
        """Ends its open streams too. Raises TokenNotFoundError, ConfiguredTokenError, StoreError."""
        if name_or_id in self._configured:
            raise ConfiguredTokenError(name_or_id)
        valid = [each for each in self._by_id.values() if each.revoked_at is None]
        named = [each for each in valid if each.name == name_or_id]
        token = next(iter(named or [each for each in valid if each.id == name_or_id]), None)
        if token is None:
            raise TokenNotFoundError(name_or_id)
        at = self._clock.now()
        if not await self._store.revoke_token(token.id, at, by):
            raise TokenNotFoundError(name_or_id)
        revoked = dataclasses.replace(self._by_id[token.id], revoked_at=at, revoked_by=by)
        self._by_id[token.id] = revoked
        self._streams.end(token.id, _revoked())
        return revoked

    async def forget(self, before: datetime) -> None:
        """Removes those that ended before then. Raises StoreError."""
        while gone := await self._store.forget_tokens(before):
            for token_id in gone:
                self._by_id.pop(token_id, None)
                self._used.pop(token_id, None)

    async def note_uses(self) -> None:
        """Writes the last uses down, until it is cancelled."""
        while True:
            await asyncio.sleep(NOTE_EVERY)
            await self.flush()

    async def flush(self) -> None:
        """Writes the last uses that are not written. A database that takes no writes loses no more than these."""
        used, self._used = self._used, {}
        for token_id, at in used.items():
            try:
                await self._store.note_token_use(token_id, at)
            except StoreError as error:
                log.warning("cannot note the use of a token", action="token_use_lost", token=token_id, error=str(error))

    def _find(self, text: TokenText) -> StoredToken | None:
        digest = text.digest
        token = self._by_id.get(text.id)
        if token is not None:
            return token if hmac.compare_digest(token.digest, digest) else None
        matching = [each for each in self._configured.values() if hmac.compare_digest(each.digest, digest)]
        return matching[0] if matching else None

    def _note_use(self, token: StoredToken, now: datetime) -> None:
        minute = now.replace(second=0, microsecond=0)
        if token.id not in self._by_id:
            self._configured_used[token.name] = minute
        elif token.last_used_at is None or token.last_used_at < minute:
            self._used[token.id] = minute
            self._by_id[token.id] = dataclasses.replace(token, last_used_at=minute)


def has_ended(token: StoredToken, now: datetime) -> bool:
    return token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now)


def _revoked() -> InvalidCredentialError:
    return InvalidCredentialError("the credential was revoked", CredentialReason.REVOKED)


def _configured_credential(name: str) -> str:
    return f"{CONFIGURATION}:{name}"


def _as_stored(token: ConfiguredToken) -> StoredToken:
    return StoredToken(
        id="",
        name=token.name,
        role=token.grant.role,
        narrowing=token.grant.narrowing,
        digest=token.digest,
        created_at=_LONG_AGO,
        created_by=CONFIGURATION,
        expires_at=token.expires_at,
    )


_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
