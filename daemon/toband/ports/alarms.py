"""An alarm clock for the event loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class AlarmClock(Protocol):
    """Rings once, at the time that was set last, in the event loop.

    It may ring late, or without need: the callback must check the time itself.
    """

    def open(self, ring: Callable[[], None]) -> None: ...

    def set(self, at: datetime | None) -> None:
        """Replaces the alarm; None removes it."""
        ...

    def close(self) -> None: ...
