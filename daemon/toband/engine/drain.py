"""Drain mode: while it is on, schedules and events start no runs."""

from __future__ import annotations

from collections.abc import Callable


class DrainMode:
    """Belongs to the event loop. A restart of the daemon ends it."""

    def __init__(self) -> None:
        self.active = False
        self._after: list[Callable[[], None]] = []

    def after(self, call: Callable[[], None]) -> None:
        """Calls it each time the mode ends."""
        self._after.append(call)

    def begin(self) -> None:
        self.active = True

    def end(self) -> None:
        self.active = False
        for call in self._after:
            call()
