"""Locks that stay held after attempts whose processes may still live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toband.domain.lock_rules import LockLeftover


class LockLeftoverStore(Protocol):
    """They are stored with the end of their attempts, see `RunChange`, and outlast the rows of the runs."""

    async def list_lock_leftovers(self) -> Sequence[LockLeftover]: ...

    async def delete_lock_leftovers(self, leftovers: Sequence[LockLeftover]) -> None:
        """Those that are stored: repeating it is harmless."""
        ...
