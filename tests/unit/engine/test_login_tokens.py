"""Login tokens: for one user, one socket and ten minutes, and bounded in number."""

from __future__ import annotations

import pytest

from doubles.clock import Clock
from toban.token_text import TokenText, new_token_text
from toband.domain.identity import Role
from toband.engine.access.door import Door
from toband.engine.access.login_tokens import MOST_OF_USER, MOST_USERS, VALID_FOR, LoginTokens
from toband.engine.errors import CredentialReason, InvalidCredentialError

DOOR = Door(address="unix:///run/toban/toban.sock", role=Role.EDITOR)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logins(clock: Clock) -> LoginTokens:
    return LoginTokens(clock)


def made(logins: LoginTokens, uid: int) -> TokenText:
    return logins.create(DOOR, uid, "")[0]


def test_a_token_is_its_user_at_its_socket(logins: LoginTokens, clock: Clock) -> None:
    text, expires_at = logins.create(DOOR, 1000, "aiko")
    assert expires_at == clock.now() + VALID_FOR
    identity = logins.identify(DOOR, text)
    assert identity is not None
    assert (identity.name, identity.role) == ("uid:1000 (aiko)", Role.EDITOR)
    assert logins.identify(Door(address="unix:///run/toban/admin.sock", role=Role.ADMIN), text) is None
    assert logins.identify(DOOR, new_token_text()) is None
    assert logins.identify(DOOR, TokenText(id=text.id, text=new_token_text().text)) is None


def test_a_token_expires(logins: LoginTokens, clock: Clock) -> None:
    text = made(logins, 1000)
    clock.advance(VALID_FOR.total_seconds() - 1)
    assert logins.identify(DOOR, text) is not None
    clock.advance(1)
    with pytest.raises(InvalidCredentialError) as caught:
        logins.identify(DOOR, text)
    assert caught.value.reason is CredentialReason.EXPIRED
    assert logins.identify(DOOR, text) is None, "it is forgotten"


def test_a_user_who_fetches_without_end_pushes_out_its_own_only(logins: LoginTokens) -> None:
    other = made(logins, 1)
    first = made(logins, 1000)
    second = made(logins, 1000)
    for _ in range(MOST_OF_USER - 1):
        made(logins, 1000)
    assert logins.identify(DOOR, first) is None
    assert logins.identify(DOOR, second) is not None
    assert logins.identify(DOOR, other) is not None


def test_the_number_of_users_is_bounded(logins: LoginTokens) -> None:
    first = made(logins, 1)
    second = made(logins, 2)
    made(logins, 1)
    for uid in range(3, MOST_USERS + 2):
        made(logins, uid)
    assert logins.identify(DOOR, second) is None, "the user who fetched longest ago"
    assert logins.identify(DOOR, first) is not None
