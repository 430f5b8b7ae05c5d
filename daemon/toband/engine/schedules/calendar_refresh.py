"""Follows calendars: a changed file, and other holidays of a new release, move the due times that are still to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from toban.definition.timing.business_days import CalendarError, with_data
from toband.backoff import Backoff
from toband.domain.schedule_model import ScheduleEntry, renewed
from toband.ports import CalendarFiles, Clock, Conditions, HealthStatus, ScheduleStore, StoreError

LOOK_AGAIN = 60.0
"""Seconds between two readings of all files."""
CONDITION = "calendars"
_AT_ONCE = 500

log = structlog.get_logger()


class CalendarRefresh:
    """Belongs to the event loop. `ready` is set when all schedules have the calendars of this start."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        files: CalendarFiles,
        default: Mapping[str, Any],
        clock: Clock,
        conditions: Conditions,
        changed: Callable[[], None],
    ) -> None:
        """`default` is the daemon's calendar, empty if it has none. `changed` is called when due times have moved."""
        self._store = store
        self._files = files
        self._clock = clock
        self._conditions = conditions
        self._changed = changed
        self._default = default
        self.current: Mapping[str, Any] = {}
        """The daemon's calendar with its data; empty if it has none that can be read."""
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Never returns. Failed database calls are retried."""
        backoff = Backoff()
        while True:
            try:
                await self.look()
                backoff.reset()
            except StoreError as error:
                log.error("cannot look for changed calendars", action="calendars_failed", error=str(error))
                await asyncio.sleep(backoff.pause())
                continue
            self.ready.set()
            await asyncio.sleep(LOOK_AGAIN)

    async def look(self) -> None:
        """Renews the schedules whose calendar has changed. Raises StoreError."""
        after, moved = "", 0
        problems: dict[str, None] = {}
        if self._default:
            try:
                self.current = await asyncio.to_thread(with_data, self._default, self._files.read)
            except CalendarError as error:
                problems[str(error)] = None
        while page := await self._store.list_schedules(after=after, limit=_AT_ONCE, with_calendar=True):
            after = page[-1].id
            for entry in page:
                try:
                    moved += await self._renew(entry)
                except CalendarError as error:
                    # It goes on with the calendar that it has.
                    problems[str(error)] = None
        if moved:
            log.info("calendars changed", action="calendars_changed", schedules=moved)
            self._changed()
        if problems:
            self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, "; ".join(problems))
        else:
            self._conditions.well(CONDITION)

    async def _renew(self, entry: ScheduleEntry) -> bool:
        """Whether the schedule was changed; one that was decided meanwhile is renewed the next time."""
        after = await asyncio.to_thread(renewed, entry, self._clock.now(), self._files.read)
        return after is not entry and await self._store.renew_schedule(entry, after)
