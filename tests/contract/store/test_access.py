"""Tokens: names of valid tokens are unique."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toband.domain.identity import Narrowing, Role
from toband.ports import Store, StoredToken, TokenExistsError

AT = datetime(2026, 11, 18, 9, 30, 0, 123456, tzinfo=UTC)
TOKEN = StoredToken(
    id="1f00", name="ci", role=Role.OPERATOR, narrowing=None, digest="d1", created_at=AT, created_by="uid:0 (root)"
)


async def test_tokens_are_stored_listed_and_revoked(store: Store) -> None:
    narrow = Narrowing(workflows=("nightly-*",), labels=(("team", "数据"),))
    second = replace(TOKEN, id="2f00", name="laptop", narrowing=narrow, expires_at=AT + timedelta(days=90))
    await store.create_token(TOKEN)
    await store.create_token(replace(second, created_at=AT + timedelta(seconds=1)))
    with pytest.raises(TokenExistsError, match="ci"):
        await store.create_token(replace(TOKEN, id="3f00"))
    await store.note_token_use("2f00", AT + timedelta(hours=1))

    first, other = await store.list_tokens()
    assert first == TOKEN
    assert (other.narrowing, other.expires_at) == (narrow, AT + timedelta(days=90))
    assert other.last_used_at == AT + timedelta(hours=1)

    assert await store.revoke_token("1f00", AT, "uid:0 (root)")
    assert not await store.revoke_token("1f00", AT + timedelta(days=1), "somebody else")
    assert not await store.revoke_token("none", AT, "uid:0 (root)")
    revoked = (await store.list_tokens())[0]
    assert (revoked.revoked_at, revoked.revoked_by) == (AT, "uid:0 (root)")
    # Its name is free again.
    await store.create_token(replace(TOKEN, id="4f00", created_at=AT + timedelta(seconds=2)))
    assert [each.name for each in await store.list_tokens()] == ["ci", "laptop", "ci"]

    assert await store.forget_tokens(AT) == []
    assert await store.forget_tokens(AT + timedelta(days=1)) == ["1f00"]
    assert await store.forget_tokens(AT + timedelta(days=91)) == ["2f00"]
    assert [each.id for each in await store.list_tokens()] == ["4f00"]
