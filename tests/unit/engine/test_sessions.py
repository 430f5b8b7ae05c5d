"""Sessions: the rights, the end and the number of the tokens that callers create for themselves."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from doubles.clock import Clock
from toban.token_text import TokenText, new_token_text
from toband.domain.identity import Identity, IdentityKind, Narrowing, Role, token_identity, user_identity
from toband.engine.access.live_streams import LiveStreams
from toband.engine.access.sessions import DEFAULT_LIFETIME, LONGEST_LIFETIME, MOST_OF_OWNER, Sessions
from toband.engine.errors import (
    CredentialReason,
    InvalidCredentialError,
    NotPermittedError,
    SessionNotFoundError,
    SessionOfSessionError,
    TooManySessionsError,
    UnknownOwnerError,
)

AIKO = user_identity(1000, "aiko", Role.EDITOR)
ADMIN = user_identity(0, "root", Role.ADMIN)
REVOKED = InvalidCredentialError("the credential was revoked", CredentialReason.REVOKED)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def streams() -> LiveStreams:
    return LiveStreams()


@pytest.fixture
def sessions(clock: Clock, streams: LiveStreams) -> Sessions:
    return Sessions(clock, streams)


def reason_of(sessions: Sessions, text: TokenText) -> CredentialReason:
    with pytest.raises(InvalidCredentialError) as caught:
        sessions.identify(text)
    return caught.value.reason


def token(role: Role, *patterns: str) -> Identity:
    return token_identity("id", "ci", role, Narrowing(workflows=patterns) if patterns else None, None)


def test_a_session_is_its_owner(sessions: Sessions) -> None:
    session, text = sessions.create(AIKO, "browser")
    identity = sessions.identify(text)
    assert identity is not None
    credential, expires_at = identity.credential, session.expires_at
    assert identity == dataclasses.replace(AIKO, credential=credential, expires_at=expires_at, session=session.id)
    assert sessions.identify(new_token_text()) is None
    assert sessions.identify(TokenText(id=text.id, text=new_token_text().text)) is None
    assert [each.label for each in sessions.list(AIKO)] == ["browser"]


@pytest.mark.parametrize(
    ("owner", "role", "patterns", "allowed"),
    [
        (token(Role.EDITOR), Role.EDITOR, (), True),
        (token(Role.EDITOR), Role.VIEWER, ("ci-*",), True),
        (token(Role.EDITOR), Role.ADMIN, (), False),
        (token(Role.ADMIN, "ci-*"), Role.ADMIN, ("ci-nightly", "ci-a*"), True),
        (token(Role.ADMIN, "ci-*"), Role.VIEWER, ("ci-nightly", "other"), False),
        (token(Role.ADMIN, "ci-*"), Role.VIEWER, ("*",), False),
    ],
)
def test_a_session_has_at_most_the_rights_of_its_owner(
    sessions: Sessions, owner: Identity, role: Role, patterns: tuple[str, ...], allowed: bool
) -> None:
    narrowing = Narrowing(workflows=patterns) if patterns else None
    if not allowed:
        with pytest.raises(NotPermittedError):
            sessions.create(owner, "", role=role, narrowing=narrowing)
        assert sessions.list(owner) == []
        return
    _, text = sessions.create(owner, "", role=role, narrowing=narrowing)
    identity = sessions.identify(text)
    assert identity is not None
    assert (identity.role, identity.narrowing) == (role, narrowing)


def test_a_limited_owner_cannot_leave_its_limits_out(sessions: Sessions) -> None:
    owner = token(Role.ADMIN, "ci-*")
    _, text = sessions.create(owner, "")
    identity = sessions.identify(text)
    assert identity is not None
    assert identity.narrowing == owner.narrowing


def test_a_session_expires(sessions: Sessions, clock: Clock) -> None:
    now = clock.now()
    session, text = sessions.create(AIKO, "")
    assert session.expires_at == now + DEFAULT_LIFETIME
    longest, _ = sessions.create(AIKO, "", expires_at=now + timedelta(days=365))
    assert longest.expires_at == now + LONGEST_LIFETIME
    soon = dataclasses.replace(AIKO, expires_at=now + timedelta(hours=1))
    capped, _ = sessions.create(soon, "")
    assert capped.expires_at == soon.expires_at
    clock.advance(DEFAULT_LIFETIME.total_seconds())
    assert reason_of(sessions, text) is CredentialReason.EXPIRED
    assert [each.id for each in sessions.list(AIKO)] == [longest.id]
    with pytest.raises(SessionNotFoundError):
        sessions.revoke(session.id, AIKO)


def test_a_session_ends_with_the_credential_of_its_owner(sessions: Sessions, streams: LiveStreams) -> None:
    owner = token(Role.VIEWER)
    session, text = sessions.create(owner, "")
    ended: list[InvalidCredentialError] = []
    identity = sessions.identify(text)
    assert identity is not None
    with streams.open(identity.credential, ended.append):
        streams.end(owner.credential, REVOKED)
    assert [each.reason for each in ended] == [CredentialReason.REVOKED]
    assert reason_of(sessions, text) is CredentialReason.REVOKED
    assert sessions.list(owner) == []
    with pytest.raises(SessionNotFoundError):
        sessions.revoke(session.id, owner)


def test_a_session_is_revoked_by_its_owner_and_by_an_admin(sessions: Sessions, streams: LiveStreams) -> None:
    owner = token(Role.VIEWER)
    one, first = sessions.create(owner, "")
    two, second = sessions.create(owner, "")
    narrow_admin = token_identity("other", "narrow", Role.ADMIN, Narrowing(workflows=("*",)), None)
    for stranger in (AIKO, narrow_admin):
        assert sessions.list(stranger) == []
        with pytest.raises(SessionNotFoundError):
            sessions.revoke(one.id, stranger)
    assert {each.id for each in sessions.list(ADMIN)} == {one.id, two.id}
    sessions.revoke(one.id, owner)
    sessions.revoke(two.id, ADMIN)
    assert reason_of(sessions, first) is reason_of(sessions, second) is CredentialReason.REVOKED
    assert streams.credentials() == [], "nothing is left of a session that has ended"


def test_who_cannot_have_a_session(sessions: Sessions) -> None:
    _, text = sessions.create(AIKO, "")
    mine = sessions.identify(text)
    assert mine is not None
    with pytest.raises(SessionOfSessionError):
        sessions.create(mine, "")
    for kind in (IdentityKind.SOCKET, IdentityKind.STEP):
        with pytest.raises(UnknownOwnerError):
            sessions.create(Identity(name="x", kind=kind, role=Role.ADMIN), "")


def test_the_number_of_sessions_is_bounded(sessions: Sessions, clock: Clock) -> None:
    owner = token(Role.VIEWER)
    made = [sessions.create(owner, "")[0] for _ in range(MOST_OF_OWNER)]
    with pytest.raises(TooManySessionsError):
        sessions.create(owner, "")
    sessions.create(AIKO, "")
    sessions.revoke(made[0].id, owner)
    sessions.create(owner, "")
    with pytest.raises(TooManySessionsError):
        sessions.create(owner, "")
    clock.advance(DEFAULT_LIFETIME.total_seconds())
    sessions.create(owner, "")
    assert len(sessions.list(ADMIN)) == 1
