"""Active runs. What is not here has ended, or is of another daemon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptVoided,
    CancelRequested,
    Effect,
    Event,
)
from toband.domain.run_model import Run, StepRun
from toband.domain.transition import Ids
from toband.engine.caller import Origins
from toband.engine.errors import (
    RunNotFoundError,
    RunTerminalError,
)
from toband.engine.execution.artifact_collection import Collection
from toband.engine.execution.artifact_flow import Handing
from toband.engine.execution.dispatcher import Launches
from toband.engine.execution.expression_evaluator import Evaluation
from toband.engine.execution.launch_spec import Files, Rooms
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.run_metadata import Notes
from toband.engine.execution.template_scope import Seen
from toband.engine.health.admission import Admits, Always
from toband.engine.health.health_conditions import Health
from toband.engine.health.internal_errors import unexpected
from toband.engine.run_notifier import Changes
from toband.engine.runs.child_runs import Children
from toband.engine.runs.dead_letters import DeadLetters
from toband.engine.runs.effects import Effects
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.plan_cache import Plans
from toband.engine.runs.recovery import Recovered, Recovery
from toband.engine.runs.run_factory import NewRun, RunFactory
from toband.engine.runs.run_queue import RunQueue
from toband.engine.system_events import Announcing
from toband.ports import (
    ArtifactError,
    Artifacts,
    Clock,
    Launcher,
    Logs,
    StoppedError,
    Store,
    Values,
)

log = structlog.get_logger()


class Runs:
    """Every active run has an actor here."""

    def __init__(
        self,
        *,
        store: Store,
        launcher: Launcher,
        files: Files,
        logs: Logs,
        values: Values,
        artifacts: Artifacts,
        clock: Clock,
        ids: Ids,
        changes: Changes,
        health: Health,
        server: str,
        tools: str = "",
        default_timeout: float | None = None,
        max_running: int = 256,
        log_limit: int | None = None,
        evaluation: Evaluation,
        admission: Admits | None = None,
        announcing: Announcing | None = None,
        event_concurrency: int = 10,
        artifact_time: float = 3600.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._changes = changes
        self._plans = Plans(store)
        self.origins = Origins(store, self.active)
        self._queue = RunQueue(event_slots=event_concurrency)
        self.factory = RunFactory(
            store=store,
            plans=self._plans,
            clock=clock,
            ids=ids,
            evaluation=evaluation,
            default_timeout=default_timeout,
        )
        self.intake = RunIntake(
            active=self,
            factory=self.factory,
            store=store,
            queue=self._queue,
            origins=self.origins,
            admission=admission or Always(),
            start=self._spawn,
        )
        self.dead_letters = DeadLetters(store=store, clock=clock, factory=self.factory, intake=self.intake)
        seen = Seen(logs, values, files.work)
        self._rooms = Rooms(
            files=files,
            seen=seen,
            evaluation=evaluation,
            server=server,
            tools=tools,
            log_limit=log_limit,
        )
        handing = Handing(self._rooms, artifacts)
        self._notes = Notes(artifacts)
        self.launches = Launches(
            launcher=launcher,
            rooms=self._rooms,
            handing=handing,
            notes=self._notes,
            values=values,
            clock=clock,
            conditions=health,
            check_owner=store.check_owner,
            limit=max_running,
            artifact_time=artifact_time,
            start=self._spawn,
        )
        self._children = Children(
            household=self,
            intake=self.intake,
            rooms=self._rooms,
            store=store,
            clock=clock,
            start=self._spawn,
        )
        collection = Collection(
            handing=handing,
            conditions=health,
            boot_id=ids.boot_id,
            most=artifact_time,
            start=self._spawn,
        )
        self._effects = Effects(
            launches=self.launches,
            children=self._children,
            collection=collection,
            seen=seen,
            evaluation=evaluation,
            forget=self._forget,
            start=self._spawn,
        )
        self._recovery = Recovery(
            registry=self,
            store=store,
            launcher=launcher,
            launches=self.launches,
            children=self._children,
            effects=self._effects,
            plans=self._plans,
            clock=clock,
            start=self._spawn,
        )
        self._announcing = announcing or Announcing(clock, ids)
        self.left: Callable[[str], None] = lambda _: None
        """Told the workflow of each run that has ended."""
        self._actors: dict[str, RunActor] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.closing = self._closed = False
        self._draining: asyncio.Event | None = None

    def begin(self, new: NewRun, run: Run) -> None:
        """Puts a stored run into the queue."""
        self._queue.enter(self.take_up(new.plan, new.base_dir, run))

    def line_up(self, actors: Sequence[RunActor]) -> None:
        self._queue.restore(actors)
        self._recovery.loaded.set()

    # -- what is known of active runs

    async def under_way(self, run_id: str) -> RunActor:
        """Waits until all are known. Raises RunNotFoundError, RunTerminalError."""
        if run_id not in self._actors:
            await self._recovery.loaded.wait()
        actor = self._actors.get(run_id)
        if actor is None:
            run = await self._store.get_run_page(run_id, limit=0)
            if run is None:
                raise RunNotFoundError(run_id)
            raise RunTerminalError(run)
        return actor

    async def plan_of(self, run: Run) -> Plan | None:
        """The plan of the version that the run is pinned to."""
        found = await self._plans.of_run(run)
        return found[0] if found is not None else None

    async def context_of(self, run: Run) -> str:
        """The directory of its artifacts."""
        found = await self._plans.of_run(run)
        if found is None:
            return self._rooms.files.context(run.id)
        plan, base_dir = found
        return self._rooms.context(plan, run.id, base_dir)

    def actor(self, run_id: str) -> RunActor | None:
        return self._actors.get(run_id)

    def active(self, run_id: str) -> Run | None:
        """The run as it was last saved, if it has not ended."""
        actor = self._actors.get(run_id)
        return actor.run if actor is not None else None

    def waits_for_others(self, run: Run) -> bool:
        """Whether as many runs that events started are under way as may be, and that alone holds it up."""
        return self._queue.lacks_slot(run)

    def count_of(self, workflow: str) -> int:
        """How many runs of the workflow are under way or wait for their turn."""
        return self._queue.begun(workflow) + self._queue.waiting(workflow)

    def event_runs(self) -> tuple[int, int]:
        """Runs that events started: how many are under way, and how many wait for their turn."""
        return self._queue.event_runs()

    def waits_for_place(self, step: StepRun) -> bool:
        """Whether the step is to start and as many attempts run already as may."""
        return step.attempt is not None and self.launches.waits(step.attempt.token)

    # -- life

    @property
    def recovered(self) -> Recovered:
        return self._recovery.found

    async def find(self) -> None:
        await self._recovery.find()

    async def recover(self) -> None:
        await self._recovery.recover()

    async def wait_recovered(self) -> None:
        """Until all runs that had not ended are known again."""
        await self._recovery.loaded.wait()

    def report(self, run_id: str, event: Event) -> None:
        """Takes what the launcher has to say."""
        if isinstance(event, AttemptEnded | AttemptLost | AttemptVoided):
            self.launches.over(event.token)
        actor = self._actors.get(run_id)
        if actor is not None:
            self.launches.report(actor, event)

    def take_no_more(self) -> None:
        """From now on no run is begun; those that are go on."""
        self.closing = True

    async def drain(self) -> None:
        """Returns when no run is active any more."""
        await self._recovery.loaded.wait()
        self._draining = asyncio.Event()
        if self._actors:
            await self._draining.wait()

    async def cancel_all(self, reason: str) -> None:
        """Returns when every wish is on disk."""
        await self._recovery.loaded.wait()
        wishes = (actor.ask(CancelRequested(reason=reason)) for actor in list(self._actors.values()))
        await asyncio.gather(*wishes)

    async def close(self) -> None:
        """Lets what is being saved be saved; processes go on without us, and what is told now is told again later."""
        self._closed = True
        for actor in self._actors.values():
            actor.disarm()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_up(self, plan: Plan, base_dir: str, run: Run) -> RunActor:
        actor = RunActor(
            plan,
            run,
            base_dir=base_dir,
            store=self._store,
            clock=self._clock,
            ids=self._ids,
            act=self._saved,
            start=self._spawn,
            announcing=self._announcing,
        )
        self._actors[run.id] = actor
        return actor

    def stop_child(self, run_id: str) -> None:
        actor = self._actors.get(run_id)
        if actor is not None:
            actor.post(CancelRequested(reason="its parent run stopped it"))

    def note_ended(self, actor: RunActor) -> None:
        run = actor.run
        if run.launches:
            with contextlib.suppress(ArtifactError):  # there is no directory that it may write
                context = self._rooms.checked_context(actor.plan, run.id, actor.base_dir)
                self._notes.of_ended(context, actor.plan, run)

    async def _saved(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        run = actor.run
        self._changes.notify(run.id, ended=run.state.terminal)
        if not actor.prepared and any(step.source for step in run.steps.values()):
            # What it keeps of another run is its own before anything else happens.
            # The start of the first process meets the same error.
            with contextlib.suppress(OSError, ArtifactError, StoppedError):
                await self.launches.prepare(actor)
        if run.launches:
            try:
                with contextlib.suppress(ArtifactError):  # told where its first step starts
                    self._note(actor)
            except Exception as error:
                unexpected(f"cannot note the state of run {run.id}", error)
        await self._effects.carry_out(actor, effects)

    def _note(self, actor: RunActor) -> None:
        """Tells in its context directory how the run stands. Raises ArtifactError if it may have none there."""
        run = actor.run
        context = self._rooms.checked_context(actor.plan, run.id, actor.base_dir)
        self._notes.of_steps(context, actor.plan, run)
        if run.state.terminal:
            self._notes.of_run(context, run)

    def _forget(self, actor: RunActor) -> None:
        actor.disarm()
        self._actors.pop(actor.run.id, None)
        self._queue.leave(actor.run)
        self.left(actor.run.workflow)
        if actor.run.parent_run:
            self._children.ended(actor.run)
        if self._draining is not None and not self._actors:
            self._draining.set()
        log.info(
            "run ended",
            action="run_ended",
            run=actor.run.id,
            workflow=actor.run.workflow,
            state=actor.run.state.value,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unexpected("a run's task failed", error)
