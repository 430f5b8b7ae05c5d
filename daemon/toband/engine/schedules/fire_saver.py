"""Saves decisions about due times, with the runs and events that they start; these begin when all are saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

import structlog

from toban.definition import ParamError
from toband import failpoints
from toband.domain.misfire import Decision
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, FireOutcome, ScheduledStart, ScheduleEntry
from toband.engine.drain import DrainMode
from toband.engine.errors import EngineError, RefusedError, not_started
from toband.engine.health.admission import Admits
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.run_factory import NewRun
from toband.engine.runs.run_queue import RunQueue
from toband.engine.schedules.subject_schedules import triggered
from toband.engine.system_events import SystemEvents
from toband.ports import Clock, FireLedger, Firing, RunGoneError, StoredWorkflow, StoreError

CALLER = "schedule"

log = structlog.get_logger()


class FireSaver:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: FireLedger,
        queue: RunQueue,
        intake: RunIntake,
        clock: Clock,
        admission: Admits,
        draining: DrainMode,
        announcing: SystemEvents,
    ) -> None:
        self._store = store
        self._queue = queue
        self._intake = intake
        self._clock = clock
        self._admission = admission
        self._draining = draining
        self._announcing = announcing
        self._ahead: Counter[str] = Counter()
        self.stored: list[tuple[NewRun, Run]] = []
        """Stored runs that have not begun."""

    def begin(self) -> None:
        """Begins the stored runs: after all due ones are stored, since the first steps would delay that."""
        stored, self.stored = self.stored, []
        for new, run in stored:
            self._intake.begin(new, run)
            self._ahead[run.workflow] -= 1
        # Workflows come and go.
        self._ahead = +self._ahead

    def count_of(self, workflow: str) -> int:
        """Number of the workflow's runs that have not ended, including those not begun or not stored yet."""
        return self._queue.count(workflow) + self._ahead[workflow]

    def in_the_way(self, stored: StoredWorkflow | None) -> NotStarted | None:
        """Why nothing may start now. Blackouts are checked for each due time separately."""
        if stored is None:
            return NotStarted(NotStartedReason.DELETED)
        if not stored.enabled:
            return NotStarted(NotStartedReason.DISABLED)
        if self._draining.active:
            return NotStarted(NotStartedReason.DRAINING)
        try:
            self._admission.check("start a run")
        except RefusedError as error:
            return not_started(error)
        return None

    async def save(
        self, entry: ScheduleEntry, decision: Decision, now: datetime, stored: StoredWorkflow | None
    ) -> bool:
        """Saves the decision; False if the schedule was changed or decided meanwhile. Raises StoreError."""
        fires = list(decision.fires)
        made: list[tuple[Fire, NewRun]] = []
        for start in decision.starts:
            line = _line(entry, start, now)
            made_or_why = await self._new(entry, start, stored)
            if isinstance(made_or_why, NotStarted):
                fires.append(replace(line, outcome=FireOutcome.SKIPPED, reason=made_or_why))
            else:
                line = replace(line, run_id=made_or_why.run.id)
                made.append((line, made_or_why))
            # Each due time has a line, including those that the run only represents.
            fires += _stood_for(fires[-1] if isinstance(made_or_why, NotStarted) else line, start)
        at = max(now, self._clock.now())
        firing = Firing(
            before=entry,
            after=decision.entry,
            fires=tuple(replace(line, at=at) for line in fires),
            runs=tuple((replace(line, at=at), new.run, new.overlap.skip_limit) for line, new in made),
        )
        try:
            fired = await self._store.fire(firing)
        except StoreError:
            for _, new in made:
                self._intake.begin_if_stored(new)
            self._ahead[entry.workflow] -= len(made)
            raise
        except RunGoneError as error:  # one takes results of a run that was deleted just now: decide again
            self._ahead[entry.workflow] -= len(made)
            raise StoreError(str(error)) from error
        failpoints.hit("schedule.fired")
        runs = fired.runs if fired is not None else ()
        self._ahead[entry.workflow] -= len(made) - len(runs)
        if fired is None:
            return False
        plans = {new.run.id: new for _, new in made}
        self.stored += [(plans[run.id], run) for run in runs]
        log.info(
            "schedule fired",
            action="schedule_fired",
            schedule=entry.id,
            started=len(runs),
            skipped=len(fires) + len(fired.skipped),
        )
        return True

    async def tell(self, entry: ScheduleEntry, decision: Decision, now: datetime) -> None:
        """Emits an event for a subject schedule, whatever the daemon's state; the event starts the workflow, if any."""
        at = max(now, self._clock.now())
        fires = [replace(line, at=at) for line in decision.fires]
        events = []
        for start in decision.starts:
            event = triggered(entry, start, decision.entry, self._announcing)
            line = replace(_line(entry, start, at), event_id=event.id)
            events.append((line, event))
            fires += _stood_for(line, start)
        firing = Firing(before=entry, after=decision.entry, fires=tuple(fires), events=tuple(events))
        try:
            await self._store.fire(firing)
        finally:
            self._announcing.fresh.set()
        failpoints.hit("schedule.fired")
        log.info("schedule fired", action="schedule_fired", schedule=entry.id, events=len(events))

    async def _new(
        self, entry: ScheduleEntry, start: ScheduledStart, stored: StoredWorkflow | None
    ) -> NewRun | NotStarted:
        """The run of a due time, not stored yet; or why there is none. Raises StoreError."""
        if stored is None:
            return NotStarted(NotStartedReason.DELETED)
        ahead = self._ahead[entry.workflow]
        self._ahead[entry.workflow] += 1
        made = False
        try:
            new = await self._intake.scheduled(
                stored,
                entry.spec.params,
                caller=CALLER,
                schedule=entry.id,
                at=start.due_at,
                missed=start.missed,
                scope=entry.spec.scope,
                ahead=ahead,
            )
            made = True
            return new
        except (ParamError, EngineError) as error:
            return not_started(error)
        finally:
            if not made:
                self._ahead[entry.workflow] -= 1


def _stood_for(line: Fire, start: ScheduledStart) -> list[Fire]:
    """The lines of the other times that the run represents; `line` is the line of its own due time."""
    outcome = FireOutcome.CAUGHT_UP if line.outcome is not FireOutcome.SKIPPED else line.outcome
    return [
        replace(line, due_at=at, outcome=outcome, more=0 if number else start.more)
        for number, at in enumerate(start.missed)
    ]


def _line(entry: ScheduleEntry, start: ScheduledStart, now: datetime) -> Fire:
    return Fire(
        schedule_id=entry.id,
        workflow=entry.workflow,
        due_at=start.due_at,
        outcome=start.outcome,
        at=now,
    )
