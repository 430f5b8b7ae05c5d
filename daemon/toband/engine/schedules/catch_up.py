"""Waits of due schedules: those that catch up take turns, so that an outage does not cause a burst of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

CATCH_UP_AT_ONCE = 20
"""Runs for missed times that may start per second."""
_SECOND = timedelta(seconds=1)


class CatchUpTurns:
    """Hands out a limited number of turns per second, in the order of the requests."""

    def __init__(self, most: int = CATCH_UP_AT_ONCE) -> None:
        self._most = most
        self._second: datetime | None = None
        self._taken = 0

    def free(self, now: datetime) -> bool:
        """Whether `take` would give a turn at once."""
        second = self._second
        return second is None or now >= second + _SECOND or (second <= now and self._taken < self._most)

    def take(self, now: datetime) -> datetime:
        """The time of the turn."""
        if self._second is None or now >= self._second + _SECOND:
            self._second, self._taken = now, 0
        elif self._taken >= self._most:
            self._second, self._taken = self._second + _SECOND, 0
        self._taken += 1
        return max(now, self._second)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSchedule:
    """Until when a due schedule needs no attention, as long as it is still `next_due` then.

    `turn` is when it may catch up, if that is known; `workflow`: it waits for a run of that workflow to end.
    """

    next_due: datetime | None
    until: datetime
    turn: datetime | None = None
    workflow: str = ""
