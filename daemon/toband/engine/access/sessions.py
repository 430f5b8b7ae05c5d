"""Sessions: short-lived tokens that callers create for themselves. In memory only.

A session is its owner, by name and for approvals, with at most its rights. It ends with the credential that created it.
"""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from toban.token_text import TokenText, new_token_text
from toband.domain.authority import Authority, described
from toband.domain.identity import Identity, IdentityKind, Narrowing, Role
from toband.engine.access.live_streams import LiveStreams
from toband.engine.errors import (
    CredentialReason,
    InvalidCredentialError,
    NotPermittedError,
    PermissionReason,
    SessionNotFoundError,
    SessionOfSessionError,
    TooManySessionsError,
    UnknownOwnerError,
)
from toband.ports import Clock

DEFAULT_LIFETIME = timedelta(hours=12)
LONGEST_LIFETIME = timedelta(days=7)
MOST_OF_OWNER = 100
MOST = 10_000
_NO_OWNER = (IdentityKind.SOCKET, IdentityKind.STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerSession:
    id: str
    label: str
    identity: Identity
    """That of its calls."""
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class _Entry:
    session: CallerSession
    digest: str
    close: Callable[[], None]
    ended: InvalidCredentialError | None = None
    """It is kept for a while after its end, so that its user learns why."""


class Sessions:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, streams: LiveStreams) -> None:
        self._clock = clock
        self._streams = streams
        self._by_id: dict[str, _Entry] = {}

    def create(
        self,
        owner: Identity,
        label: str,
        *,
        role: Role | None = None,
        narrowing: Narrowing | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[CallerSession, TokenText]:
        """Without role, narrowing and expiry: those of the owner.

        Raises UnknownOwnerError, SessionOfSessionError, NotPermittedError, TooManySessionsError.
        """
        if owner.session:
            raise SessionOfSessionError
        if owner.kind in _NO_OWNER or owner.role is None:
            raise UnknownOwnerError(owner.name)
        wanted = Authority(role=role or owner.role, narrowing=narrowing or owner.narrowing)
        _check_rights(owner, Authority(role=owner.role, narrowing=owner.narrowing), wanted)
        now = self._clock.now()
        self._make_room(owner, now)
        until = min(expires_at or now + DEFAULT_LIFETIME, now + LONGEST_LIFETIME)
        until = min(until, owner.expires_at or until)
        text = new_token_text()
        identity = dataclasses.replace(
            owner,
            role=wanted.role,
            narrowing=wanted.narrowing,
            credential=f"session:{text.id}",
            expires_at=until,
            session=text.id,
        )
        session = CallerSession(id=text.id, label=label, identity=identity, created_at=now, expires_at=until)
        close = self._streams.watch(owner.credential, partial(self._end, text.id))
        self._by_id[text.id] = _Entry(session=session, digest=text.digest, close=close)
        return session, text

    def identify(self, text: TokenText) -> Identity | None:
        """None if it is no session. Raises InvalidCredentialError for one that has ended."""
        entry = self._by_id.get(text.id)
        if entry is None or not hmac.compare_digest(entry.digest, text.digest):
            return None
        now = self._clock.now()
        if entry.ended is not None:
            raise entry.ended
        if entry.session.expires_at <= now:
            raise InvalidCredentialError("the credential has expired", CredentialReason.EXPIRED)
        entry.session = dataclasses.replace(entry.session, last_used_at=now.replace(second=0, microsecond=0))
        return entry.session.identity

    def list(self, of: Identity) -> Sequence[CallerSession]:
        """Those that the caller may see, oldest first."""
        now = self._clock.now()
        valid = [each.session for each in self._by_id.values() if _is_valid(each, now)]
        return sorted((each for each in valid if _may_see(of, each)), key=lambda each: (each.created_at, each.id))

    def revoke(self, session_id: str, by: Identity) -> CallerSession:
        """Ends its open streams too. Raises SessionNotFoundError."""
        entry = self._by_id.get(session_id)
        if entry is None or not _is_valid(entry, self._clock.now()) or not _may_see(by, entry.session):
            raise SessionNotFoundError(session_id)
        entry.close()
        self._end(session_id, InvalidCredentialError("the credential was revoked", CredentialReason.REVOKED))
        return entry.session

    def _end(self, session_id: str, error: InvalidCredentialError) -> None:
        entry = self._by_id.get(session_id)
        if entry is not None and entry.ended is None:
            entry.ended = error
            self._streams.end(entry.session.identity.credential, error)

    def _make_room(self, owner: Identity, now: datetime) -> None:
        """Forgets expired sessions, and ended ones of the owner if there are many. Raises TooManySessionsError."""
        for each in [each for each in self._by_id.values() if each.session.expires_at <= now]:
            self._forget(each)
        own = [each for each in self._by_id.values() if _is_same(owner, each.session.identity)]
        if len(own) >= MOST_OF_OWNER:
            for each in [each for each in own if each.ended is not None]:
                self._forget(each)
                own.remove(each)
        if len(own) >= MOST_OF_OWNER:
            raise TooManySessionsError(MOST_OF_OWNER, mine=True)
        if len(self._by_id) >= MOST:
            raise TooManySessionsError(MOST, mine=False)

    def _forget(self, entry: _Entry) -> None:
        entry.close()
        del self._by_id[entry.session.id]


def _check_rights(owner: Identity, has: Authority, wanted: Authority) -> None:
    """Raises NotPermittedError."""
    if wanted.role > has.role:
        raise NotPermittedError(
            f"{owner.name} has the role {has.role.label}, and its session cannot have the role {wanted.role.label}",
            PermissionReason.ROLE,
        )
    if not has.includes(wanted):
        raise NotPermittedError(
            f"{owner.name} is limited to {described(has.narrowing)}, which must include the workflows of its session",
            PermissionReason.WORKFLOW,
        )


def _is_valid(entry: _Entry, now: datetime) -> bool:
    return entry.ended is None and entry.session.expires_at > now


def _may_see(caller: Identity, session: CallerSession) -> bool:
    everything = caller.role is Role.ADMIN and caller.narrowing is None
    return everything or _is_same(caller, session.identity)


def _is_same(one: Identity, other: Identity) -> bool:
    return (one.kind, one.name) == (other.kind, other.name)
