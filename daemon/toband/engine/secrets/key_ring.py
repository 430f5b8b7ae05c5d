"""The key ring: the secrets key, and the keys of sealed texts that it encrypts.

The secrets key is in a file and encrypts the values of secrets; the database knows its id. Sealed texts, such as secret
parameters of runs, are many, so they have keys of their own, which are in the database, encrypted by the secrets key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from toband import failpoints
from toband.engine.secrets.secret_cipher import decrypt, encrypt, new_key
from toband.ports import (
    Clock,
    Conditions,
    HealthStatus,
    SealError,
    SecretKey,
    SecretKeyError,
    SecretKeyFile,
    SecretStore,
    StoredSealKey,
    StoredSecret,
    StoreError,
)

CONDITION = "secrets"
NAMED = 10
"""Secrets that the health names."""
CHECK_EVERY = 60.0
"""Seconds between looks at the key file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKeys:
    """The keys in use. `seal_keys` are by number; the last one seals, all of them unseal."""

    secrets_key: SecretKey
    seal_keys: Mapping[int, bytes] = field(repr=False)

    @property
    def newest(self) -> int:
        return max(self.seal_keys)

    @property
    def first(self) -> bytes:
        """The seal key that no rotation replaces."""
        return self.seal_keys[min(self.seal_keys)]


def secret_place(name: str, version: int) -> str:
    """The place that the encrypted value of a secret belongs to."""
    return f"secret {name} version {version}"


class KeyRing:
    def __init__(self, *, store: SecretStore, file: SecretKeyFile, clock: Clock, conditions: Conditions) -> None:
        self._store = store
        self._file = file
        self._clock = clock
        self._conditions = conditions
        self._loaded: LoadedKeys | None = None
        self._loading = asyncio.Lock()
        self.changing = asyncio.Lock()
        """Held while secrets or keys are written."""

    async def watch(self) -> None:
        """Ends a rotation that a crash interrupted, and reports a key file that is lost, now or later."""
        while True:
            with contextlib.suppress(SecretKeyError):
                if self._loaded is None:
                    async with self.changing:
                        await self._load()
                        await self._drop_old_keys()
                else:
                    await self._check_file(self._loaded.secrets_key)
            await asyncio.sleep(CHECK_EVERY)

    async def _check_file(self, used: SecretKey) -> None:
        try:
            kept = used in await asyncio.to_thread(self._file.read)
        except SecretKeyError:
            kept = False
        if kept:
            self._conditions.well(CONDITION)
            return
        reason = (
            f"{self._file.place} has no longer the key of the secrets, which the next start needs: restore the file, "
            "or write a new key with 'toban secrets rotate-key'"
        )
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, reason)

    async def current(self) -> LoadedKeys:
        """The keys in use; makes the first ones. Raises SecretKeyError."""
        if (loaded := self._loaded) is None:
            async with self._loading:
                loaded = self._ready() or await self._load() or await self._create()
        return loaded

    def _ready(self) -> LoadedKeys | None:
        """The keys, if another call has loaded them meanwhile."""
        return self._loaded

    async def existing(self) -> LoadedKeys:
        """As `current`, but makes none."""
        loaded = self._loaded or await self._load()
        if loaded is None:
            raise SecretKeyError("no secret was ever stored")
        return loaded

    async def rotate(self) -> tuple[LoadedKeys, int]:
        """Encrypts everything with another key; returns the new keys and the number of secrets.

        A crash at any point leaves a file with the key of the database. Raises SecretKeyError, SealError, StoreError.
        """
        async with self.changing:
            loaded = await self.existing()
            old, new = loaded.secrets_key, await self._next(loaded.secrets_key)
            failpoints.hit("secrets.key_added")
            secrets = [_encrypted_again(each, old, new) for each in await self._store.list_secrets() if each.data]
            seal_keys = {**loaded.seal_keys, loaded.newest + 1: new_key()}
            stored = [self._stored(number, key, new) for number, key in seal_keys.items()]
            if not await self._store.replace_encryption(old.id, stored, secrets):
                raise SecretKeyError("cannot rotate the secrets key: secrets changed meanwhile; try again")
            self._loaded = LoadedKeys(secrets_key=new, seal_keys=seal_keys)
            failpoints.hit("secrets.reencrypted")
            await self._drop_old_keys()
            failpoints.hit("secrets.key_dropped")
            return self._loaded, len(secrets)

    async def problem(self) -> str:
        """Why the values of secrets cannot be read; empty if they can, or if there are none."""
        try:
            _ = self._loaded or await self._load()
        except SecretKeyError as error:
            return str(error)
        return ""

    @property
    def place(self) -> str:
        return self._file.place

    async def _next(self, old: SecretKey) -> SecretKey:
        keys = await asyncio.to_thread(self._file.read)
        if keys and keys[0].id != old.id:
            return keys[0]  # put there by an administrator, or by a rotation that did not finish
        if not self._file.writable:
            raise SecretKeyError(
                f"cannot rotate the secrets key: the daemon does not change {self._file.place}; "
                "put a new key in front of the old one there, restart toband, and try again"
            )
        return await asyncio.to_thread(self._file.prepend, [old])

    async def _load(self) -> LoadedKeys | None:
        """None if no secret was ever stored. Raises SecretKeyError."""
        try:
            stored = await self._store.list_seal_keys()
            loaded = self._opened(stored, await asyncio.to_thread(self._file.read)) if stored else None
        except (SecretKeyError, StoreError) as error:
            reason = str(error)
            detail = f"steps cannot use {await self._named()}: {reason}"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)
            raise SecretKeyError(reason) from None
        self._loaded = loaded
        self._conditions.well(CONDITION)
        return loaded

    async def _named(self) -> str:
        """The secrets whose values are in the database."""
        with contextlib.suppress(StoreError):
            names = [secret.name for secret in await self._store.list_secrets() if secret.data is not None]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            if names:
                return f"secrets ({', '.join(names[:NAMED])}{more})"
        return "secrets"

    def _opened(self, stored: Sequence[StoredSealKey], keys: Sequence[SecretKey]) -> LoadedKeys:
        wanted = stored[0].key_id
        found = next((key for key in keys if key.id == wanted), None)
        if found is None:
            has = f"has the key {', '.join(key.id for key in keys)}" if keys else "does not exist"
            raise SecretKeyError(
                f"{self._file.place} {has}, but secrets are encrypted with the key {wanted}: restore that file"
            )
        try:
            seal_keys = {key.number: decrypt(found.key, key.data, _seal_key_place(key.number)) for key in stored}
        except SealError as error:
            raise SecretKeyError(str(error)) from None
        return LoadedKeys(secrets_key=found, seal_keys=seal_keys)

    async def _create(self) -> LoadedKeys:
        keys = await asyncio.to_thread(self._file.read)
        if not keys and not self._file.writable:
            raise SecretKeyError(f"there is no key in {self._file.place}")
        key = keys[0] if keys else await asyncio.to_thread(self._file.create)
        failpoints.hit("secrets.key_created")
        await self._store.add_seal_key(self._stored(1, new_key(), key))
        # Another call may have been faster: both use what is stored.
        loaded = await self._load()
        if loaded is None:
            raise SecretKeyError("the database does not keep the key of secrets")
        return loaded

    def _stored(self, number: int, key: bytes, by: SecretKey) -> StoredSealKey:
        data = encrypt(by.key, key, _seal_key_place(number))
        return StoredSealKey(number=number, key_id=by.id, data=data, created_at=self._clock.now())

    async def _drop_old_keys(self) -> None:
        """Leaves only the key in use in the file. It also ends a rotation that a crash interrupted after its commit."""
        if self._loaded is None or not self._file.writable:
            return
        used = self._loaded.secrets_key
        try:
            keys = await asyncio.to_thread(self._file.read)
            # A key before the one in use is for the next rotation.
            kept = keys[: [key.id for key in keys].index(used.id) + 1]
            if len(kept) < len(keys):
                await asyncio.to_thread(self._file.keep, kept)
        except SecretKeyError as error:
            reason = f"an old secrets key could not be removed: {error}"
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, reason)


def _seal_key_place(number: int) -> str:
    return f"seal key {number}"


def _encrypted_again(secret: StoredSecret, old: SecretKey, new: SecretKey) -> StoredSecret:
    assert secret.data is not None
    place = secret_place(secret.name, secret.version)
    return replace(secret, data=encrypt(new.key, decrypt(old.key, secret.data, place), place))
