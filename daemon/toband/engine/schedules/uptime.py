"""Since when the daemon has been there: not down, stopped or asleep, with a clock that nobody moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from toband.domain.misfire import ON_TIME
from toband.ports import Clock

BEAT = 1.0
"""Seconds between two looks at the clock."""


class Uptime:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, noticed: Callable[[], None]) -> None:
        """`noticed` is called when time has jumped."""
        self._clock = clock
        self._noticed = noticed
        self._last: datetime | None = None
        self.since = clock.now()
        self.jumps = 0
        """Counts the times at which it was not there, or the clock was set back."""

    async def watch(self) -> None:
        """Never returns."""
        while True:
            before = self.jumps
            self.look()
            if self.jumps != before:
                self._noticed()
            await asyncio.sleep(BEAT)

    def look(self) -> datetime:
        """What time it is."""
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
        """Nothing can be decided now: whoever looks next was not there before."""
        self._last = None
