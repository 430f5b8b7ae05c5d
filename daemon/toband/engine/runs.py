"""Active runs: starting them, cancelling them, carrying out what their transitions ask for, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

import structlog

from toban.definition import Workflow, bind_params
from toband import failpoints
from toband.domain.events import (
    AttemptEnded,
    AttemptLost,
    AttemptVoided,
    CancelRequested,
    Effect,
    Event,
    ForgetRun,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    RunStarted,
    StartRunTimer,
    StopAttempt,
)
from toband.domain.model import Attempt, Run, RunState, StepRun, Trigger
from toband.domain.plan import Plan
from toband.domain.transition import Ids, effects_of
from toband.engine import launching
from toband.engine.actor import RETRY_FIRST, RETRY_MOST, RunActor
from toband.engine.admission import Admits, Always
from toband.engine.changes import Changes
from toband.engine.errors import (
    RunNotFoundError,
    RunTerminalError,
    StoppingError,
    WorkflowNotFoundError,
)
from toband.engine.health import Health
from toband.engine.launches import Launches
from toband.ports import Clock, Launcher, Logs, Request, Store, StoreError, WorkflowVersion

PLANS_KEPT = 256
RECOVER_AT_ONCE = 16
"""Attempts that are looked up on disk at the same time after a restart."""

log = structlog.get_logger()


@dataclass(slots=True)
class Recovered:
    """What was found on disk when the daemon started."""

    runs: int = 0
    reattached: int = 0
    finished_meanwhile: int = 0
    relaunched: int = 0
    lost: int = 0
    cleaned_up: int = 0
    finished_at: datetime | None = None


class Runs:
    """Every active run has an actor here; what is not here has ended, or is of another daemon."""

    def __init__(
        self,
        *,
        store: Store,
        launcher: Launcher,
        files: launching.Files,
        logs: Logs,
        clock: Clock,
        ids: Ids,
        changes: Changes,
        health: Health,
        server: str,
        default_timeout: float | None = None,
        max_running: int = 256,
        log_limit: int | None = None,
        admission: Admits | None = None,
    ) -> None:
        self._admission = admission or Always()
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._ids = ids
        self._changes = changes
        self._default_timeout = default_timeout
        self.launches = Launches(
            launcher=launcher, files=files, logs=logs, clock=clock, conditions=health, server=server,
            limit=max_running, log_limit=log_limit, start=self._spawn,
        )  # fmt: skip
        self._actors: dict[str, RunActor] = {}
        self._plans: dict[tuple[str, int], tuple[Plan, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: set[asyncio.Task[Run]] = set()
        self._unfinished: list[str] = []
        self._loaded = asyncio.Event()
        self._closing = False
        self._draining: asyncio.Event | None = None
        self.recovered = Recovered()

    # -- what clients ask for

    async def start(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        trigger: Trigger,
        caller: str,
        request: Request | None,
    ) -> Run:
        """Raises WorkflowNotFoundError, ParamError, ActiveRunError, RequestReusedError, StoppingError, RefusedError."""
        if request is not None:
            # Whatever became of the workflow since, a repeated request is answered with the run it made.
            made = await self._store.run_of_request(request)
            if made is not None:
                return made
        if self._closing:
            raise StoppingError("cannot start a run: the daemon is stopping")
        self._admission.check("start a run")
        stored = await self._store.get_workflow(workflow)
        if stored is None or stored.definition is None:
            raise WorkflowNotFoundError(workflow)
        plan, base_dir = self._plan(stored.definition)
        run = plan.new_run(
            run_id=self._ids.new_id(),
            version=stored.version,
            params=bind_params(plan.workflow, params),
            trigger=trigger,
            caller=caller,
            at=self._clock.now(),
        )
        if run.timeout is None:
            run = replace(run, timeout=self._default_timeout)
        limit = None if plan.workflow.overlap == "allow" else plan.workflow.max_active_runs
        # A caller who gives up must not leave a run behind that is stored and never begun.
        task = asyncio.get_running_loop().create_task(
            self._create(plan, base_dir, run, limit, request)
        )
        self._creating.add(task)
        task.add_done_callback(self._creating.discard)
        return await asyncio.shield(task)

    async def _create(
        self, plan: Plan, base_dir: str, run: Run, limit: int | None, request: Request | None
    ) -> Run:
        try:
            run, new = await self._store.create_run(run, max_active=limit, request=request)
        except StoreError:
            self._spawn(self._adopt(plan, base_dir, run.id))
            raise
        if new:
            self._actor(plan, base_dir, run).post(RunStarted())
        return run

    async def _adopt(self, plan: Plan, base_dir: str, run_id: str) -> None:
        """A commit that broke off may have been made all the same: then the run is there, and must begin."""
        pause = RETRY_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            with contextlib.suppress(StoreError):
                run = await self._store.get_run(run_id)
                break
        if run is not None and run_id not in self._actors:
            self._actor(plan, base_dir, run).post(RunStarted())

    async def cancel(self, run_id: str, reason: str) -> Run:
        """Answers when the wish is on disk. Raises RunNotFoundError, RunTerminalError."""
        if run_id not in self._actors:
            await self._loaded.wait()
        actor = self._actors.get(run_id)
        if actor is None:
            run = await self._store.get_run_page(run_id, limit=0)
            if run is None:
                raise RunNotFoundError(run_id)
            raise RunTerminalError(run)
        run = await actor.ask(CancelRequested(reason=reason))
        if run.state.terminal and run.cancel_requested_at is None:
            raise RunTerminalError(run)
        return run

    async def plan_of(self, run: Run) -> Plan | None:
        """The plan of the version that the run is pinned to."""
        kept = self._plans.get((run.workflow, run.version))
        if kept is None:
            version = await self._store.get_version(run.workflow, run.version)
            if version is None:
                return None
            kept = self._plan(version)
        return kept[0]

    def active(self, run_id: str) -> Run | None:
        """The run as it was last saved, if it has not ended."""
        actor = self._actors.get(run_id)
        return actor.run if actor is not None else None

    def waits_for_place(self, step: StepRun) -> bool:
        """Whether the step is to start and as many attempts run already as may."""
        return step.attempt is not None and self.launches.waits(step.attempt.token)

    def report(self, run_id: str, event: Event) -> None:
        """Takes what the launcher has to say."""
        if isinstance(event, AttemptEnded | AttemptLost | AttemptVoided):
            self.launches.over(event.token)
        actor = self._actors.get(run_id)
        if actor is not None:
            actor.post(event)

    # -- life

    async def find(self) -> None:
        """Notes which runs have not ended: one quick question, before anybody can start another."""
        self._unfinished = list(await self._store.active_run_ids())
        self.recovered.runs = len(self._unfinished)

    async def recover(self) -> None:
        """Takes up every run that has not ended, and goes on from what became of its attempts; nobody waits for it."""
        places = asyncio.Semaphore(RECOVER_AT_ONCE)
        found = [actor for run_id in self._unfinished if (actor := await self._load(run_id))]
        self._loaded.set()
        await asyncio.gather(*(self._take_up(actor, places) for actor in found))
        self.recovered.finished_at = self._clock.now()
        log.info(
            "recovery is done",
            action="recovered",
            runs=self.recovered.runs,
            reattached=self.recovered.reattached,
            finished_meanwhile=self.recovered.finished_meanwhile,
            relaunched=self.recovered.relaunched,
            lost=self.recovered.lost,
            cleaned_up=self.recovered.cleaned_up,
        )

    async def _load(self, run_id: str) -> RunActor | None:
        pause = RETRY_FIRST
        while True:
            try:
                run = await self._store.get_run(run_id)
                version = await self._store.get_version(run.workflow, run.version) if run else None
            except StoreError as error:
                log.error(
                    "cannot load a run, trying again", action="load_failed", run=run_id, error=str(error)
                )  # fmt: skip
                await asyncio.sleep(pause)
                pause = min(RETRY_MOST, pause * 2)
                continue
            if run is None or version is None or run.state.terminal:
                log.error("cannot load a run", action="load_failed", run=run_id)
                return None
            plan, base_dir = self._plan(version)
            return self._actor(plan, base_dir, run)

    async def _take_up(self, actor: RunActor, places: asyncio.Semaphore) -> None:
        if actor.run.state is RunState.PENDING:
            actor.post(RunStarted())
            return
        await self._carry_out(actor, tuple(effects_of(actor.run)))
        for step in list(actor.run.steps.values()):
            if step.attempt is not None and not step.attempt.state.terminal:
                try:
                    async with places:
                        await self._recover_attempt(actor, step.attempt)
                except OSError as error:
                    self._spawn(self._recover_later(actor, step.attempt, error))

    def take_no_more(self) -> None:
        """From now on no run is begun; those that are go on."""
        self._closing = True

    async def drain(self) -> None:
        """Returns when no run is active any more."""
        await self._loaded.wait()
        self._draining = asyncio.Event()
        if self._actors:
            await self._draining.wait()

    async def cancel_all(self, reason: str) -> None:
        """Returns when every wish is on disk."""
        await self._loaded.wait()
        wishes = (
            actor.ask(CancelRequested(reason=reason)) for actor in list(self._actors.values())
        )
        await asyncio.gather(*wishes)

    async def close(self) -> None:
        """Lets what is being saved be saved; processes go on without us."""
        for actor in self._actors.values():
            actor.disarm()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _recover_later(self, actor: RunActor, attempt: Attempt, error: OSError) -> None:
        """A disk that is full, or the like: nothing is decided about the attempt until it can be looked at."""
        pause = RETRY_FIRST
        while True:
            log.error(
                "cannot find out what became of a process, trying again",
                action="recover_failed", run=attempt.run_id, step=attempt.step, error=str(error),
            )  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            try:
                return await self._recover_attempt(actor, attempt)
            except OSError as again:
                error = again

    async def _recover_attempt(self, actor: RunActor, attempt: Attempt) -> None:
        event = await self._launcher.recover(attempt)
        match event:
            case None:
                self.recovered.reattached += 1
                self.launches.attached(attempt)
                if actor.run.ending is not None:
                    self._launcher.stop(attempt)
                return
            case AttemptVoided():
                self.recovered.relaunched += 1
            case AttemptLost():
                self.recovered.lost += 1
                self.recovered.cleaned_up += event.orphans == "ended"
            case _:
                self.recovered.finished_meanwhile += 1
        actor.post(event)

    def _actor(self, plan: Plan, base_dir: str, run: Run) -> RunActor:
        actor = RunActor(
            plan, run, base_dir=base_dir, store=self._store, clock=self._clock, ids=self._ids,
            act=self._saved, start=self._spawn,
        )  # fmt: skip
        self._actors[run.id] = actor
        return actor

    def _plan(self, version: WorkflowVersion) -> tuple[Plan, str]:
        key = (version.workflow, version.version)
        if key not in self._plans:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.pop(next(iter(self._plans)))
            plan = Plan(Workflow.from_dict(dict(version.parsed)))
            self._plans[key] = (plan, version.base_dir)
        return self._plans[key]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a run's task failed", action="task_failed", exc_info=task.exception())

    # -- effects

    async def _saved(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        self._changes.notify(actor.run.id, ended=actor.run.state.terminal)
        await self._carry_out(actor, effects)

    async def _carry_out(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case LaunchAttempt():
                    await self.launches.launch(actor, effect.attempt)
                case StopAttempt():
                    self.launches.stop(actor, effect.attempt)
                case StartRunTimer():
                    actor.arm(effect.due)
                case LaunchReady():
                    failpoints.hit("launch.ready")
                    actor.post(LaunchDue())
                case ForgetRun():
                    self._forget(actor)
                case _:
                    assert_never(effect)

    def _forget(self, actor: RunActor) -> None:
        actor.disarm()
        self._actors.pop(actor.run.id, None)
        if self._draining is not None and not self._actors:
            self._draining.set()
        log.info(
            "run ended",
            action="run_ended",
            run=actor.run.id,
            workflow=actor.run.workflow,
            state=actor.run.state.value,
        )
