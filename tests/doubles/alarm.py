"""An alarm clock that rings when the test says so. Implements `ports.AlarmClock`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime


class Alarm:
    """`at` has all the times for which it was set; `ring` rings."""

    def __init__(self) -> None:
        self.at: list[datetime | None] = []
        self.ring: Callable[[], None] = lambda: None

    def open(self, ring: Callable[[], None]) -> None:
        self.ring = ring

    def set(self, at: datetime | None) -> None:
        self.at.append(at)

    def close(self) -> None:
        return None
