"""Backfill: starts runs for due times of the past that a client asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from toban.definition.timing.due import occurrences
from toband import failpoints
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.errors import TooManyDueTimesError, UnknownScheduleError, WorkflowNotFoundError
from toband.engine.health.admission import Admits
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.run_factory import NewRun
from toband.engine.schedules.due_times import zone_of
from toband.ports import Clock, Request, Store, StoredWorkflow

MOST = 1000
"""Due times of one backfill."""
_TICK = timedelta(microseconds=1)
# More than a definition can have.
_SCHEDULES_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """The due times to start runs for: from `first` to `last`, both included. `index` None: of all schedules.

    `scope` empty: that of the schedule. `again`: also due times that have a run of their own.
    """

    workflow: str
    first: datetime
    last: datetime
    index: int | None = None
    scope: str = ""
    params: Mapping[str, Any]
    again: bool = False
    limit: int = MOST


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfilledTime:
    """A due time, and whether this call started its run, or would. `run_id` is empty if it has none yet."""

    due: datetime
    entry: ScheduleEntry
    started: bool
    run_id: str


class Backfill:
    """Belongs to the event loop. Each run is stored with the ledger line of its due time."""

    def __init__(self, *, store: Store, intake: RunIntake, clock: Clock, admission: Admits) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._admission = admission
        self._one_by_one = asyncio.Lock()

    async def preview(self, wanted: BackfillRequest, *, caller: str) -> list[BackfilledTime]:
        """What `start` would do now. Raises as `start`."""
        stored, dues = await self._dues(wanted)
        own = await self._own_runs(dues)
        found = []
        for number, (due, entry) in enumerate(dues):
            if not number:
                await self._run_of(wanted, stored, due, entry, caller)
            run_id = "" if wanted.again else own.get((entry.id, due), "")
            found.append(BackfilledTime(due=due, entry=entry, started=not run_id, run_id=run_id))
        return found

    async def start(self, wanted: BackfillRequest, *, caller: str, request: Request | None) -> list[BackfilledTime]:
        """Starts the runs, oldest first. If it fails halfway, the same call goes on there.

        Raises WorkflowNotFoundError, UnknownScheduleError, TooManyDueTimesError, ZoneGoneError, ParamError,
        UnknownScopeError, NothingToRunError, NoPriorResultError, RefusedError, StoppingError, RequestReusedError.
        """
        async with self._one_by_one:
            return await self._start(wanted, caller, request)

    async def _start(self, wanted: BackfillRequest, caller: str, request: Request | None) -> list[BackfilledTime]:
        self._admission.check("start runs")
        stored, dues = await self._dues(wanted)
        own = {} if wanted.again else await self._own_runs(dues)
        found = []
        for due, entry in dues:
            if run_id := own.get((entry.id, due), ""):
                found.append(BackfilledTime(due=due, entry=entry, started=False, run_id=run_id))
                continue
            self._admission.check("start runs")
            new = await self._run_of(wanted, stored, due, entry, caller)
            line = Fire(
                schedule_id=entry.id,
                workflow=entry.workflow,
                due_at=due,
                outcome=FireOutcome.CAUGHT_UP,
                at=self._clock.now(),
                run_id=new.run.id,
            )
            save = partial(
                self._store.backfill, line, new.run, again=wanted.again, request=_of_time(request, entry, due)
            )
            run_id, made = await self._intake.store_backfilled(new, save)
            failpoints.hit("backfill.stored")
            found.append(BackfilledTime(due=due, entry=entry, started=made is not None, run_id=run_id))
        return found

    async def _run_of(
        self, wanted: BackfillRequest, stored: StoredWorkflow, due: datetime, entry: ScheduleEntry, caller: str
    ) -> NewRun:
        return await self._intake.backfilled(
            stored,
            {**entry.spec.params, **wanted.params},
            caller=caller,
            schedule=entry.id,
            at=due,
            scope=wanted.scope or entry.spec.scope,
        )

    async def _dues(self, wanted: BackfillRequest) -> tuple[StoredWorkflow, Sequence[tuple[datetime, ScheduleEntry]]]:
        stored = await self._store.get_workflow(wanted.workflow)
        if stored is None:
            raise WorkflowNotFoundError(wanted.workflow)
        entries = await self._entries(wanted)
        last = min(wanted.last, self._clock.now())

        def find() -> list[tuple[datetime, ScheduleEntry]]:
            times = [_passed(entry, wanted.first, last) for entry in entries]
            merged = merge(*times, key=lambda one: (one[0], one[1].index))
            return list(islice(merged, wanted.limit + 1))

        # Nothing else would be served during this.
        found = await asyncio.to_thread(find)
        if len(found) > wanted.limit:
            raise TooManyDueTimesError(wanted.limit)
        return stored, found

    async def _entries(self, wanted: BackfillRequest) -> list[ScheduleEntry]:
        of_workflow = await self._store.list_schedules(
            # Their ids have this prefix; schedules of subjects are not part of the definition.
            workflow=wanted.workflow,
            after=f"{wanted.workflow}/",
            limit=_SCHEDULES_MOST,
            active_only=False,
        )
        own = [entry for entry in of_workflow if not entry.subject]
        if wanted.index is None:
            return own
        chosen = [entry for entry in own if entry.index == wanted.index]
        if not chosen:
            raise UnknownScheduleError(wanted.workflow, wanted.index, len(own))
        return chosen

    async def _own_runs(self, dues: Sequence[tuple[datetime, ScheduleEntry]]) -> Mapping[tuple[str, datetime], str]:
        if not dues:
            return {}
        found: dict[tuple[str, datetime], str] = {}
        for schedule_id in sorted({entry.id for _, entry in dues}):
            runs = await self._store.own_runs(schedule_id, dues[0][0], dues[-1][0])
            found |= {(schedule_id, due): run_id for due, run_id in runs.items()}
        return found


def _passed(entry: ScheduleEntry, first: datetime, last: datetime) -> list[tuple[datetime, ScheduleEntry]]:
    """Its decided due times in the interval, and those before it was stored. Raises ZoneGoneError."""
    if entry.next_due is not None:
        last = min(last, entry.next_due - _TICK)
    dues = occurrences(entry.spec, zone=zone_of(entry), after=first - _TICK, stored_at=entry.stored_at)
    passed = takewhile(lambda due: due.at <= last, dues)
    return [(due.at, entry) for due in islice(passed, MOST + 1)]


def _of_time(request: Request | None, entry: ScheduleEntry, due: datetime) -> Request | None:
    """The part of a request that is about one due time: each is answered on its own."""
    return None if request is None else replace(request, id=f"{request.id} {entry.index} {due.isoformat()}")
