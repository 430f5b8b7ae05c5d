"""Active runs: starting them, cancelling them, carrying out what their transitions ask for, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

import structlog

from toban.definition import RenderError, Workflow, bind_params
from toband.domain.events import (
    AttemptLost,
    AttemptVoided,
    CancelRequested,
    Effect,
    Event,
    ForgetRun,
    LaunchAttempt,
    RunStarted,
    RunTimeoutPassed,
    StartRunTimer,
    StopAttempt,
    not_started,
)
from toband.domain.model import Attempt, Run, RunState, Trigger
from toband.domain.plan import Plan
from toband.domain.transition import Ids, effects_of
from toband.engine import launching
from toband.engine.actor import RETRY_FIRST, RETRY_MOST, RunActor
from toband.engine.changes import Changes
from toband.engine.errors import RunNotFoundError, RunTerminalError, WorkflowNotFoundError
from toband.ports import Clock, Launcher, Logs, Request, Store, StoreError, WorkflowVersion

PLANS_KEPT = 256

log = structlog.get_logger()


@dataclass(slots=True)
class Recovered:
    """What was found on disk when the daemon started."""

    runs: int = 0
    reattached: int = 0
    finished_meanwhile: int = 0
    relaunched: int = 0
    lost: int = 0
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
        server: str,
        default_timeout: float | None = None,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._files = files
        self._logs = logs
        self._clock = clock
        self._ids = ids
        self._changes = changes
        self._server = server
        self._default_timeout = default_timeout
        self._actors: dict[str, RunActor] = {}
        self._plans: dict[tuple[str, int], tuple[Plan, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: set[asyncio.Task[Run]] = set()
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
        """Raises WorkflowNotFoundError, ParamError, ActiveRunError, RequestReusedError."""
        if request is not None:
            # Whatever became of the workflow since, a repeated request is answered with the run it made.
            made = await self._store.run_of_request(request)
            if made is not None:
                return made
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

    def report(self, run_id: str, event: Event) -> None:
        """Takes what the launcher has to say."""
        actor = self._actors.get(run_id)
        if actor is not None:
            actor.post(event)

    # -- life

    async def load(self) -> None:
        """Makes an actor for every run that has not ended; quick, and before anybody is served."""
        for run_id in await self._store.active_run_ids():
            run = await self._store.get_run(run_id)
            version = await self._store.get_version(run.workflow, run.version) if run else None
            if run is None or version is None:
                log.error("cannot load a run", action="load_failed", run=run_id)
                continue
            plan, base_dir = self._plan(version)
            self._actor(plan, base_dir, run)
            self.recovered.runs += 1

    async def recover(self) -> None:
        """Finds out what became of every live attempt, and goes on from there."""
        for actor in list(self._actors.values()):
            if actor.run.state is RunState.PENDING:
                actor.post(RunStarted())
                continue
            await self._carry_out(actor, tuple(effects_of(actor.run)))
            for step in list(actor.run.steps.values()):
                if step.attempt is not None and not step.attempt.state.terminal:
                    try:
                        await self._recover_attempt(actor, step.attempt)
                    except OSError as error:
                        self._spawn(self._recover_later(actor, step.attempt, error))
        self.recovered.finished_at = self._clock.now()
        log.info(
            "recovery is done",
            action="recovered",
            runs=self.recovered.runs,
            reattached=self.recovered.reattached,
            finished_meanwhile=self.recovered.finished_meanwhile,
            relaunched=self.recovered.relaunched,
            lost=self.recovered.lost,
        )

    async def close(self) -> None:
        """Lets what is being saved be saved; processes go on without us."""
        for actor in self._actors.values():
            if actor.timer is not None:
                actor.timer.cancel()
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
                if actor.run.ending is not None:
                    self._launcher.stop(attempt)
                return
            case AttemptVoided():
                self.recovered.relaunched += 1
            case AttemptLost():
                self.recovered.lost += 1
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
                    await self._launch(actor, effect.attempt)
                case StopAttempt():
                    self._launcher.stop(effect.attempt)
                case StartRunTimer():
                    self._arm(actor, effect.due)
                case ForgetRun():
                    self._forget(actor)
                case _:
                    assert_never(effect)

    async def _launch(self, actor: RunActor, attempt: Attempt) -> None:
        run = actor.run
        try:
            if not actor.prepared:
                await self._launcher.prepare(run.id, run.params)
                actor.prepared = True
            launch = launching.build(
                actor.plan,
                run,
                attempt,
                base_dir=actor.base_dir,
                files=self._files,
                logs=self._logs,
                server=self._server,
                now=self._clock.now(),
            )
            self._launcher.launch(launch)
        except RenderError as error:
            actor.post(not_started(attempt, str(error), self._clock.now()))
        except Exception as error:
            # Whatever it was, the run must not wait for a process that nobody starts.
            if not isinstance(error, OSError):
                log.error("cannot launch", action="launch_failed", run=run.id, exc_info=error)
            reason = f"cannot prepare the step: {error}"
            actor.post(not_started(attempt, reason, self._clock.now()))

    def _arm(self, actor: RunActor, due: datetime) -> None:
        """The wall clock may be set while we wait: look at it again before believing that the time has come."""
        left = (due - self._clock.now()).total_seconds()
        if left <= 0:
            actor.post(RunTimeoutPassed())
            return
        loop = asyncio.get_running_loop()
        actor.timer = loop.call_later(min(left, 3600.0), self._arm, actor, due)

    def _forget(self, actor: RunActor) -> None:
        if actor.timer is not None:
            actor.timer.cancel()
        self._actors.pop(actor.run.id, None)
        log.info(
            "run ended",
            action="run_ended",
            run=actor.run.id,
            workflow=actor.run.workflow,
            state=actor.run.state.value,
        )
