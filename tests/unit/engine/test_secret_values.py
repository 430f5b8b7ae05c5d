"""Secrets: what is encrypted opens only where it belongs, and only with its key."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.clock import Clock
from doubles.conditions import Conditions
from toband import failpoints
from toband.engine.secrets.key_ring import CONDITION, KeyRing
from toband.engine.secrets.secret_admin import InvalidSecretError, SecretAdmin
from toband.engine.secrets.secret_cipher import decrypt, encrypt, new_key
from toband.engine.secrets.secret_values import SecretValues, covered
from toband.ports import (
    ProviderError,
    SealError,
    SecretKeyError,
    SecretNotFoundError,
    SecretNotGrantedError,
    SecretUnavailableError,
)
from toband.secret_backends.key_file import KeyFile, find_key_file
from toband.store import SqlStore

VALUE = "correct horse battery"
texts = st.text(max_size=200)


@given(
    data=st.binary(max_size=300), place=texts, other=texts, position=st.integers(min_value=0), flip=st.integers(1, 255)
)
def test_encrypted_data_opens_only_unchanged_for_its_place_and_key(
    data: bytes, place: str, other: str, position: int, flip: int
) -> None:
    key = new_key()
    sealed = encrypt(key, data, place)
    assert decrypt(key, sealed, place) == data
    changed = bytearray(sealed)
    changed[position % len(sealed)] ^= flip
    for with_key, damaged in ((key, bytes(changed)), (key, sealed[: position % len(sealed)]), (new_key(), sealed)):
        with pytest.raises(SealError):
            decrypt(with_key, damaged, place)
    if other != place:
        with pytest.raises(SealError):
            decrypt(key, sealed, other)


@given(name=st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True))
def test_grants_cover_names_and_patterns(name: str) -> None:
    assert covered(name, [name])
    assert covered(name, ["x", f"{name}*"])
    assert covered(name, ["*"])
    assert not covered(name, [])
    assert not covered(name, [f"{name}x", f"x{name}*"])
    assert not covered(name, [name.upper()])


class Vault:
    """A provider of values by key."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def check_key(self, key: str) -> None:
        if key == "bad":
            raise ValueError("a bad key")

    async def fetch(self, name: str, key: str) -> str:
        if key not in self.values:
            raise ProviderError("no such key")
        return self.values[key]


class Parts:
    """Secrets over a real database and a real key file, as after a start of the daemon."""

    def __init__(self, store: SqlStore, file: KeyFile) -> None:
        clock, self.vault, self.conditions = Clock(), Vault(), Conditions()
        self.ring = KeyRing(store=store, file=file, clock=clock, conditions=self.conditions)
        providers = {"vault": self.vault}
        self.values = SecretValues(store=store, keys=self.ring, providers=providers, clock=clock)
        self.admin = SecretAdmin(store=store, keys=self.ring, providers=providers, clock=clock)


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    return find_key_file("", "", str(tmp_path))


def content(file: KeyFile) -> str | None:
    path = Path(file.place)
    return path.read_text() if path.exists() else None


def change(file: KeyFile, text: str | None, mode: int = 0o600) -> None:
    path = Path(file.place)
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_text(text)
        path.chmod(mode)


async def test_values_are_for_granted_workflows_only(store: SqlStore, key_file: KeyFile) -> None:
    parts = Parts(store, key_file)
    made = await parts.admin.set_value("db", VALUE, ["nightly-*"], by="root")
    assert (made.version, made.workflows) == (1, ("nightly-*",))
    assert made.data is not None
    assert VALUE.encode() not in made.data
    assert os.stat(key_file.place).st_mode & 0o777 == 0o600

    assert await Parts(store, key_file).values.reveal("nightly-1", ["db"]) == {"db": VALUE}
    with pytest.raises(SecretNotGrantedError, match="toban secrets grant db report"):
        await parts.values.reveal("report", ["db"])
    with pytest.raises(SecretNotFoundError, match="toban secrets set no"):
        await parts.values.reveal("nightly-1", ["db", "no"])
    await parts.admin.grant("db", ["report"], by="root")
    assert await parts.values.check("report", ["db"]) == []
    await parts.admin.revoke("db", ["report", "nightly-*"], by="root")
    assert [str(each) for each in await parts.values.check("nightly-1", ["db"])] != []
    second = await parts.admin.set_value("db", "another value", [], by="root")
    assert (second.version, second.workflows) == (2, ())


async def test_bad_secrets_are_refused(store: SqlStore, key_file: KeyFile) -> None:
    admin = Parts(store, key_file).admin
    for value, reason in (("12345", "fewer than 6"), ("x" * 65537, "64 KiB"), ("1234\x00567", "NUL")):
        with pytest.raises(InvalidSecretError, match=reason):
            await admin.set_value("db", value, [], by="root")
    for name in ("", "a-b", "1a", "a b", "x" * 65):
        with pytest.raises(InvalidSecretError, match="not a valid name"):
            await admin.set_value(name, VALUE, [], by="root")
    with pytest.raises(InvalidSecretError, match="pattern"):
        await admin.set_value("db", VALUE, ["a b"], by="root")
    with pytest.raises(InvalidSecretError, match="known: vault"):
        await admin.set_provided("db", "nowhere", "", [], by="root")
    with pytest.raises(InvalidSecretError, match="bad key"):
        await admin.set_provided("db", "vault", "bad", [], by="root")
    assert await admin.list() == []
    assert content(key_file) is None


async def test_provided_values_are_read_at_each_use(store: SqlStore, key_file: KeyFile) -> None:
    parts = Parts(store, key_file)
    await parts.admin.set_provided("db", "vault", "kv/db", ["*"], by="root")
    with pytest.raises(SecretUnavailableError, match="no such key"):
        await parts.values.reveal("w", ["db"])
    for value in ("first value", "second value"):
        parts.vault.values["kv/db"] = value
        assert await parts.values.reveal("w", ["db"]) == {"db": value}
    parts.vault.values["kv/db"] = "short"
    with pytest.raises(SecretUnavailableError, match="fewer than 6"):
        await parts.values.reveal("w", ["db"])


async def test_sealed_texts_belong_to_a_place_and_survive_rotation(store: SqlStore, key_file: KeyFile) -> None:
    parts = Parts(store, key_file)
    sealed = await parts.values.seal(VALUE, "run 1")
    digest = await parts.values.keyed_digest(VALUE)
    await parts.admin.set_value("db", VALUE, ["*"], by="root")
    old = content(key_file)
    _, count = await parts.ring.rotate()
    assert count == 1
    assert content(key_file) != old

    after = Parts(store, key_file)
    assert await after.values.unseal(sealed, "run 1") == VALUE
    assert await after.values.unseal(await after.values.seal(VALUE, "run 2"), "run 2") == VALUE
    assert await after.values.keyed_digest(VALUE) == digest != await after.values.keyed_digest(VALUE + "x")
    assert await after.values.reveal("w", ["db"]) == {"db": VALUE}
    with pytest.raises(SealError):
        await after.values.unseal(sealed, "run 2")


async def test_the_first_uses_at_once_share_one_key(store: SqlStore, key_file: KeyFile) -> None:
    parts = Parts(store, key_file)
    sealed = await asyncio.gather(*(parts.values.seal(VALUE, str(number)) for number in range(5)))
    await asyncio.gather(*(parts.admin.set_value(f"s{number}", VALUE, ["*"], by="root") for number in range(3)))
    after = Parts(store, key_file)
    assert [await after.values.unseal(each, str(number)) for number, each in enumerate(sealed)] == [VALUE] * 5
    assert len(await after.values.reveal("w", ["s0", "s1", "s2"])) == 3
    assert len(key_file.read()) == 1


@pytest.mark.parametrize(
    "point",
    ["secrets.key_written=EIO@1", "secrets.key_added=EIO", "secrets.reencrypted=EIO", "secrets.key_written=EIO@2"],
)
async def test_a_rotation_that_ends_anywhere_leaves_a_file_that_opens_the_database(
    store: SqlStore, key_file: KeyFile, point: str
) -> None:
    await Parts(store, key_file).admin.set_value("db", VALUE, ["*"], by="root")
    failpoints.arm(point)
    try:
        # Removing the old key is repeated later: its failure is a condition, not an error.
        with contextlib.suppress(OSError, SecretKeyError):
            await Parts(store, key_file).ring.rotate()
    finally:
        failpoints.arm("")
    after = Parts(store, key_file)
    assert await after.values.reveal("w", ["db"]) == {"db": VALUE}
    _, count = await after.ring.rotate()
    assert count == 1
    assert len(key_file.read()) == 1
    assert await Parts(store, key_file).values.reveal("w", ["db"]) == {"db": VALUE}


async def test_a_lost_or_wrong_key_is_named_and_never_replaced(
    store: SqlStore, key_file: KeyFile, tmp_path: Path
) -> None:
    parts = Parts(store, key_file)
    await parts.admin.set_value("db", VALUE, ["*"], by="root")
    kept = content(key_file)
    change(key_file, None)
    lost = Parts(store, key_file)
    with pytest.raises(SecretUnavailableError, match="does not exist, but secrets are encrypted with the key"):
        await lost.values.reveal("w", ["db"])
    with pytest.raises(SecretKeyError, match="restore that file"):
        await lost.admin.set_value("db", "another value", [], by="root")
    assert content(key_file) is None
    assert CONDITION in lost.conditions.now
    KeyFile(key_file.place).create()
    with pytest.raises(SecretKeyError, match="has the key"):
        await Parts(store, key_file).admin.set_value("x", VALUE, [], by="root")
    change(key_file, "not a key\n")
    with pytest.raises(SecretKeyError, match="expected 32 bytes"):
        await Parts(store, key_file).ring.current()
    change(key_file, kept, 0o644)
    with pytest.raises(SecretKeyError, match="chmod 600"):
        await Parts(store, key_file).ring.current()
    change(key_file, kept)
    # The same daemon recovers without a restart.
    assert await lost.values.reveal("w", ["db"]) == {"db": VALUE}
    assert CONDITION not in lost.conditions.now


async def test_a_key_that_the_daemon_may_not_write_is_rotated_by_hand(store: SqlStore, tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "toban-secrets-key"), writable=False)
    old, new = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=\n", "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=\n"
    change(file, old, 0o440)
    assert find_key_file("", str(tmp_path), "/nowhere").place == file.place
    parts = Parts(store, file)
    await parts.admin.set_value("db", VALUE, ["*"], by="root")
    with pytest.raises(SecretKeyError, match="put a new key in front"):
        await parts.ring.rotate()
    change(file, new + old)
    assert await Parts(store, file).values.reveal("w", ["db"]) == {"db": VALUE}
    await Parts(store, file).ring.rotate()
    change(file, new)
    assert await Parts(store, file).values.reveal("w", ["db"]) == {"db": VALUE}
