"""Backoff: growing pauses between attempts at something that fails for a while.

Standard library only, and nothing that is slow to import: shims use it too.
"""

from __future__ import annotations

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0


class Backoff:
    """Pauses in seconds that double, from `first` up to `longest`."""

    __slots__ = ("_first", "_longest", "_next")

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = self._next = first
        self._longest = longest

    def pause(self) -> float:
        """The pause before the next attempt."""
        pause = self._next
        self._next = min(self._longest, pause * 2)
        return pause

    def reset(self) -> None:
        """After a success: the next pause is the first again."""
        self._next = self._first
