"""When workflows are due next, and why they did or did not run: for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from toban.definition.timing.due import jitter_of, occurrences
from toban.definition.timing.model import Change, Due
from toband.domain.schedules import Fire, ScheduleEntry
from toband.engine.blackouts import Blackouts
from toband.engine.draining import Draining
from toband.engine.errors import WorkflowNotFoundError
from toband.engine.explaining import Known, told
from toband.ports import Clock, Store, StoredWorkflow

LAST = 5
"""Lines of the ledger that are told when nobody asks for a time."""
NEAR = 60.0
"""Seconds by which somebody's time may differ from the due time that they mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A time at which a workflow is due; `at` is when its run starts, with the jitter."""

    due: datetime
    at: datetime
    zone: str
    index: int
    change: Change
    blackout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    sentences: tuple[str, ...]
    fires: Sequence[Fire]
    before: datetime | None
    after: datetime | None


class Outlook:
    def __init__(
        self, *, store: Store, clock: Clock, blackouts: Blackouts, draining: Draining
    ) -> None:
        self._store = store
        self._clock = clock
        self._blackouts = blackouts
        self._draining = draining

    async def preview(self, name: str, count: int, start: datetime | None = None) -> list[Upcoming]:
        """The next times at which it is due, of all of its schedules. Raises WorkflowNotFoundError."""
        stored = await self._existing(name)
        found: list[Upcoming] = []
        for entry in await self._store.list_schedules(workflow=name, limit=1000):
            for due in islice(_upcoming(entry, start or self._clock.now()), count):
                at = due.at + timedelta(seconds=jitter_of(entry.id, entry.spec))
                found.append(
                    Upcoming(
                        due=due.at,
                        at=at,
                        zone=entry.zone,
                        index=entry.index,
                        change=due.change,
                        blackout=self._blackouts.until(stored, entry.zone, at),
                    )
                )
        return sorted(found, key=lambda upcoming: (upcoming.at, upcoming.index))[:count]

    async def explain(self, name: str, at: datetime | None = None) -> Explanation:
        """Why it did or did not run, at that time or lately. Raises WorkflowNotFoundError."""
        stored = await self._existing(name)
        entries = await self._store.list_schedules(workflow=name, limit=1000)
        now = self._clock.now()
        around = at or now
        near = timedelta(seconds=NEAR)
        fires = (
            await self._store.fires(workflow=name, limit=LAST)
            if at is None
            else await self._store.fires(workflow=name, after=at - near, before=at + near)
        )
        before = await self._store.fires(workflow=name, before=around, limit=1)
        after = [due.at for entry in entries for due in islice(_upcoming(entry, around), 1)]
        known = Known(
            workflow=name,
            enabled=stored.enabled,
            draining=self._draining.active,
            now=now,
            asked=at,
            entries=tuple(entries),
            fires=tuple(fires),
            before=before[0].due_at if before else None,
            after=min(after, default=None),
            events=_listened(stored),
        )
        return Explanation(
            sentences=told(known), fires=fires, before=known.before, after=known.after
        )

    async def _existing(self, name: str) -> StoredWorkflow:
        stored = await self._store.get_workflow(name)
        if stored is None:
            raise WorkflowNotFoundError(name)
        return stored


def _listened(stored: StoredWorkflow) -> tuple[str, ...]:
    """The types of events that start it, in the order of the definition."""
    parsed = stored.definition.parsed if stored.definition is not None else {}
    return tuple(
        dict.fromkeys(name for trigger in parsed.get("triggers", ()) for name in trigger["events"])
    )


def _upcoming(entry: ScheduleEntry, after: datetime) -> Iterator[Due]:
    """Its due times behind `after`, as far as it may still be due; none before it was stored."""
    if entry.next_due is None:
        return iter(())
    left = entry.spec.max_occurrences
    times = occurrences(
        entry.spec,
        zone=ZoneInfo(entry.zone),
        after=max(after, entry.stored_at - timedelta(microseconds=1)),
        stored_at=entry.stored_at,
    )
    return times if left is None else islice(times, max(0, left - entry.occurrences))
