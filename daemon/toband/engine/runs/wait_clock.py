"""The clock of steps that wait until a time of the wall clock: one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from toband.ports import Clock

LOOK_EVERY: Final = 30.0
"""Seconds after which the wall clock is read again: it may be set, and the machine may sleep."""

Key = tuple[str, str, int]
"""A run, its step, and the attempt of that step."""


class WaitClock:
    """Belongs to the event loop. A wait that ended otherwise stays here until its time, and is ignored then."""

    def __init__(self, clock: Clock, ring: Callable[[Key], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._waiting: list[tuple[datetime, Key]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, due: datetime, key: Key) -> None:
        heappush(self._waiting, (due, key))
        if self._waiting[0] == (due, key):
            self._set()

    def close(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = (self._waiting[0][0] - self._clock.now()).total_seconds()
        self._timer = asyncio.get_running_loop().call_later(min(LOOK_EVERY, max(0.0, left)), self._passed)

    def _passed(self) -> None:
        self._timer = None
        now = self._clock.now()
        while self._waiting and self._waiting[0][0] <= now:
            _, key = heappop(self._waiting)
            self._ring(key)
        if self._waiting:
            self._set()
