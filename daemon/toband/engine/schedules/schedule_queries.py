"""Answers when workflows are due next, and why they did or did not run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice, takewhile

from toband.domain.emitted_events import Emitted
from toband.domain.lock_rules import LockUser
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.engine.drain import DrainMode
from toband.engine.errors import WorkflowNotFoundError, ZoneGoneError
from toband.engine.execution.lock_table import LockTable
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.engine.schedules.due_times import Upcoming, jitter_by, latest, upcoming, zone_of
from toband.engine.schedules.fire_explanation import FireFacts, Near, explain_fires
from toband.ports import Clock, Store, StoredWorkflow

LAST = 5
"""Limit on the ledger lines shown, except for those of the exact time asked about."""
NEAR = 60.0
"""Seconds by which a requested time may differ from the due time that is meant."""
_LISTED = 1000
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    sentences: tuple[str, ...]
    fires: Sequence[Fire]
    before: datetime | None
    after: datetime | None


class ScheduleQueries:
    def __init__(
        self, *, store: Store, clock: Clock, blackouts: ActiveBlackouts, draining: DrainMode, locks: LockTable
    ) -> None:
        self._store = store
        self._clock = clock
        self._blackouts = blackouts
        self._draining = draining
        self._locks = locks

    async def preview(self, name: str, count: int, start: datetime | None = None) -> list[Upcoming]:
        """The next due times of all its schedules that are not decided yet.

        Without `start` they are those whose run is still to start. Raises WorkflowNotFoundError and ZoneGoneError.
        """
        stored = await self._existing(name)
        entries = await self._entries(name)
        now = self._clock.now()

        def find() -> list[Upcoming]:
            times = [upcoming(each, start or now - jitter_by(each)) for each in entries]
            found = merge(*times, key=lambda due: (due.at, due.index))
            return [self._with_blackout(stored, due) for due in islice(found, count)]

        # Nothing else would be served during this.
        return await asyncio.to_thread(find)

    async def explain(self, name: str, at: datetime | None = None) -> Explanation:
        """Why it did or did not run, at that time or lately. Raises WorkflowNotFoundError."""
        stored = await self._existing(name)
        entries = await self._entries(name)
        now = self._clock.now()
        around = at or now
        fires = await self._store.fires(workflow=name, limit=LAST) if at is None else await self._meant(name, at)
        before = await self._store.fires(workflow=name, before=around, limit=1)
        told_of = FireFacts(
            workflow=name,
            enabled=stored.enabled,
            draining=self._draining.active,
            now=now,
            asked=at,
            entries=tuple(entries),
            fires=tuple(fires),
            locked={fire.run_id: self._waits(fire.run_id) for fire in fires if fire.run_id},
            before=_near(before[0], entries) if before else None,
            events=_listened(stored),
            emitted=(emitted := await self._emitted(fires)),
            runs=await self._runs(fires, emitted),
            zones=await self._zones(fires, entries),
        )
        known = await asyncio.to_thread(self._looked_ahead, stored, told_of)
        return Explanation(
            sentences=explain_fires(known),
            fires=known.fires,
            before=known.before.at if known.before is not None else None,
            after=known.after.due if known.after is not None else None,
        )

    def _waits(self, run_id: str) -> Sequence[str]:
        return [lock.name for lock in self._locks.waits_for(LockUser(run_id))]

    async def _meant(self, name: str, asked: datetime) -> Sequence[Fire]:
        """The outcomes of due times in the requested second, or else of the nearest."""
        for near, most in ((_SECOND, _LISTED), (timedelta(seconds=NEAR), LAST)):
            fires = await self._store.fires(workflow=name, after=asked - near, before=asked + near, limit=_LISTED)
            if fires:
                nearest = sorted(fires, key=lambda fire: abs(fire.due_at - asked))[:most]
                return sorted(nearest, key=lambda fire: fire.due_at, reverse=True)
        return ()

    async def _emitted(self, fires: Sequence[Fire]) -> Mapping[str, Emitted]:
        """The events emitted for due times, by id, if they are still stored."""
        ids = {found for fire in fires if (found := fire.event_id)}
        events = [await self._store.get_event(each) for each in sorted(ids)]
        return {event.id: event for event in events if event is not None}

    async def _runs(self, fires: Sequence[Fire], emitted: Mapping[str, Emitted]) -> Mapping[str, Run]:
        """What was started for due times, by id, if it is still stored."""
        ids = {fire.run_id for fire in fires}.union(run.run_id for event in emitted.values() for run in event.runs)
        found = [await self._store.get_run_page(each, limit=0) for each in sorted(filter(None, ids))]
        return {run.id: run for run in found if run is not None}

    async def _zones(self, fires: Sequence[Fire], entries: Sequence[ScheduleEntry]) -> Mapping[str, str]:
        """The zones of schedules that have ended, by id, if they are still stored."""
        over = {fire.schedule_id for fire in fires} - {entry.id for entry in entries}
        found = [await self._store.get_schedule(each) for each in sorted(over)]
        return {entry.id: entry.zone for entry in found if entry is not None}

    def _looked_ahead(self, stored: StoredWorkflow, known: FireFacts) -> FireFacts:
        """Adds the coming due times."""
        entries = [entry for entry in known.entries if _zone_is_there(entry)]
        asked = known.asked
        if asked is None:
            # A due time that waits for its jitter is still to come.
            coming = [due for each in entries for due in _first(each, known.now - jitter_by(each))]
            return replace(known, after=self._soonest(stored, coming))
        near = timedelta(seconds=NEAR)
        there = [
            due
            for entry in entries
            for due in takewhile(lambda due: due.due < asked + near, upcoming(entry, asked - near))
        ]
        closest = min(there, key=lambda due: (abs(due.due - asked), due.at), default=None)
        if closest is not None and all(abs(closest.due - asked) < abs(fire.due_at - asked) for fire in known.fires):
            known = replace(known, fires=())
        times = [Near(at=at, zone=entry.zone) for entry in entries if (at := latest(entry, asked)) is not None]
        if known.before is not None:
            times.append(known.before)
        return replace(
            known,
            due=self._with_blackout(stored, closest) if closest is not None else None,
            before=max(times, key=lambda time: time.at, default=None),
            after=self._soonest(stored, [due for each in entries for due in _first(each, asked)]),
        )

    def _soonest(self, stored: StoredWorkflow, dues: Sequence[Upcoming]) -> Upcoming | None:
        found = min(dues, key=lambda due: (due.due, due.at), default=None)
        return self._with_blackout(stored, found) if found is not None else None

    def _with_blackout(self, stored: StoredWorkflow, due: Upcoming) -> Upcoming:
        shut = self._blackouts.until(stored, due.zone, due.at)
        return replace(due, blackout=shut.text if shut is not None else "")

    async def _entries(self, name: str) -> list[ScheduleEntry]:
        """Its own schedules, including those that have run out, and the subject schedules that start it."""
        own = await self._store.list_schedules(
            # Their ids have this prefix, and sort directly after it.
            workflow=name,
            after=f"{name}/",
            limit=_LISTED,
            active_only=False,
        )
        bound = await self._store.list_schedules(workflow=name, limit=_LISTED, of_subjects=True)
        return [*(entry for entry in own if not entry.subject), *bound]

    async def _existing(self, name: str) -> StoredWorkflow:
        stored = await self._store.get_workflow(name)
        if stored is None:
            raise WorkflowNotFoundError(name)
        return stored


def _first(entry: ScheduleEntry, after: datetime) -> list[Upcoming]:
    return list(islice(upcoming(entry, after), 1))


def _near(fire: Fire, entries: Sequence[ScheduleEntry]) -> Near:
    zones = {entry.id: entry.zone for entry in entries}
    return Near(at=fire.due_at, zone=zones.get(fire.schedule_id, ""))


def _zone_is_there(entry: ScheduleEntry) -> bool:
    try:
        zone_of(entry)
    except ZoneGoneError:
        return False
    return True


def _listened(stored: StoredWorkflow) -> tuple[str, ...]:
    """The types of events that start it, in the order of the definition."""
    parsed = stored.definition.parsed if stored.definition is not None else {}
    return tuple(dict.fromkeys(name for trigger in parsed.get("triggers", ()) for name in trigger["events"]))
