"""Secrets in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from toband.ports import (
    SealError,
    SecretError,
    SecretNotFoundError,
    SecretNotGrantedError,
    SecretUnavailableError,
)


class SecretsInMemory:
    """`granted` are the secrets that a workflow may use, by its name; by default each may use all.

    `broken` are reasons why values cannot be read, by name. `revealed` are the calls.
    """

    def __init__(self, values: Mapping[str, str], granted: Mapping[str, Collection[str]] | None = None) -> None:
        self.values = dict(values)
        self.granted = granted
        self.broken: dict[str, str] = {}
        self.revealed: list[tuple[str, tuple[str, ...]]] = []

    async def reveal(self, workflow: str, names: Collection[str]) -> Mapping[str, str]:
        self.revealed.append((workflow, tuple(sorted(names))))
        for error in await self.check(workflow, names):
            raise error
        for name in sorted(names):
            if name in self.broken:
                raise SecretUnavailableError(name, self.broken[name])
        return {name: self.values[name] for name in names}

    async def known(self, names: Collection[str]) -> Mapping[str, str]:
        for name in sorted(names):
            if name in self.broken:
                raise SecretUnavailableError(name, self.broken[name])
        return {name: self.values[name] for name in names if name in self.values}

    async def check(self, workflow: str, names: Collection[str]) -> Sequence[SecretError]:
        errors: list[SecretError] = []
        for name in sorted(names):
            if name not in self.values:
                errors.append(SecretNotFoundError(name))
            elif self.granted is not None and name not in self.granted.get(workflow, ()):
                errors.append(SecretNotGrantedError(name, workflow))
        return errors

    async def seal(self, text: str, place: str) -> bytes:
        return _flip(f"{place}\0{text}".encode())

    async def unseal(self, data: bytes, place: str) -> str:
        sealed_for, _, text = _flip(data).decode().partition("\0")
        if sealed_for != place:
            raise SealError("open", place, "it was sealed for another place")
        return text

    async def keyed_digest(self, text: str) -> str:
        return hashlib.sha256(f"keyed {text}".encode()).hexdigest()


def _flip(data: bytes) -> bytes:
    """Not readable as text, so that a search for a value does not find it."""
    return bytes(byte ^ 0x5A for byte in data)
