"""Recovery: after a restart, continues with every run that has not ended, from the state of its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from toband.backoff import Backoff
from toband.domain.attempt_model import Attempt, Orphans
from toband.domain.run_events import AttemptLost, AttemptVoided
from toband.domain.run_model import RunState
from toband.domain.transition import effects_of
from toband.engine.execution.dispatcher import Dispatcher
from toband.engine.execution.lock_leftovers import LockLeftovers
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_locks import RunLocks
from toband.engine.health.internal_errors import unexpected
from toband.engine.runs.child_runs import ChildRuns
from toband.engine.runs.effects import Effects
from toband.engine.runs.plan_cache import PlanCache
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_waits import StepWaits
from toband.engine.runs.unread_runs import UnreadRuns
from toband.ports import Clock, Launcher, Store, StoreError

AT_ONCE = 16
"""Attempts that are looked up on disk at the same time, for all runs."""

ABANDONED = "launched by another toband, before this one took the database over; its outcome is unknown"
RESTORED = "active when the backup was made that this daemon was restored from; its outcome is unknown"

log = structlog.get_logger()


@dataclass(slots=True)
class Recovered:
    """Counts of the runs and attempts that a start of the daemon found."""

    runs: int = 0
    reattached: int = 0
    finished_meanwhile: int = 0
    relaunched: int = 0
    lost: int = 0
    cleaned_up: int = 0
    finished_at: datetime | None = None


class Recovery:
    def __init__(
        self,
        *,
        active: ActiveRuns,
        queue: RunQueue,
        store: Store,
        launcher: Launcher,
        launches: Dispatcher,
        locks: RunLocks,
        leftovers: LockLeftovers,
        unread: UnreadRuns,
        children: ChildRuns,
        effects: Effects,
        waits: StepWaits,
        plans: PlanCache,
        clock: Clock,
        start: Callable[[Coroutine[Any, Any, None]], object],
        restored: bool = False,
    ) -> None:
        """`restored`: the attempts that another daemon left are those of a backup."""
        self._restored = restored
        self._active = active
        self._queue = queue
        self._store = store
        self._launcher = launcher
        self._launches = launches
        self._locks = locks
        self._leftovers = leftovers
        self._unread = unread
        self._children = children
        self._effects = effects
        self._waits = waits
        self._plans = plans
        self._clock = clock
        self._start = start
        self._unfinished: list[str] = []
        self._abandoned: frozenset[str] = frozenset()
        self.found = Recovered()

    async def find(self) -> None:
        """Reads the ids of the runs that have not ended: one quick query, before a client can start another run."""
        self._unfinished = list(await self._store.active_run_ids())
        self._abandoned = await self._store.abandoned_attempts()
        self.found.runs = len(self._unfinished)
        await self._leftovers.load()

    async def recover(self) -> None:
        """Goes on with these runs, in the background."""
        slots = asyncio.Semaphore(AT_ONCE)
        actors = [actor for run_id in self._unfinished if (actor := await self._loaded(run_id))]
        unread = [run_id for run_id in self._unfinished if self._active.actor(run_id) is None]
        for run_id in unread:
            await self._unread.add(run_id)
        if not unread:
            # Else some active attempts are unknown: those of the runs that could not be read.
            self._launcher.settle_others(
                {
                    step.attempt.token
                    for actor in actors
                    for step in actor.run.steps.values()
                    if step.attempt is not None and not step.attempt.state.terminal
                }
            )
        self._locks.restore(actors)
        self._queue.restore(actors)
        self._waits.restore(actors)
        self._active.loaded.set()
        await asyncio.gather(*(self._resumed(actor, slots) for actor in actors))
        self.found.finished_at = self._clock.now()
        log.info(
            "recovery finished",
            action="recovered",
            runs=self.found.runs,
            reattached=self.found.reattached,
            finished_meanwhile=self.found.finished_meanwhile,
            relaunched=self.found.relaunched,
            lost=self.found.lost,
            cleaned_up=self.found.cleaned_up,
        )

    async def _loaded(self, run_id: str) -> RunActor | None:
        """A run that cannot be read does not stop the others."""
        try:
            return await self._load(run_id)
        except Exception as error:
            unexpected(f"cannot load run {run_id}: it does not continue", error)
            return None

    async def _load(self, run_id: str) -> RunActor | None:
        backoff = Backoff()
        while True:
            try:
                run = await self._store.get_run(run_id)
                found = await self._plans.of_run(run) if run else None
            except StoreError as error:
                log.error("cannot load a run, trying again", action="load_failed", run=run_id, error=str(error))
                await asyncio.sleep(backoff.pause())
                continue
            if run is None or found is None or run.state.terminal:
                log.error("cannot load a run", action="load_failed", run=run_id)
                return None
            return self._active.add(*found, run)

    async def _resumed(self, actor: RunActor, slots: asyncio.Semaphore) -> None:
        try:
            await self._resume(actor, slots)
        except Exception as error:
            unexpected(f"cannot resume run {actor.run.id}", error)

    async def _resume(self, actor: RunActor, slots: asyncio.Semaphore) -> None:
        if actor.run.state is RunState.PENDING:
            return  # it is in the queue
        run = actor.run
        self._effects.write_metadata(actor, recovering=True)
        await self._effects.carry_out(actor, tuple(effects_of(actor.plan, run)))
        for step in list(run.steps.values()):
            attempt = step.attempt
            if attempt is None or attempt.state.terminal:
                continue
            try:
                async with slots:
                    await self._recover_attempt(actor, attempt)
            except (OSError, StoreError) as error:
                self._start(self._recover_later(actor, attempt, error))
            except Exception as error:
                self._give_up(actor, attempt, error)

    async def _recover_later(self, actor: RunActor, attempt: Attempt, error: Exception) -> None:
        """After a passing error, such as a full disk: the attempt is not decided until it can be looked up."""
        backoff = Backoff()
        while True:
            log.error(
                "cannot look up an attempt, trying again",
                action="recover_failed",
                run=attempt.run_id,
                step=attempt.step,
                error=str(error),
            )
            await asyncio.sleep(backoff.pause())
            try:
                return await self._recover_attempt(actor, attempt)
            except (OSError, StoreError) as again:
                error = again
            except Exception as unknown:
                return self._give_up(actor, attempt, unknown)

    def _give_up(self, actor: RunActor, attempt: Attempt, error: Exception) -> None:
        """The run must not wait for an attempt that is not watched."""
        unexpected(f"cannot look up the attempt of step {attempt.step} of run {attempt.run_id}", error)
        reason = f"cannot look up the attempt: {type(error).__name__}: {error}"
        self.found.lost += 1
        actor.post(AttemptLost(step=attempt.step, token=attempt.token, error=reason, orphans=Orphans.UNKNOWN))

    async def _recover_attempt(self, actor: RunActor, attempt: Attempt) -> None:
        if attempt.child:
            await self._children.recover(actor, attempt)
            return
        if attempt.token in self._abandoned:
            # It was launched from another state directory, so a missing file proves nothing, and neither does another
            # boot. A process of it that is found on this machine belongs to the other daemon.
            await self._take_record(attempt)
            return
        event = await self._launcher.recover(attempt)
        match event:
            case None:
                self.found.reattached += 1
                self._launches.attached(attempt)
                if actor.run.current_ending is not None:
                    self._launcher.stop(attempt)
                return
            case AttemptVoided():
                self.found.relaunched += 1
            case AttemptLost():
                self.found.lost += 1
                self.found.cleaned_up += event.orphans is Orphans.ENDED
            case _:
                self.found.finished_meanwhile += 1
        self._launches.report(attempt.run_id, event)

    async def _take_record(self, attempt: Attempt) -> None:
        event = await self._launcher.recorded_end(attempt)
        if event is None:
            self.found.lost += 1
            reason = RESTORED if self._restored else ABANDONED
            event = AttemptLost(step=attempt.step, token=attempt.token, error=reason, orphans=Orphans.UNKNOWN)
        else:
            self.found.finished_meanwhile += 1
        self._launches.report(attempt.run_id, event)
