"""Tracks since when the daemon has been running without a break: not down, stopped or asleep, and its clock not set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from toband.domain.misfire import ON_TIME
from toband.ports import Clock

BEAT = 1.0
"""Seconds between two readings of the clock."""


class Uptime:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, noticed: Callable[[], None]) -> None:
        """`noticed` is called when time has jumped."""
        self._clock = clock
        self._noticed = noticed
        self._last: datetime | None = None
        self.since = clock.now()
        self.jumps = 0
        """Counts the breaks, and the times when the clock was set back."""

    async def watch(self) -> None:
        """Never returns."""
        while True:
            before = self.jumps
            self.look()
            if self.jumps != before:
                self._noticed()
            await asyncio.sleep(BEAT)

    def look(self) -> datetime:
        """Returns the time, and notices breaks."""
        now = self._clock.now()
        if self._last is None or now - self._last > timedelta(seconds=ON_TIME):
            self.since = now
            self.jumps += 1
        elif now < self._last - timedelta(seconds=BEAT):
            self.since = min(self.since, now)
            self.jumps += 1
        self._last = now
        return now

    def leave(self) -> None:
        """Nothing can be decided now: the next reading counts as the start of the uptime."""
        self._last = None
