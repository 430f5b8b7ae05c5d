"""The order of locks is alphabetical: a holder may only wait for later ones, so that no deadlock is possible."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LockConflict:
    """A lock that would be waited for while a later one is held."""

    wanted: str
    held: str


def lock_conflict(held: Collection[str], wanted: Collection[str]) -> LockConflict | None:
    """The first of the locks that may not be taken now. A lock that is held already is not taken again."""
    new = set(wanted) - set(held)
    if not held or not new or min(new) > max(held):
        return None
    return LockConflict(wanted=min(new), held=max(held))
