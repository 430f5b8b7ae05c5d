"""The index of tokens: it answers without a query, and follows what is stored."""

from __future__ import annotations

from datetime import timedelta

import pytest

from doubles.clock import Clock
from toban.token_text import new_token_text
from toband.domain.credential_rules import ConfiguredToken, RoleGrant
from toband.domain.identity import Narrowing, Role
from toband.engine.access.live_streams import LiveStreams
from toband.engine.access.tokens import Tokens
from toband.engine.errors import CredentialReason, InvalidCredentialError, TokenNotFoundError
from toband.ports import TokenExistsError
from toband.store import SqlStore

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tokens(store: SqlStore, clock: Clock) -> Tokens:
    return await opened(store, clock)


async def opened(store: SqlStore, clock: Clock, *configured: ConfiguredToken) -> Tokens:
    made = Tokens(store=store, clock=clock, streams=LiveStreams(), configured=configured)
    await made.load()
    return made


def reason(tokens: Tokens, text: str) -> CredentialReason:
    from toban.token_text import read_token_text

    read = read_token_text(text)
    assert read is not None
    with pytest.raises(InvalidCredentialError) as caught:
        tokens.identify(read)
    return caught.value.reason


async def test_a_token_has_what_it_was_given(store: SqlStore, clock: Clock, tokens: Tokens) -> None:
    narrowing = Narrowing(workflows=("nightly-*",), labels=(("team", "ops"),))
    expires_at = clock.now() + MINUTE
    stored, text = await tokens.create("ci", Role.OPERATOR, narrowing, expires_at, by="socket:admin.sock")
    for known in (tokens, await opened(store, clock)):
        identity = known.identify(text)
        assert (identity.name, identity.role, identity.narrowing) == ("token:ci", Role.OPERATOR, narrowing)
        assert (identity.credential, identity.expires_at) == (stored.id, expires_at)
    assert stored.digest != text.text
    clock.advance(60)
    assert reason(tokens, text.text) is CredentialReason.EXPIRED
    assert tokens.list() == []
    assert [each.name for each in tokens.list(include_ended=True)] == ["ci"]


async def test_a_wrong_secret_tells_no_more_than_an_unknown_id(tokens: Tokens) -> None:
    _, text = await tokens.create("ci", Role.ADMIN, None, None, by="x")
    other = new_token_text()
    _, gone = await tokens.create("gone", Role.ADMIN, None, None, by="x")
    await tokens.revoke("gone", by="x")
    assert reason(tokens, gone.text) is CredentialReason.REVOKED, "its owner is told"
    secret = other.text[-43:]
    for token_id in (text.id, gone.id, other.id):
        assert reason(tokens, f"toban_{token_id}_{secret}") is CredentialReason.INVALID


async def test_a_name_is_free_again_after_a_revocation(store: SqlStore, clock: Clock, tokens: Tokens) -> None:
    first, text = await tokens.create("ci", Role.ADMIN, None, None, by="x")
    with pytest.raises(TokenExistsError):
        await tokens.create("ci", Role.VIEWER, None, None, by="x")
    assert (await tokens.revoke(first.id, by="socket:admin.sock")).revoked_by == "socket:admin.sock"
    second, _ = await tokens.create("ci", Role.VIEWER, None, None, by="x")
    assert (await tokens.revoke("ci", by="x")).id == second.id
    with pytest.raises(TokenNotFoundError):
        await tokens.revoke("ci", by="x")
    assert reason(await opened(store, clock), text.text) is CredentialReason.REVOKED


async def test_the_last_use_is_stored_by_the_minute(store: SqlStore, clock: Clock, tokens: Tokens) -> None:
    _, text = await tokens.create("ci", Role.ADMIN, None, None, by="x")
    tokens.identify(text)
    await tokens.flush()
    (stored,) = await store.list_tokens()
    used = stored.last_used_at
    assert used == clock.now().replace(second=0, microsecond=0)
    clock.advance(60)
    tokens.identify(text)
    assert tokens.list()[0].last_used_at == used + MINUTE
    assert (await store.list_tokens())[0].last_used_at == used, "no call waits for the database"
    await tokens.flush()
    assert (await store.list_tokens())[0].last_used_at == used + MINUTE


async def test_tokens_of_the_configuration_come_and_go_with_it(store: SqlStore, clock: Clock) -> None:
    text = new_token_text()
    expires_at = clock.now() + MINUTE
    configured = ConfiguredToken(
        name="first", digest=text.digest, grant=RoleGrant(role=Role.ADMIN), expires_at=expires_at
    )
    tokens = await opened(store, clock, configured)
    assert tokens.identify(text).name == "token:first"
    await tokens.flush()
    clock.advance(60)
    assert reason(tokens, text.text) is CredentialReason.EXPIRED
    assert reason(await opened(store, clock), text.text) is CredentialReason.INVALID


def test_streams_end_once_with_their_credential() -> None:
    streams = LiveStreams()
    ended: list[InvalidCredentialError] = []
    error = InvalidCredentialError("x", CredentialReason.REVOKED)
    with streams.open("a", ended.append), streams.open("", ended.append):
        with streams.open("a", ended.append), streams.open("b", ended.append):
            pass
        assert streams.credentials() == ["a"]
        streams.end("b", error)
        streams.end("", error)
        assert ended == []
        streams.end("a", error)
        streams.end("a", error)
        assert ended == [error]
    assert streams.credentials() == []
