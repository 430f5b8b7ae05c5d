"""Active runs: starting and controlling them. What is not here has ended, or is of another daemon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from toban.definition import Overlap
from toband.domain.emitted import Emitted
from toband.domain.events import (
    AttemptEnded,
    AttemptLost,
    AttemptVoided,
    CancelRequested,
    DecisionMade,
    Effect,
    Event,
    PauseRequested,
    ResumeRequested,
    RunStarted,
)
from toband.domain.model import Phase, Run, RunState, StepRun, StepState, Trigger
from toband.domain.plan import Plan
from toband.domain.transition import Ids
from toband.engine.actor import RETRY_FIRST, RETRY_MOST, RunActor
from toband.engine.admission import Admits, Always
from toband.engine.announcing import Announcing
from toband.engine.changes import Changes
from toband.engine.children import Children
from toband.engine.effects import Effects
from toband.engine.errors import (
    DeadLetterNotFoundError,
    NotApproverError,
    NotWaitingError,
    QueueFullError,
    RunActiveError,
    RunInUseError,
    RunNotFoundError,
    RunTerminalError,
    StepNotFoundError,
    StoppingError,
)
from toband.engine.handing import Handing
from toband.engine.health import Health
from toband.engine.launches import Launches
from toband.engine.launching import Files, Rooms
from toband.engine.lines import WAITING_MOST, Lines
from toband.engine.notes import Notes
from toband.engine.origins import Origin, Origins
from toband.engine.plans import Plans
from toband.engine.recovery import Recovered, Recovery
from toband.engine.seen import Seen
from toband.engine.selection import Selection
from toband.engine.starting import NewRun, Preview, Starting
from toband.ports import (
    ArtifactError,
    Artifacts,
    Clock,
    Launcher,
    Logs,
    Request,
    Store,
    StoreError,
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
        admission: Admits | None = None,
        remove: Callable[[str], Awaitable[bool]] | None = None,
        announcing: Announcing | None = None,
        event_concurrency: int = 10,
    ) -> None:
        self._admission = admission or Always()
        self._store = store
        self._clock = clock
        self._ids = ids
        self._changes = changes
        self._remove = remove
        self._plans = Plans(store)
        self.origins = Origins(store, self.active)
        self._starting = Starting(
            store=store, plans=self._plans, clock=clock, ids=ids, default_timeout=default_timeout
        )
        seen = Seen(logs, values, files.work)
        self._rooms = Rooms(files=files, seen=seen, server=server, tools=tools, log_limit=log_limit)
        handing = Handing(self._rooms, artifacts)
        self._notes = Notes(artifacts)
        self.launches = Launches(
            launcher=launcher, rooms=self._rooms, handing=handing, notes=self._notes, values=values, clock=clock,
            conditions=health, limit=max_running, start=self._spawn,
        )  # fmt: skip
        self._children = Children(
            household=self, rooms=self._rooms, store=store, clock=clock, start=self._spawn
        )
        self._effects = Effects(
            launches=self.launches, children=self._children, handing=handing, seen=seen, boot_id=ids.boot_id,
            forget=self._forget, start=self._spawn,
        )  # fmt: skip
        self._recovery = Recovery(
            registry=self, store=store, launcher=launcher, launches=self.launches, children=self._children,
            effects=self._effects, plans=self._plans, clock=clock, start=self._spawn,
        )  # fmt: skip
        self._lines = Lines(self._begin, places=event_concurrency)
        self._announcing = announcing or Announcing(clock, ids)
        self.left: Callable[[str], None] = lambda _: None
        """Told the workflow of each run that has ended."""
        self._actors: dict[str, RunActor] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating: set[asyncio.Task[Run]] = set()
        self._early: list[RunActor] = []
        self._closing = self._closed = False
        self._draining: asyncio.Event | None = None

    # -- new runs

    async def start(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        trigger: Trigger,
        caller: str,
        request: Request | None,
        selection: Selection | None = None,
        origin: Origin | None = None,
    ) -> Run:
        """From inside of a step, which `origin` is, it is as deep in a chain of events as the step's run.

        Raises WorkflowNotFoundError, ParamError, ActiveRunError, RequestReusedError, StoppingError, RefusedError,
        QueueFullError, NoPriorResultError, UnknownScopeError, UnknownStepError, NothingToRunError.
        """
        made = await self._made_before(request)
        if made is not None:
            return made
        self._check_open("start a run")
        new = await self._starting.new(
            workflow, params, trigger=trigger, caller=caller, selection=selection or Selection()
        )
        return await self._enter(await self._behind(origin, new), request)

    async def retry(
        self,
        run_id: str,
        *,
        from_steps: Collection[str] = (),
        everything: bool = False,
        newest: bool = False,
        caller: str,
        request: Request | None,
        origin: Origin | None = None,
    ) -> Run:
        """A new run that repeats what failed in an ended one. Raises as `Starting.again`, and as `start`."""
        made = await self._made_before(request)
        if made is not None:
            return made
        self._check_open("retry a run")
        new = await self._starting.again(
            run_id, from_steps=from_steps, everything=everything, newest=newest, caller=caller
        )
        return await self._enter(await self._behind(origin, new), request)

    async def _behind(self, origin: Origin | None, new: NewRun) -> NewRun:
        """With no fewer runs before it in its chain than the step has that asks for it."""
        cause = await self.origins.cause(origin)
        if cause is None or cause.depth <= new.run.depth:
            return new
        return replace(new, run=replace(new.run, depth=cause.depth))

    async def requeue(
        self,
        letter_id: str,
        *,
        caller: str,
        request: Request | None,
        origin: Origin | None = None,
    ) -> Run:
        """A new run from the step that a dead letter is about. Raises DeadLetterClosedError, and as `retry`."""
        made = await self._made_before(request)
        if made is not None:
            return made
        self._check_open("requeue a dead letter")
        letter = await self._store.get_dead_letter(letter_id)
        if letter is None:
            raise DeadLetterNotFoundError(letter_id)
        step = letter.step.partition("[")[0]
        new = await self._starting.again(
            letter.run_id, from_steps=(step,), everything=False, newest=False, caller=caller
        )
        new = await self._behind(origin, new)
        return await self._enter(new, request, requeue=letter_id, by=caller)

    async def preview(
        self, workflow: str, params: Mapping[str, Any], selection: Selection, *, caller: str = ""
    ) -> Preview:
        """What `start` would do; nothing is stored. Raises as `start` does, and RenderError."""
        return await self._starting.preview(workflow, params, selection, caller)

    async def scheduled(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        caller: str,
        schedule: str,
        at: datetime,
        missed: Sequence[datetime],
        ahead: int = 0,
    ) -> NewRun:
        """The run of a due time, not stored yet; `ahead` others of its workflow come first. Raises as `start` does."""
        if self._closing:
            raise StoppingError("the daemon is stopping")
        new = await self._starting.new(
            workflow, params, trigger=Trigger.SCHEDULE, caller=caller, selection=Selection()
        )
        self._check_queue(new, ahead)
        run = replace(new.run, schedule=schedule, scheduled_at=at, missed=tuple(missed))
        return replace(new, run=run)

    async def triggered(
        self, workflow: str, event: Emitted, *, priority: int | None, trigger: Trigger
    ) -> NewRun:
        """The run that an event starts, not stored yet. Raises as `start` does. `priority` None: the workflow's."""
        if self._closing:
            raise StoppingError("the daemon is stopping")
        params = event.params if workflow == event.workflow else {}
        new = await self._starting.new(
            workflow, params, trigger=trigger, caller=event.caller or event.source.value, selection=Selection()
        )  # fmt: skip
        run = replace(
            new.run,
            event=event.seen(),
            depth=event.depth,
            priority=new.run.priority if priority is None else priority,
            schedule=event.schedule,
            scheduled_at=event.scheduled_at,
        )
        return replace(new, run=run)

    def begin(self, new: NewRun, run: Run) -> None:
        """A run that was stored elsewhere begins when it is its turn."""
        self._line_up(self.take_up(new.plan, new.base_dir, run))

    async def start_child(
        self, workflow: str, params: dict[str, Any], *, run_id: str, parent: Run, step: str
    ) -> Run:
        there = await self._store.get_run_page(run_id, limit=0)
        if there is not None:
            return there
        new = await self._starting.new(
            workflow, params, trigger=Trigger.PARENT, caller=parent.caller, selection=Selection(),
            run_id=run_id, parent_run=parent.id, parent_step=step,
        )  # fmt: skip
        return await self._enter(replace(new, run=replace(new.run, depth=parent.depth)), None)

    async def _made_before(self, request: Request | None) -> Run | None:
        """Whatever became of the workflow since, a repeated request is answered with the run it made."""
        return await self._store.run_of_request(request) if request is not None else None

    def _check_open(self, doing: str) -> None:
        if self._closing:
            raise StoppingError(f"cannot {doing}: the daemon is stopping")
        self._admission.check(doing)

    async def _enter(
        self, new: NewRun, request: Request | None, *, requeue: str = "", by: str = ""
    ) -> Run:
        self._check_queue(new)
        # A caller who gives up must not leave a run behind that is stored and never begun.
        task = asyncio.get_running_loop().create_task(self._create(new, request, requeue, by))
        self._creating.add(task)
        task.add_done_callback(self._creating.discard)
        return await asyncio.shield(task)

    def _check_queue(self, new: NewRun, ahead: int = 0) -> None:
        """`ahead` runs of its workflow will enter the line before it, and are not in it yet."""
        name = new.run.workflow
        if new.overlap is not Overlap.QUEUE or new.run.parent_run:
            return
        free = max(0, (new.limit or 0) - len(self._lines.under_way(name)))
        if len(self._lines.waiting(name)) + max(0, ahead - free) >= WAITING_MOST:
            raise QueueFullError(name, WAITING_MOST)

    async def _create(self, new: NewRun, request: Request | None, requeue: str, by: str) -> Run:
        limit = new.limit if new.overlap is Overlap.SKIP else None
        try:
            run, is_new = await self._store.create_run(
                new.run, max_active=limit, request=request, requeue=requeue, by=by
            )
        except StoreError:
            self.begin_if_stored(new)
            raise
        if is_new:
            self._line_up(self.take_up(new.plan, new.base_dir, run))
        return run

    def begin_if_stored(self, new: NewRun) -> None:
        """A commit that broke off may have been made all the same: then the run is there, and must begin."""
        self._spawn(self._adopt(new))

    async def _adopt(self, new: NewRun) -> None:
        pause = RETRY_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            with contextlib.suppress(StoreError):
                run = await self._store.get_run(new.run.id)
                break
        if run is not None and run.id not in self._actors:
            self._line_up(self.take_up(new.plan, new.base_dir, run))

    # -- whose turn it is

    def _line_up(self, actor: RunActor) -> None:
        if not self._recovery.loaded.is_set():
            # Who waits already is not known yet.
            self._early.append(actor)
            return
        new = NewRun(plan=actor.plan, base_dir=actor.base_dir, run=actor.run)
        if new.overlap is Overlap.REPLACE:
            self._replace(actor.run, actor.plan.workflow.max_active_runs)
        self._lines.enter(actor.run, new.limit)

    def _replace(self, run: Run, limit: int) -> None:
        """Of one workflow's runs that replace each other the newest stays."""
        waiting, begun = self._lines.waiting(run.workflow), self._lines.under_way(run.workflow)
        newer = [other for other in (*waiting, *begun) if self._number(other) > run.number]
        if newer:
            self._actors[run.id].post(CancelRequested(reason=f"replaced by run {newer[0]}"))
        oldest = begun[: max(0, len(begun) - limit + 1)]
        for other in (*waiting, *oldest):
            if self._number(other) < run.number:
                self._actors[other].post(CancelRequested(reason=f"replaced by run {run.id}"))

    def _number(self, run_id: str) -> int:
        """Which of its workflow's runs it is. Ids of a clock that was set back before a restart do not tell."""
        return self._actors[run_id].run.number

    def _begin(self, run_id: str) -> None:
        self._actors[run_id].post(RunStarted())

    def line_up(self, actors: Sequence[RunActor]) -> None:
        for actor in actors:
            if actor.run.state is RunState.RUNNING:
                self._lines.begun(actor.run)
        self._recovery.loaded.set()
        early, self._early = self._early, []
        with self._lines.together():
            for actor in (*actors, *early):
                # One that was started a moment ago may be cancelled by now.
                if actor.run.state is RunState.PENDING:
                    self._line_up(actor)

    # -- what clients ask of active runs

    async def cancel(self, run_id: str, reason: str) -> Run:
        """Answers when the wish is on disk. Raises RunNotFoundError, RunTerminalError."""
        run = await (await self._active(run_id)).ask(CancelRequested(reason=reason))
        if run.state.terminal and run.cancel_requested_at is None:
            raise RunTerminalError(run)
        return run

    async def pause(self, run_id: str) -> Run:
        """No step of it is started from now on; what runs goes on. Raises RunNotFoundError, RunTerminalError."""
        run = await (await self._active(run_id)).ask(PauseRequested())
        if run.state.terminal:
            raise RunTerminalError(run)
        return run

    async def resume(self, run_id: str) -> Run:
        """Raises RunNotFoundError, RunTerminalError."""
        run = await (await self._active(run_id)).ask(ResumeRequested())
        if run.state.terminal:
            raise RunTerminalError(run)
        return run

    async def decide(self, run_id: str, step: str, *, approved: bool, note: str, by: str) -> Run:
        """Raises RunNotFoundError, RunTerminalError, StepNotFoundError, NotWaitingError, NotApproverError."""
        actor = await self._active(run_id)
        waiting = actor.run.steps.get(step)
        if waiting is None:
            raise StepNotFoundError(run_id, step)
        approvers = actor.plan.step(step).approvers
        if approvers and by not in approvers:
            raise NotApproverError(step, by, approvers)
        if waiting.phase is not Phase.APPROVAL or waiting.state is not StepState.RUNNING:
            raise NotWaitingError(run_id, step, waiting.state.value)
        run = await actor.ask(DecisionMade(step=step, approved=approved, by=by, note=note))
        told = run.steps[step].result
        if not isinstance(told, dict) or told.get("by") != by:
            raise NotWaitingError(run_id, step, run.steps[step].state.value)
        return run

    async def delete(self, run_id: str) -> None:
        """Removes an ended run with its files. Raises RunNotFoundError, RunActiveError, RunInUseError."""
        run = self.active(run_id) or await self._store.get_run_page(run_id, limit=0)
        if run is None:
            raise RunNotFoundError(run_id)
        if not run.state.terminal:
            raise RunActiveError(run)
        if self._remove is None or not await self._remove(run_id):
            raise RunInUseError(run_id)

    async def _active(self, run_id: str) -> RunActor:
        if run_id not in self._actors:
            await self._recovery.loaded.wait()
        actor = self._actors.get(run_id)
        if actor is None:
            run = await self._store.get_run_page(run_id, limit=0)
            if run is None:
                raise RunNotFoundError(run_id)
            raise RunTerminalError(run)
        return actor

    # -- what is known of active runs

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

    def waits_for_turn(self, run: Run) -> bool:
        """Whether as many runs of its workflow are under way as may be."""
        return self._lines.waits(run)

    def waits_for_others(self, run: Run) -> bool:
        """Whether as many runs that events started are under way as may be, and that alone holds it up."""
        return self._lines.lacks_place(run)

    def count_of(self, workflow: str) -> int:
        """How many runs of the workflow are under way or wait for their turn."""
        return len(self._lines.under_way(workflow)) + len(self._lines.waiting(workflow))

    def event_runs(self) -> tuple[int, int]:
        """Runs that events started: how many are under way, and how many wait for their turn."""
        return self._lines.by_events()

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
        self._closing = True

    async def drain(self) -> None:
        """Returns when no run is active any more."""
        await self._recovery.loaded.wait()
        self._draining = asyncio.Event()
        if self._actors:
            await self._draining.wait()

    async def cancel_all(self, reason: str) -> None:
        """Returns when every wish is on disk."""
        await self._recovery.loaded.wait()
        wishes = (
            actor.ask(CancelRequested(reason=reason)) for actor in list(self._actors.values())
        )
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
            plan, run, base_dir=base_dir, store=self._store, clock=self._clock, ids=self._ids,
            act=self._saved, start=self._spawn, announcing=self._announcing,
        )  # fmt: skip
        self._actors[run.id] = actor
        return actor

    def stop_child(self, run_id: str) -> None:
        actor = self._actors.get(run_id)
        if actor is not None:
            actor.post(CancelRequested(reason="its parent run stopped it"))

    def note_ended(self, actor: RunActor) -> None:
        if actor.run.launches:
            context = self._rooms.context(actor.plan, actor.run.id, actor.base_dir)
            self._notes.of_ended(context, actor.plan, actor.run)

    async def _saved(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        run = actor.run
        self._changes.notify(run.id, ended=run.state.terminal)
        if not actor.prepared and any(step.source for step in run.steps.values()):
            # What it keeps of another run is its own before anything else happens.
            with contextlib.suppress(
                OSError, ArtifactError
            ):  # whoever starts the first process sees it too
                await self.launches.prepare(actor)
        if run.launches:
            context = self._rooms.context(actor.plan, run.id, actor.base_dir)
            self._notes.of_steps(context, actor.plan, run)
            if run.state.terminal:
                self._notes.of_run(context, run)
        await self._effects.carry_out(actor, effects)

    def _forget(self, actor: RunActor) -> None:
        actor.disarm()
        self._actors.pop(actor.run.id, None)
        self._lines.leave(actor.run)
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
        if not task.cancelled() and task.exception() is not None:
            log.error("a run's task failed", action="task_failed", exc_info=task.exception())
