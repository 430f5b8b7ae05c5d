"""Schedules that are due and have to wait: those that catch up take turns, so that an outage is no storm."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

CATCH_UP_AT_ONCE = 20
"""Runs for missed times that are started in a second."""
_SECOND = timedelta(seconds=1)


class CatchUpTurns:
    """So many in a second, in the order in which they were asked for."""

    def __init__(self, most: int = CATCH_UP_AT_ONCE) -> None:
        self._most = most
        self._second: datetime | None = None
        self._taken = 0

    def free(self, now: datetime) -> bool:
        """Whether `take` would give one at once."""
        second = self._second
        return second is None or now >= second + _SECOND or (second <= now and self._taken < self._most)

    def take(self, now: datetime) -> datetime:
        """When it is."""
        if self._second is None or now >= self._second + _SECOND:
            self._second, self._taken = now, 0
        elif self._taken >= self._most:
            self._second, self._taken = self._second + _SECOND, 0
        self._taken += 1
        return max(now, self._second)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSchedule:
    """Until when nobody has to look at a schedule that is due, as long as it is still `next_due` then.

    `turn` is when it may catch up, if that is known; `workflow`: it waits for a run of that to end.
    """

    next_due: datetime | None
    until: datetime
    turn: datetime | None = None
    workflow: str = ""
