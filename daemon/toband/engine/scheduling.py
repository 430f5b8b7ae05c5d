"""Starts runs when they are due. What becomes of each due time is in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from toban.definition import Overlap, ParamError
from toband import failpoints
from toband.domain.model import Run
from toband.domain.schedules import (
    Decision,
    Fire,
    FireOutcome,
    ScheduleEntry,
    Start,
    at_boot,
    decide,
)
from toband.engine.actor import RETRY_FIRST, RETRY_MOST
from toband.engine.admission import Admits
from toband.engine.announcing import Announcing
from toband.engine.blackouts import Blackouts
from toband.engine.draining import Draining
from toband.engine.errors import EngineError, RefusedError
from toband.engine.runs import Runs
from toband.engine.starting import NewRun
from toband.engine.subjects import triggered
from toband.ports import (
    AlarmClock,
    Boot,
    Clock,
    Conditions,
    Firing,
    HealthStatus,
    Store,
    StoredWorkflow,
    StoreError,
)

AT_ONCE = 200
"""Schedules that are looked at together."""
LOOK_AGAIN = 30.0
"""Seconds after which the wall clock is looked at again, whatever the alarm says: somebody may have set it."""
STORED_MOST = 1000
"""Runs that are stored before the first of them begins, when many are due at once."""
CATCH_UP_AT_ONCE = 20
"""Runs for missed times that are started in a second, so that an outage does not become a storm."""
CALLER = "schedule"
CONDITION = "schedules"

log = structlog.get_logger()


class Scheduling:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        runs: Runs,
        clock: Clock,
        alarm: AlarmClock,
        admission: Admits,
        conditions: Conditions,
        blackouts: Blackouts,
        draining: Draining,
        announcing: Announcing,
        boot: Boot,
        definitions_read: asyncio.Event,
    ) -> None:
        """`definitions_read` is set when what files define is stored: from then on `@reboot` can be decided."""
        self._store = store
        self._runs = runs
        self._clock = clock
        self._alarm = alarm
        self._admission = admission
        self._conditions = conditions
        self._blackouts = blackouts
        self._the_boot = boot
        self._definitions_read = definitions_read
        self._rung = asyncio.Event()
        self._stored: list[tuple[NewRun, Run]] = []
        self._troubled: dict[str, datetime | None] = {}
        self._draining = draining
        self._announcing = announcing
        draining.after(self._rung.set)
        self.next_alarm: datetime | None = None

    # -- life

    async def run(self) -> None:
        """Never returns. What the database cannot say now is asked again."""
        await self._runs.wait_recovered()
        self._alarm.open(self._rung.set)
        pause = RETRY_FIRST
        while True:
            self._rung.clear()
            try:
                if not self._the_boot.done and self._definitions_read.is_set():
                    await self._fire_at_boot()
                await self._look()
                self.next_alarm = await self._store.earliest_alarm()
                pause = RETRY_FIRST
            except StoreError as error:
                log.error("cannot look what is due", action="schedule_failed", error=str(error))
                await asyncio.sleep(pause)
                pause = min(RETRY_MOST, pause * 2)
                continue
            self._alarm.set(self._next_look())
            await self._rung.wait()

    def _next_look(self) -> datetime:
        now = self._clock.now()
        latest = now + timedelta(seconds=LOOK_AGAIN)
        if self.next_alarm is None:
            return latest
        # What cannot be decided is due all the time.
        soonest = now + timedelta(seconds=1) if self._troubled else self.next_alarm
        return min(latest, max(soonest, self.next_alarm))

    def changed(self) -> None:
        """Schedules may have changed: the alarm is set anew."""
        self._rung.set()

    @property
    def draining(self) -> bool:
        return self._draining.active

    def drain(self) -> None:
        """No schedule starts anything from now on; times that are due are told as skipped."""
        self._draining.begin()

    def resume(self) -> None:
        self._draining.end()

    def close(self) -> None:
        self._alarm.close()

    # -- firing

    async def _look(self) -> None:
        """Decides about all that is due by now. Raises StoreError."""
        caught_up = 0
        try:
            while True:
                now = self._clock.now()
                due = await self._store.due_schedules(now, limit=AT_ONCE)
                self._forget_mended(due)
                entries = [entry for entry in due if self._troubled.get(entry.id) != entry.next_due]
                if not entries:
                    return
                fired = await asyncio.gather(
                    *(self._or_tell(entry, self._fire(entry, now)) for entry in entries)
                )
                caught_up += sum(fired)
                if caught_up >= CATCH_UP_AT_ONCE:
                    caught_up = 0
                    self._begin()
                    await asyncio.sleep(1.0)
                elif len(self._stored) >= STORED_MOST:
                    self._begin()
        finally:
            self._begin()

    async def _or_tell(self, entry: ScheduleEntry, work: Awaitable[int]) -> int:
        """One that cannot be decided, because its zone is gone, say, keeps no other from being due."""
        try:
            return await work
        except StoreError:
            raise
        except Exception as error:
            log.error(
                "cannot decide about a schedule",
                action="schedule_broken",
                schedule=entry.id,
                exc_info=error,
            )
            self._troubled[entry.id] = entry.next_due
            self._tell_troubled()
            return 0

    def _forget_mended(self, due: Sequence[ScheduleEntry]) -> None:
        """Those that were changed, or are gone, are not in trouble any more."""
        if self._troubled:
            still = {entry.id: entry.next_due for entry in due}
            self._troubled = {k: v for k, v in self._troubled.items() if still.get(k, ...) == v}
            if not self._troubled:
                self._conditions.well(CONDITION)

    def _tell_troubled(self) -> None:
        named = ", ".join(sorted(self._troubled)[:5])
        detail = f"cannot decide about schedules, and they start nothing: {named}; see the log"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    def _begin(self) -> None:
        """Starts the runs that were stored: after the others that are due are, which the first steps would delay."""
        stored, self._stored = self._stored, []
        for new, run in stored:
            self._runs.begin(new, run)

    async def _fire_at_boot(self) -> None:
        """What is due once per boot of the machine. What is stored later is for the next one.

        After a crash in the midst of it the ledger knows what was done.
        """
        after = ""
        while True:
            entries = await self._store.start_schedules(after=after, limit=AT_ONCE)
            now = self._clock.now()
            for entry in entries:
                await self._or_tell(entry, self._boot(entry, now))
            self._begin()
            if len(entries) < AT_ONCE:
                break
            after = entries[-1].id
        self._the_boot.finish()

    async def _boot(self, entry: ScheduleEntry, now: datetime) -> int:
        stored = await self._store.get_workflow(entry.workflow)
        way = self._in_the_way(stored, entry, now)
        return await self._save(entry, at_boot(entry, self._the_boot.at, now, way), now)

    async def _fire(self, entry: ScheduleEntry, now: datetime) -> int:
        """How many runs were started for times that had been missed. Raises StoreError."""
        if entry.subject:
            return await self._trigger(entry, now)
        stored = await self._store.get_workflow(entry.workflow)
        way = self._in_the_way(stored, entry, now)

        def shut(at: datetime) -> str:
            return self._blackouts.until(stored, entry.zone, at)

        return await self._save(entry, decide(entry, now=now, in_the_way=way, shut=shut), now)

    async def _save(self, entry: ScheduleEntry, decision: Decision, now: datetime) -> int:
        fires = list(decision.fires)
        made: list[tuple[Fire, NewRun]] = []
        for start in decision.starts:
            line = _line(entry, start, now)
            made_or_why = await self._new(entry, start)
            if isinstance(made_or_why, str):
                fires.append(replace(line, outcome=FireOutcome.SKIPPED, reason=made_or_why))
            else:
                line = replace(line, run_id=made_or_why.run.id)
                made.append((line, made_or_why))
                # Each due time has a line, also those that the run only stands for.
                fires += [
                    replace(line, due_at=at, outcome=FireOutcome.CAUGHT_UP) for at in start.missed
                ]
        firing = Firing(
            before=entry,
            after=decision.entry,
            fires=tuple(fires),
            runs=tuple((line, new.run, _limit(new)) for line, new in made),
        )
        try:
            fired = await self._store.fire(firing)
        except StoreError:
            for _, new in made:
                self._runs.begin_if_stored(new)
            raise
        failpoints.hit("schedule.fired")
        if fired is None:
            return 0  # it was changed, or somebody was faster
        plans = {new.run.id: new for _, new in made}
        self._stored += [(plans[run.id], run) for run in fired.runs]
        log.info(
            "schedule fired", action="schedule_fired", schedule=entry.id,
            started=len(fired.runs), skipped=len(fires) + len(fired.skipped),
        )  # fmt: skip
        return sum(start.outcome is FireOutcome.CAUGHT_UP for start in decision.starts)

    async def _trigger(self, entry: ScheduleEntry, now: datetime) -> int:
        """One of a subject is told of as an event, whatever the daemon does; that starts what there is to start."""
        decision = decide(entry, now=now)
        fires = list(decision.fires)
        events = []
        for start in decision.starts:
            event = triggered(entry, start, decision.entry, self._announcing)
            line = replace(_line(entry, start, now), reason=f"event {event.id}")
            events.append((line, event))
            fires += [
                replace(line, due_at=at, outcome=FireOutcome.CAUGHT_UP) for at in start.missed
            ]
        firing = Firing(
            before=entry, after=decision.entry, fires=tuple(fires), events=tuple(events)
        )
        try:
            await self._store.fire(firing)
        finally:
            self._announcing.fresh.set()
        failpoints.hit("schedule.fired")
        log.info("schedule fired", action="schedule_fired", schedule=entry.id, events=len(events))
        return 0

    def _in_the_way(
        self, stored: StoredWorkflow | None, entry: ScheduleEntry, now: datetime
    ) -> str:
        if stored is None:
            return "the workflow is gone"
        if not stored.enabled:
            return "disabled"
        if self.draining:
            return "draining"
        until = self._blackouts.until(stored, entry.zone, now)
        if until:
            return until
        try:
            self._admission.check("start a run")
        except RefusedError as error:
            return str(error)
        return ""

    async def _new(self, entry: ScheduleEntry, start: Start) -> NewRun | str:
        """The run of a due time, not stored yet; or why there can be none. Raises StoreError."""
        try:
            return await self._runs.scheduled(
                entry.workflow,
                entry.spec.params,
                caller=CALLER,
                schedule=entry.id,
                at=start.due_at,
                missed=start.missed,
            )
        except ParamError as error:
            return f"parameters: {error}"
        except EngineError as error:
            return str(error)


def _line(entry: ScheduleEntry, start: Start, now: datetime) -> Fire:
    return Fire(
        schedule_id=entry.id,
        workflow=entry.workflow,
        due_at=start.due_at,
        outcome=start.outcome,
        at=now,
    )


def _limit(new: NewRun) -> int | None:
    return new.limit if new.overlap is Overlap.SKIP else None
