"""Hooks in the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from toband.domain.hook_model import Hook, HookForm
from toband.ports import HookExistsError, Store

HOOK = Hook(
    name="deploy",
    workflow="deploy-数",
    event_type="HOOK_DELIVERED",
    form=HookForm.GITHUB,
    sealed=b"\x00sealed",
    params={"ref": "body.ref"},
    conditions=("body.ref=v1", 'headers["x-a"]=b'),
    created_at=datetime(2026, 11, 18, 9, 30, 0, 123456, tzinfo=UTC),
    created_by="uid:0 (root)",
)


async def test_hooks_are_created_once_and_deleted(store: Store) -> None:
    other = replace(HOOK, name="a", workflow="", event_type="PAID", form=HookForm.HMAC, secret="key", sealed=None)
    await store.create_hook(HOOK)
    await store.create_hook(other)
    with pytest.raises(HookExistsError):
        await store.create_hook(replace(other, name="deploy"))
    assert await store.list_hooks() == [other, HOOK]
    assert await store.get_hook("deploy") == HOOK
    assert await store.get_hook("Deploy") is None
    assert await store.delete_hook("deploy")
    assert not await store.delete_hook("deploy")
    assert await store.list_hooks() == [other]
