"""Whether the clock may decide what is old: one that was set to a wrong year must not remove everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from toband.ports import Clock

JUMP = timedelta(days=2)
"""A clock that moves further than the time that passed may be wrong."""
TRUSTED_AFTER = timedelta(days=1)
"""Time for which it must go on without another jump to be believed."""

log = structlog.get_logger()


class ClockTrust:
    """Belongs to the event loop. Sleep of the machine counts as a jump: removing can wait for a day."""

    def __init__(self, clock: Clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._last: datetime | None = None
        self._last_at = 0.0
        self._doubted_at: float | None = None

    def look(self, newest: datetime | None) -> bool:
        """Whether the clock is to be believed. `newest` is when the newest run was made, if there is one.

        The first look compares with that: the clock may have jumped while no daemon was running.
        """
        now, at = self._clock.now(), self._monotonic()
        if self._last is None:
            jump = timedelta(0) if newest is None else max(timedelta(0), now - newest)
        else:
            jump = now - self._last - timedelta(seconds=at - self._last_at)
        self._last, self._last_at = now, at
        if abs(jump) > JUMP:
            self._doubted_at = at
            log.warning(
                "the clock has moved by days: nothing is removed by its age for a day",
                action="clock_doubted",
                days=round(jump / timedelta(days=1), 1),
            )
        elif self._doubted_at is not None and at - self._doubted_at >= TRUSTED_AFTER.total_seconds():
            self._doubted_at = None
        return self._doubted_at is None
