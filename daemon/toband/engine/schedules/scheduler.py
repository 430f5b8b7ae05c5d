"""Starts runs when they are due, and records the outcome of each due time in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from toband.backoff import Backoff
from toband.domain.misfire import (
    ON_TIME,
    Circumstances,
    Decision,
    at_boot,
    decide,
    grace_left,
    replaced_at,
)
from toband.domain.overlap import is_full, scheduled_limit
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.drain import DrainMode
from toband.engine.health.admission import Admits
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_queue import RunQueue
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.engine.schedules.catch_up import CatchUpTurns, WaitingSchedule
from toband.engine.schedules.fire_saver import FireSaver
from toband.engine.schedules.uptime import Uptime
from toband.engine.system_events import SystemEvents
from toband.ports import (
    AlarmClock,
    Boot,
    Clock,
    Conditions,
    HealthStatus,
    Store,
    StoredWorkflow,
    StoreError,
)

ALL_ACTIVE = "as many runs as allowed are active"
AT_ONCE = 200
"""Schedules that are processed together."""
LOOK_AGAIN = 30.0
"""Seconds after which the wall clock is read again, regardless of the alarm: it may have been set."""
STORED_MOST = 1000
"""Runs that are stored before the first of them begins, when many are due at once."""
WAITS_MOST = 300.0
"""Seconds after which a schedule that waits for something other than its turn is checked again."""
TROUBLED_AGAIN = timedelta(minutes=1)
"""Time after which a schedule that cannot be decided is tried again."""
TROUBLED_SHOWN = 5
"""Number of undecidable schedules that are logged with a traceback and named in the health report."""
CLOCK_WRONG = timedelta(minutes=1)
"""How far the clock may be behind decided due times before this is reported."""
CONDITION = "schedules"
CLOCK = "clock"

log = structlog.get_logger()


class RunScheduler:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        active: ActiveRuns,
        queue: RunQueue,
        intake: RunIntake,
        clock: Clock,
        alarm: AlarmClock,
        admission: Admits,
        conditions: Conditions,
        blackouts: ActiveBlackouts,
        draining: DrainMode,
        announcing: SystemEvents,
        boot: Boot,
        definitions_read: asyncio.Event,
    ) -> None:
        """`definitions_read` is set when the definitions in files are stored: from then on `@reboot` can be decided."""
        self._store = store
        self._active = active
        self._clock = clock
        self._alarm = alarm
        self._conditions = conditions
        self._blackouts = blackouts
        self._the_boot = boot
        self._definitions_read = definitions_read
        self._rung = asyncio.Event()
        self._troubled: set[str] = set()
        self._waiting: dict[str, WaitingSchedule] = {}
        self._turns = CatchUpTurns()
        self._presence = Uptime(clock, self._rung.set)
        self._jumps = 0
        self._sweep_from: tuple[datetime, str] | None = None
        self._sweeping = True
        self._swept_at: datetime | None = None
        self._looked_at = clock.now()
        self._draining = draining
        self._due_runs = FireSaver(
            store=store,
            queue=queue,
            intake=intake,
            clock=clock,
            admission=admission,
            draining=draining,
            announcing=announcing,
        )
        draining.after(self._rung.set)
        active.on_end = self._run_ended
        self.next_alarm: datetime | None = None

    # -- life

    async def run(self) -> None:
        """Never returns. Failed database calls are retried."""
        await self._active.loaded.wait()
        self._alarm.open(self._rung.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._presence.watch())
            await self._look_again_and_again()

    async def _look_again_and_again(self) -> None:
        backoff = Backoff()
        while True:
            self._rung.clear()
            try:
                if not self._the_boot.done and self._definitions_read.is_set():
                    await self._fire_at_boot()
                await self._look()
                self.next_alarm = await self._store.earliest_alarm(after=self._looked_at)
                backoff.reset()
            except StoreError as error:
                log.error("cannot look what is due", action="schedule_failed", error=str(error))
                self._presence.leave()
                await asyncio.sleep(backoff.pause())
                continue
            self._alarm.set(self._next_look())
            await self._rung.wait()

    def _next_look(self) -> datetime:
        """Has a limit even if nothing is due: another process may have changed the database."""
        times = [each.until for each in self._waiting.values()]
        times.append(self._clock.now() + timedelta(seconds=LOOK_AGAIN))
        if self.next_alarm is not None:
            times.append(self.next_alarm)
        return min(times)

    def changed(self) -> None:
        """Schedules may have changed: resets the alarm."""
        for schedule_id in self._troubled & self._waiting.keys():
            self._wake(schedule_id)
        self._sweeping = True
        self._rung.set()

    def blackouts_changed(self) -> None:
        """Looks again at the schedules that wait for the end of a blackout."""
        for schedule_id, waiting in list(self._waiting.items()):
            if not waiting.workflow and waiting.turn is None:
                self._wake(schedule_id)
        self._rung.set()

    def _run_ended(self, workflow: str) -> None:
        for schedule_id, waiting in list(self._waiting.items()):
            if waiting.workflow == workflow:
                self._wake(schedule_id)
                self._rung.set()

    def _wake(self, schedule_id: str) -> None:
        self._waiting[schedule_id] = replace(self._waiting[schedule_id], until=self._clock.now(), workflow="")

    @property
    def draining(self) -> bool:
        return self._draining.active

    def drain(self) -> None:
        """Schedules start nothing from now on; due times are recorded as skipped."""
        self._draining.begin()

    def resume(self) -> None:
        self._draining.end()

    def close(self) -> None:
        self._alarm.close()

    # -- due schedules

    async def _look(self) -> None:
        """Decides all that is due by now, and missed times when their turn comes. Raises StoreError."""
        try:
            while True:
                self._looked_at = now = self._presence.look()
                if self._jumps != self._presence.jumps:
                    await self._begin_anew(now)
                entries = await self._due_now(now)
                if not entries or len(self._due_runs.stored) >= STORED_MOST:
                    self._due_runs.begin()
                if not entries:
                    entries = await self._whose_turn(now) or await self._missed(now)
                if not entries:
                    return
                await asyncio.gather(*(self._or_tell(entry, self._fire(entry)) for entry in entries))
        finally:
            self._due_runs.begin()

    async def _begin_anew(self, now: datetime) -> None:
        """The daemon was not running, or the clock was set back: discards all recorded waits."""
        self._jumps = self._presence.jumps
        self._waiting.clear()
        self._turns = CatchUpTurns()
        self._sweeping, self._sweep_from = True, None
        await self._check_clock(now)

    async def _due_now(self, now: datetime) -> Sequence[ScheduleEntry]:
        """Some of the schedules that became due while the daemon was running."""
        due = await self._store.due_schedules(now, since=self._first_near, limit=AT_ONCE + len(self._waiting))
        return [entry for entry in due if not self._does_wait(entry)][:AT_ONCE]

    async def _whose_turn(self, now: datetime) -> Sequence[ScheduleEntry]:
        ids = [key for key, waiting in self._waiting.items() if waiting.until <= now][:AT_ONCE]
        found = await asyncio.gather(*(self._store.get_schedule(each) for each in ids))
        entries = []
        for schedule_id, entry in zip(ids, found, strict=True):
            if entry is None or entry.next_due is None or entry.cancelled_at is not None:
                del self._waiting[schedule_id]
                self._forget_troubled(schedule_id)
            else:
                entries.append(entry)
        return entries

    async def _missed(self, now: datetime) -> Sequence[ScheduleEntry]:
        """Some of the schedules that became due while the daemon was not running, unless all of them wait."""
        again = timedelta(seconds=LOOK_AGAIN)
        if self._swept_at is None or not timedelta(0) <= now - self._swept_at < again:
            self._sweeping = True
            await self._check_clock(now)
        if not self._sweeping:
            return ()
        if self._sweep_from is None:
            self._swept_at = now
        before = self._first_near - timedelta(microseconds=1)
        while True:
            page = await self._store.due_schedules(before, after=self._sweep_from, limit=AT_ONCE)
            before_page = self._sweep_from
            self._sweep_from = None
            if page and page[-1].alarm is not None:
                self._sweep_from = (page[-1].alarm, page[-1].id)
            if self._sweep_from is None or (before_page and self._sweep_from <= before_page):
                self._sweeping, self._sweep_from = False, None
                return ()
            entries = [entry for entry in page if not self._does_wait(entry)]
            if entries:
                return entries

    def _does_wait(self, entry: ScheduleEntry) -> bool:
        waiting = self._waiting.get(entry.id)
        return waiting is not None and waiting.next_due == entry.next_due

    @property
    def _first_near(self) -> datetime:
        """Times due from then on were not missed."""
        return self._presence.since - timedelta(seconds=ON_TIME)

    async def _check_clock(self, now: datetime) -> None:
        """Reports schedules that were decided in the future, by a clock that was ahead and is right again."""
        count, until = await self._store.decided_ahead(now + CLOCK_WRONG)
        if until is None:
            self._conditions.well(CLOCK)
            return
        some = "1 schedule was" if count == 1 else f"{count} schedules were"
        detail = (
            f"the clock was set back: {some} decided up to {until.isoformat(timespec='seconds')}, and nothing of that "
            "is started again; start by hand what cannot wait"
        )
        self._conditions.trouble(CLOCK, HealthStatus.DEGRADED, detail)

    async def _or_tell(self, entry: ScheduleEntry, work: Awaitable[None]) -> None:
        """A schedule that cannot be decided, for example because its zone is gone, does not block the others."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:
            until = self._clock.now() + TROUBLED_AGAIN
            self._waiting[entry.id] = WaitingSchedule(next_due=entry.next_due, until=until)
            if entry.id not in self._troubled:
                log.error(
                    "cannot decide about a schedule",
                    action="schedule_broken",
                    schedule=entry.id,
                    error=str(error),
                    exc_info=error if len(self._troubled) < TROUBLED_SHOWN else None,
                )
                self._troubled.add(entry.id)
                self._tell_troubled()
        else:
            self._forget_troubled(entry.id)

    def _forget_troubled(self, schedule_id: str) -> None:
        if schedule_id in self._troubled:
            self._troubled.remove(schedule_id)
            if self._troubled:
                self._tell_troubled()
            else:
                self._conditions.well(CONDITION)

    def _tell_troubled(self) -> None:
        named = ", ".join(sorted(self._troubled)[:TROUBLED_SHOWN])
        detail = f"cannot decide about schedules, and they start nothing: {named}; see the log"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)

    async def _fire_at_boot(self) -> None:
        """Decides the schedules that are due once per boot. Schedules stored later wait for the next boot.

        If this is interrupted by a crash, the ledger knows which are done.
        """
        after = ""
        while True:
            entries = await self._store.start_schedules(after=after, limit=AT_ONCE)
            for entry in entries:
                await self._or_tell(entry, self._boot(entry))
            self._due_runs.begin()
            if len(entries) < AT_ONCE:
                break
            after = entries[-1].id
        self._the_boot.finish()

    async def _boot(self, entry: ScheduleEntry) -> None:
        at = self._the_boot.at
        tick = timedelta(microseconds=1)
        if await self._store.fires(schedule_id=entry.id, after=at - tick, before=at + tick):
            return  # an earlier daemon decided it
        stored = await self._store.get_workflow(entry.workflow)
        now = self._clock.now()
        way = self._due_runs.in_the_way(stored) or self._blackouts.until(stored, entry.zone, now)
        decision = at_boot(entry, at, now, way)
        if decision.entry is not entry:
            await self._due_runs.save(entry, decision, now, stored)

    # -- firing

    async def _fire(self, entry: ScheduleEntry) -> None:
        """Decides as much as possible, and records until when the rest waits. Raises StoreError."""
        waited = self._waiting.pop(entry.id, None)
        if entry.subject:
            now = self._presence.look()
            given = Circumstances(now=now, here_since=self._presence.since)
            decision = await _decided(entry, given)
            await self._due_runs.tell(entry, decision, now)
            self._go_on(decision.entry, now)
            return
        stored = await self._store.get_workflow(entry.workflow)
        now = self._presence.look()
        shut = self._blackouts.until(stored, entry.zone, now)
        turn = waited.turn if waited is not None else None
        may = not shut and (self._turns.free(now) if turn is None else turn <= now)
        one_by_one = self._has_no_slot(stored)
        given = Circumstances(
            now=now,
            here_since=self._presence.since,
            in_the_way=self._due_runs.in_the_way(stored),
            shut=lambda at: self._blackouts.until(stored, entry.zone, at),
            catch_up=1 if may else 0,
            waited_for=shut.text if shut is not None else ALL_ACTIVE if one_by_one else "",
            one_by_one=one_by_one,
        )
        decision = await _decided(entry, given)
        if decision.catches_up and turn is None:
            self._turns.take(now)
        nothing = decision.waits and decision.entry is entry
        if not nothing and not await self._due_runs.save(entry, decision, now, stored):
            return
        if decision.waits:
            self._waiting[entry.id] = self._wait(stored, decision.entry, given, may, turn)
        else:
            self._go_on(decision.entry, now)

    def _go_on(self, entry: ScheduleEntry, now: datetime) -> None:
        """Processes a schedule that is not fully decided again, after the others."""
        if entry.alarm is not None and entry.alarm <= now:
            self._waiting[entry.id] = WaitingSchedule(next_due=entry.next_due, until=now)

    def _wait(
        self,
        stored: StoredWorkflow | None,
        entry: ScheduleEntry,
        given: Circumstances,
        may: bool,
        turn: datetime | None,
    ) -> WaitingSchedule:
        """Until when a schedule with missed times to catch up waits."""
        now = given.now
        # It is processed in time to record that it was missed.
        until = now + timedelta(seconds=min(WAITS_MOST, max(1.0, grace_left(entry, now) + 0.001)))
        if given.shut(now):
            end = self._blackouts.end(stored, entry.zone, now)
            until = until if end is None else min(end, until)
            return WaitingSchedule(next_due=entry.next_due, until=until)
        if may and given.one_by_one:
            until = until if self._has_no_slot(stored) else now
            return WaitingSchedule(next_due=entry.next_due, until=until, workflow=entry.workflow)
        if turn is None or turn <= now:
            turn = self._turns.take(now)
        replaced = replaced_at(entry, now)
        until = min(turn, replaced) if replaced is not None else turn
        return WaitingSchedule(next_due=entry.next_due, until=until, turn=turn)

    def _has_no_slot(self, stored: StoredWorkflow | None) -> bool:
        """Whether the workflow has no slot for another run."""
        if stored is None or stored.definition is None:
            return False
        return is_full(scheduled_limit(stored.definition.parsed), self._due_runs.count_of(stored.name))


async def _decided(entry: ScheduleEntry, given: Circumstances) -> Decision:
    """Decides very many due times in parts, so that others get their turn."""
    decision = decide(entry, given)
    while decision.carried is not None:
        await asyncio.sleep(0)
        decision = decide(decision.entry, given, decision.carried)
    return decision
