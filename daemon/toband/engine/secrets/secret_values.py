"""Values of secrets for steps: checks the grants, decrypts, and asks external stores. Also seals confidential texts."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

import structlog

from toban.limits import MAX_SECRET_BYTES, MIN_SECRET_CHARS
from toband.engine.secrets.key_ring import KeyRing, LoadedKeys, secret_place
from toband.engine.secrets.secret_cipher import decrypt, encrypt, keyed_digest
from toband.ports import (
    Clock,
    ProviderError,
    SealError,
    SecretError,
    SecretKeyError,
    SecretNotFoundError,
    SecretNotGrantedError,
    SecretProvider,
    SecretStore,
    SecretUnavailableError,
    StoredSecret,
    StoreError,
)

USE_NOTED_EVERY = timedelta(minutes=1)
NAMES_MOST = 10_000
"""Names whose last note is kept in memory."""
_NUMBER_BYTES = 4

log = structlog.get_logger()


def problem_of_value(value: str) -> str:
    """Why a text cannot be a secret; empty if it can."""
    if len(value) < MIN_SECRET_CHARS:
        return (
            f"the value has fewer than {MIN_SECRET_CHARS} characters: a text as short as that cannot be masked in logs"
        )
    if len(value.encode(errors="replace")) > MAX_SECRET_BYTES:
        return (
            f"the value has more than {MAX_SECRET_BYTES // 1024} KiB: store it elsewhere, and make its key the secret"
        )
    if "\0" in value:
        return "the value contains a NUL character, which no environment variable can have: encode it, as in base64"
    return ""


def covered(workflow: str, patterns: Collection[str]) -> bool:
    """Whether grants with these patterns cover a workflow."""
    return any(fnmatchcase(workflow, pattern) for pattern in patterns)


class SecretValues:
    """`toband.ports.SecretSource`. Keeps no value longer than a call."""

    def __init__(
        self, *, store: SecretStore, keys: KeyRing, providers: Mapping[str, SecretProvider], clock: Clock
    ) -> None:
        self._store = store
        self._keys = keys
        self._providers = providers
        self._clock = clock
        self._noted: dict[str, datetime] = {}

    async def reveal(self, workflow: str, names: Collection[str]) -> Mapping[str, str]:
        stored = await self._stored(workflow, names)
        values = {name: await self._value(stored[name]) for name in sorted(names)}
        await self._note_use(values, workflow)
        return values

    async def known(self, names: Collection[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for secret in await self._store.get_secrets(names):
            # Deleted since it was read: it can be in nothing that comes now.
            with contextlib.suppress(SecretNotFoundError):
                found[secret.name] = await self._value(secret)
        return found

    async def check(self, workflow: str, names: Collection[str]) -> Sequence[SecretError]:
        stored = {secret.name: secret for secret in await self._store.get_secrets(names)}
        return _problems(workflow, names, stored)

    async def seal(self, text: str, place: str) -> bytes:
        try:
            keys = await self._keys.current()
        except SecretKeyError as error:
            raise SealError("encrypt", place, str(error)) from None
        number = keys.newest
        data = encrypt(keys.seal_keys[number], text.encode(), _sealed_place(place))
        return number.to_bytes(_NUMBER_BYTES) + data

    async def unseal(self, data: bytes, place: str) -> str:
        try:
            keys = await self._keys.existing()
        except SecretKeyError as error:
            raise SealError("decrypt", place, str(error)) from None
        number = int.from_bytes(data[:_NUMBER_BYTES])
        if number not in keys.seal_keys:
            raise SealError("decrypt", place, "it was encrypted with a key that this daemon never had")
        try:
            text = decrypt(keys.seal_keys[number], data[_NUMBER_BYTES:], _sealed_place(place))
        except SealError as error:
            raise SealError("decrypt", place, error.reason) from None
        return text.decode()

    async def keyed_digest(self, text: str) -> str:
        try:
            keys = await self._keys.current()
        except SecretKeyError as error:
            raise SealError("compare", "the request", str(error)) from None
        return keyed_digest(keys.first, text)

    async def _stored(self, workflow: str, names: Collection[str]) -> Mapping[str, StoredSecret]:
        try:
            stored = {secret.name: secret for secret in await self._store.get_secrets(names)}
        except StoreError as error:
            raise SecretUnavailableError(min(names), str(error)) from None
        for problem in _problems(workflow, names, stored):
            raise problem
        return stored

    async def _value(self, secret: StoredSecret) -> str:
        if secret.data is None:
            return await self._provided(secret)
        try:
            return self._decrypted(await self._keys.existing(), secret)
        except SecretKeyError as error:
            raise SecretUnavailableError(secret.name, str(error)) from None
        except SealError:
            pass
        # It may have been replaced, or encrypted with a new key, since it was read.
        async with self._keys.changing:
            try:
                (again,) = await self._store.get_secrets([secret.name])
                return self._decrypted(await self._keys.existing(), again)
            except ValueError:
                raise SecretNotFoundError(secret.name) from None
            except SealError as error:
                raise SecretUnavailableError(secret.name, error.reason) from None
            except (SecretKeyError, StoreError) as error:
                raise SecretUnavailableError(secret.name, str(error)) from None

    def _decrypted(self, keys: LoadedKeys, secret: StoredSecret) -> str:
        assert secret.data is not None
        place = secret_place(secret.name, secret.version)
        return decrypt(keys.secrets_key.key, secret.data, place).decode()

    async def _provided(self, secret: StoredSecret) -> str:
        provider = self._providers.get(secret.provider)
        if provider is None:
            reason = f"its provider {secret.provider!r} is not in the daemon's configuration"
            raise SecretUnavailableError(secret.name, reason)
        try:
            value = await provider.fetch(secret.name, secret.provider_key or secret.name)
        except ProviderError as error:
            raise SecretUnavailableError(secret.name, str(error)) from None
        if reason := problem_of_value(value):
            raise SecretUnavailableError(secret.name, f"provider {secret.provider}: {reason}")
        return value

    async def _note_use(self, names: Collection[str], workflow: str) -> None:
        now = self._clock.now()
        for name in names:
            last = self._noted.get(name)
            if last is not None and last <= now < last + USE_NOTED_EVERY:
                continue
            if len(self._noted) >= NAMES_MOST:
                self._noted.clear()
            self._noted[name] = now
            try:
                await self._store.note_secret_use(name, now, workflow)
            except StoreError as error:
                # The step does not need this note.
                log.warning("cannot note the use of a secret", action="secret_use_lost", secret=name, error=str(error))


def _problems(workflow: str, names: Collection[str], stored: Mapping[str, StoredSecret]) -> list[SecretError]:
    problems: list[SecretError] = []
    for name in sorted(names):
        if name not in stored:
            problems.append(SecretNotFoundError(name))
        elif not covered(workflow, stored[name].workflows):
            problems.append(SecretNotGrantedError(name, workflow))
    return problems


def _sealed_place(place: str) -> str:
    return f"sealed {place}"
