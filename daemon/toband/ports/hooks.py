"""Hooks, as the engine stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toband.domain.hook_model import Hook


class HookExistsError(Exception):
    """A hook has that name, which is the argument."""


class HookStore(Protocol):
    async def list_hooks(self) -> Sequence[Hook]:
        """All of them, by name."""
        ...

    async def get_hook(self, name: str) -> Hook | None: ...

    async def create_hook(self, hook: Hook) -> None:
        """Raises HookExistsError."""
        ...

    async def delete_hook(self, name: str) -> bool:
        """False if there is none."""
        ...
