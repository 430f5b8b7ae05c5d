"""Follows the time zone database: an update moves the due times that are still to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

import structlog

from toban.definition.timing.clock_changes import zone_digest
from toban.definition.timing.cron import REBOOT
from toban.definition.timing.zones import forget_zones
from toband.backoff import Backoff
from toband.domain.schedule_model import ScheduleEntry, first_due
from toband.ports import Clock, Store, StoreError, ZoneNotes

LOOK_AGAIN = 3600.0
"""Seconds between two readings of the zones of all schedules."""
_AT_ONCE = 500

_Known = Mapping[str, tuple[int, str]]

log = structlog.get_logger()


class ZoneRefresh:
    """Belongs to the event loop. `ready` is set when all schedules follow the zones of this start."""

    def __init__(self, *, store: Store, notes: ZoneNotes, zone: str, clock: Clock, changed: Callable[[], None]) -> None:
        """`zone` is the daemon's own; `changed` is called when due times have moved."""
        self._store = store
        self._notes = notes
        self._zone = zone
        self._clock = clock
        self._changed = changed
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Never returns. Failed database calls are retried."""
        backoff = Backoff()
        while True:
            try:
                await self.look()
                backoff.reset()
            except StoreError as error:
                log.error("cannot look for changed time zones", action="zones_failed", error=str(error))
                await asyncio.sleep(backoff.pause())
                continue
            self.ready.set()
            await asyncio.sleep(LOOK_AGAIN)

    async def look(self) -> None:
        """Moves the due times of schedules whose zone has changed since the last look. Raises StoreError."""
        entries = [entry async for entry in self._entries()]
        zones = {self._zone, *(entry.zone for entry in entries)}
        year = self._clock.now().year
        before = await asyncio.to_thread(self._notes.read)
        changed, known = await asyncio.to_thread(_examined, zones, before, year)
        if changed:
            forget_zones()
            moved = sum([await self._renew(entry) for entry in entries if entry.zone in changed])
            log.info("time zones changed", action="zones_changed", zones=sorted(changed), schedules=moved)
            self._changed()
        if known != before:
            # Last: after a crash before this, the schedules are renewed again.
            await asyncio.to_thread(self._notes.keep, known)

    async def _entries(self) -> AsyncIterator[ScheduleEntry]:
        """The schedules whose due times depend on the clock of their zone."""
        after = ""
        while page := await self._store.list_schedules(after=after, limit=_AT_ONCE):
            after = page[-1].id
            for entry in page:
                if entry.spec.cron and entry.spec.cron != REBOOT:
                    yield entry

    async def _renew(self, entry: ScheduleEntry) -> bool:
        """Whether its next due time has moved. One that has come stays: the scheduler decides it."""
        now = self._clock.now()
        if entry.next_due is None or entry.next_due <= now:
            return False
        # Of a clock that was set back: what is decided stays decided.
        decided: list[datetime] = [line.due_at for line in await self._store.fires(schedule_id=entry.id, limit=1)]
        try:
            after = first_due(entry, max([now, *decided]))
        except (KeyError, OSError, ValueError):
            return False  # the scheduler reports a zone that is gone
        return after.next_due != entry.next_due and await self._store.renew_schedule(entry, after)


def _examined(zones: Collection[str], before: _Known, year: int) -> tuple[set[str], _Known]:
    """The zones that differ from what was known of them, and what is known now."""
    changed, known = set[str](), dict[str, tuple[int, str]]()
    for name in sorted(zones):
        try:
            zone = ZoneInfo.no_cache(name)
        except (KeyError, OSError, ValueError):
            continue
        if name in before and zone_digest(zone, before[name][0]) != before[name][1]:
            changed.add(name)
        same_year = name in before and before[name][0] == year and name not in changed
        known[name] = before[name] if same_year else (year, zone_digest(zone, year))
    return changed, known
