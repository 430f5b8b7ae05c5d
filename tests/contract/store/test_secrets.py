"""Secrets in the store: versions, and the replacement of all encrypted data in one transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from toband.ports import Store, StoredSealKey, StoredSecret

AT = datetime(2026, 11, 18, 9, 30, 0, 123456, tzinfo=UTC)
SECRET = StoredSecret(
    name="db",
    version=1,
    data=b"\x01\x00encrypted",
    workflows=("nightly-*",),
    created_at=AT,
    created_by="uid:0 (root)",
    updated_at=AT,
    updated_by="uid:0 (root)",
)
KEY = StoredSealKey(number=1, key_id="k1", data=b"wrapped", created_at=AT)


async def test_secrets_are_stored_replaced_and_deleted(store: Store) -> None:
    assert await store.save_secret(SECRET, 0)
    assert not await store.save_secret(SECRET, 0)
    other = replace(SECRET, name="a", data=None, provider="vault", provider_key="kv/数", workflows=())
    assert await store.save_secret(other, 0)
    assert await store.list_secrets() == [other, SECRET]

    later = AT + timedelta(hours=1)
    second = replace(SECRET, version=2, data=b"\x01new", updated_at=later, updated_by="token:ci")
    assert not await store.save_secret(second, 2)
    assert await store.save_secret(replace(second, created_at=later, created_by="token:ci"), 1)
    await store.note_secret_use("db", later, "nightly-1")
    (read,) = await store.get_secrets(["db", "none"])
    assert read == replace(second, last_used_at=later, last_used_by="nightly-1")

    assert await store.delete_secret("db")
    assert not await store.delete_secret("db")
    assert await store.get_secrets(["db"]) == []


async def test_encryption_is_replaced_only_as_a_whole(store: Store) -> None:
    assert await store.add_seal_key(KEY)
    assert not await store.add_seal_key(replace(KEY, data=b"other"))
    await store.save_secret(SECRET, 0)
    await store.save_secret(replace(SECRET, name="x", data=None, provider="vault"), 0)
    new_keys = [replace(KEY, key_id="k2", data=b"again"), replace(KEY, number=2, key_id="k2")]
    again = replace(SECRET, data=b"\x01again")

    assert not await store.replace_encryption("k0", new_keys, [again])
    assert not await store.replace_encryption("k1", new_keys, [])
    assert not await store.replace_encryption("k1", new_keys, [replace(again, version=2)])
    assert await store.list_seal_keys() == [KEY]
    assert (await store.get_secrets(["db"]))[0].data == SECRET.data

    assert await store.replace_encryption("k1", new_keys, [again])
    assert await store.list_seal_keys() == new_keys
    assert (await store.get_secrets(["db"]))[0].data == again.data
