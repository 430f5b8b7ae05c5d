"""Drain mode: while it is on, schedules and events start no runs."""

from __future__ import annotations

from collections.abc import Callable


class DrainMode:
    """Belongs to the event loop. A restart of the daemon ends it, unless it holds.

    A daemon that was restored from a backup holds: it also begins no run and starts no step, until the mode ends.
    """

    def __init__(self, *, holds: bool = False, note_end: Callable[[], None] = lambda: None) -> None:
        """`note_end` stores durably that it holds no longer. It may raise OSError."""
        self.active = holds
        self.holds = holds
        self._note_end = note_end
        self._after: list[Callable[[], None]] = []

    def after(self, call: Callable[[], None]) -> None:
        """Calls it each time the mode ends."""
        self._after.append(call)

    def begin(self) -> None:
        self.active = True

    def end(self) -> None:
        """Raises OSError; nothing has changed then."""
        if self.holds:
            self._note_end()
        self.active = self.holds = False
        for call in self._after:
            call()
