"""Being woken at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class AlarmClock(Protocol):
    """Rings once, at the time that was set last, in the event loop. It may ring late, and for nothing: whoever is woken
    looks at the time itself.
    """

    def open(self, ring: Callable[[], None]) -> None: ...

    def set(self, at: datetime | None) -> None:
        """In place of what was set before; None: not at all."""
        ...

    def close(self) -> None: ...
