"""Whether the daemon drains: nothing is started by itself until somebody lets it go on."""

from __future__ import annotations

from collections.abc import Callable


class DrainMode:
    """Belongs to the event loop. It ends with the daemon."""

    def __init__(self) -> None:
        self.active = False
        self._after: list[Callable[[], None]] = []

    def after(self, call: Callable[[], None]) -> None:
        """Who wants to go on when it is over."""
        self._after.append(call)

    def begin(self) -> None:
        self.active = True

    def end(self) -> None:
        self.active = False
        for call in self._after:
            call()
