"""One APScheduler job, set to the earliest due time of all schedules.

The schedules are rows with their next due time in the database. A job for each of them in APScheduler would be a second
source of truth.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

_JOB = "earliest"


class _At(BaseTrigger):  # type: ignore[misc]
    def __init__(self, at: datetime) -> None:
        self._at = at

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return self._at if previous is None else None


class ApsAlarmClock:
    """Implements `ports.AlarmClock`."""

    def __init__(self) -> None:
        self._scheduler: Any = AsyncIOScheduler(timezone=UTC)
        self._ring: Callable[[], None] | None = None

    def open(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._scheduler.start()

    def set(self, at: datetime | None) -> None:
        if self._scheduler.get_job(_JOB) is not None:
            self._scheduler.remove_job(_JOB)
        if at is not None:
            # The scheduler decides what a late alarm means.
            self._scheduler.add_job(self._rung, _At(at), id=_JOB, misfire_grace_time=None)

    async def _rung(self) -> None:
        if self._ring is not None:
            self._ring()

    def close(self) -> None:
        if self._ring is not None:
            self._ring = None
            self._scheduler.shutdown(wait=False)
