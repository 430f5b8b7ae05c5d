"""Administration of secrets: sets and deletes values, and grants them to workflows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from toban.definition.scalars.names import check_secret_name
from toband.engine.secrets.key_ring import KeyRing, secret_place
from toband.engine.secrets.secret_cipher import encrypt
from toband.engine.secrets.secret_values import problem_of_value
from toband.ports import (
    Clock,
    ConflictError,
    SecretNotFoundError,
    SecretProvider,
    SecretStore,
    StoredSecret,
)

MOST_PATTERNS = 1000
_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,128}")


class InvalidSecretError(Exception):
    """A request for a secret that cannot be. `field` is the field of the request."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason


class SecretAdmin:
    def __init__(
        self, *, store: SecretStore, keys: KeyRing, providers: Mapping[str, SecretProvider], clock: Clock
    ) -> None:
        self._store = store
        self._keys = keys
        self._providers = providers
        self._clock = clock

    async def get(self, name: str) -> StoredSecret:
        """Raises SecretNotFoundError."""
        for secret in await self._store.get_secrets([name]):
            return secret
        raise SecretNotFoundError(name)

    async def list(self) -> Sequence[StoredSecret]:
        return await self._store.list_secrets()

    async def set_value(self, name: str, value: str, workflows: Collection[str], *, by: str) -> StoredSecret:
        """Raises InvalidSecretError, SecretKeyError."""
        _check(name, workflows)
        if reason := problem_of_value(value):
            raise InvalidSecretError("value", reason)
        async with self._keys.changing:
            keys = await self._keys.current()
            version = await self._version(name)
            data = encrypt(keys.secrets_key.key, value.encode(), secret_place(name, version + 1))
            return await self._save(name, version, workflows, by, data=data)

    async def set_provided(
        self, name: str, provider: str, key: str, workflows: Collection[str], *, by: str
    ) -> StoredSecret:
        """Raises InvalidSecretError."""
        _check(name, workflows)
        found = self._providers.get(provider)
        if found is None:
            known = ", ".join(sorted(self._providers)) or "none"
            raise InvalidSecretError("provided.provider", f"there is no provider {provider!r} (known: {known})")
        try:
            found.check_key(key or name)
        except ValueError as error:
            raise InvalidSecretError("provided.key", str(error)) from None
        async with self._keys.changing:
            version = await self._version(name)
            return await self._save(name, version, workflows, by, provider=provider, provider_key=key)

    async def delete(self, name: str) -> None:
        """Raises SecretNotFoundError."""
        async with self._keys.changing:
            if not await self._store.delete_secret(name):
                raise SecretNotFoundError(name)

    async def grant(self, name: str, workflows: Collection[str], *, by: str) -> StoredSecret:
        """Raises SecretNotFoundError, InvalidSecretError."""
        _check_patterns(workflows, needed=True)
        return await self._change_grants(name, lambda had: (*had, *workflows), by)

    async def revoke(self, name: str, workflows: Collection[str], *, by: str) -> StoredSecret:
        """Raises SecretNotFoundError, InvalidSecretError."""
        _check_patterns(workflows, needed=True)
        return await self._change_grants(name, lambda had: (each for each in had if each not in workflows), by)

    async def _change_grants(
        self, name: str, change: Callable[[tuple[str, ...]], Iterable[str]], by: str
    ) -> StoredSecret:
        async with self._keys.changing:
            secret = await self.get(name)
            workflows = tuple(sorted(set(change(secret.workflows))))
            if workflows == secret.workflows:
                return secret
            _check_patterns(workflows)
            changed = replace(secret, workflows=workflows, updated_at=self._clock.now(), updated_by=by)
            if not await self._store.save_secret(changed, secret.version):
                raise ConflictError(name)
            return changed

    async def _version(self, name: str) -> int:
        stored = await self._store.get_secrets([name])
        return stored[0].version if stored else 0

    async def _save(
        self,
        name: str,
        before: int,
        workflows: Collection[str],
        by: str,
        *,
        data: bytes | None = None,
        provider: str = "",
        provider_key: str = "",
    ) -> StoredSecret:
        now = self._clock.now()
        had = (await self.get(name)).workflows if before else ()
        secret = StoredSecret(
            name=name,
            version=before + 1,
            data=data,
            provider=provider,
            provider_key=provider_key,
            workflows=tuple(sorted({*had, *workflows})),
            created_at=now,
            created_by=by,
            updated_at=now,
            updated_by=by,
        )
        _check_patterns(secret.workflows)
        if not await self._store.save_secret(secret, before):
            raise ConflictError(name)
        return await self.get(name)


def _check(name: str, workflows: Collection[str]) -> None:
    try:
        check_secret_name(name)
    except ValueError as error:
        raise InvalidSecretError("name", str(error)) from None
    _check_patterns(workflows)


def _check_patterns(workflows: Collection[str], *, needed: bool = False) -> None:
    if needed and not workflows:
        raise InvalidSecretError("workflows", "give at least one name or pattern of workflows, such as 'nightly-*'")
    if len(workflows) > MOST_PATTERNS:
        raise InvalidSecretError(
            "workflows", f"found {len(workflows):,} patterns, at most {MOST_PATTERNS:,} are allowed"
        )
    for pattern in workflows:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidSecretError(
                "workflows", f"expected a name or a pattern such as 'nightly-*', found {pattern!r:.80}"
            )
