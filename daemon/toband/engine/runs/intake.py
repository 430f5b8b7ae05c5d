"""New runs: checked, stored, and then begun when it is their turn, whoever asked for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from toband.domain.emitted_events import Emitted
from toband.domain.overlap import QUEUE_LIMIT
from toband.domain.run_model import Run, Trigger
from toband.engine.caller import Origin, Origins
from toband.engine.errors import DeadLetterNotFoundError, QueueFullError, StoppingError
from toband.engine.execution.run_actor import RETRY_FIRST, RETRY_MOST, RunActor
from toband.engine.health.admission import Admits
from toband.engine.runs.run_factory import NewRun, Preview, Starting
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_selection import Selection
from toband.ports import Request, Store, StoreError


class ActiveRuns(Protocol):
    """Who keeps the runs that are stored."""

    @property
    def closing(self) -> bool: ...

    def actor(self, run_id: str) -> RunActor | None: ...

    def begin(self, new: NewRun, run: Run) -> None: ...


class Entering:
    def __init__(
        self,
        *,
        active: ActiveRuns,
        starting: Starting,
        store: Store,
        queue: RunQueue,
        origins: Origins,
        admission: Admits,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._active = active
        self._starting = starting
        self._store = store
        self._queue = queue
        self._origins = origins
        self._admission = admission
        self._start = start
        self._creating: set[asyncio.Task[Run]] = set()

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
        cause = await self._origins.cause(origin)
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
        if self._active.closing:
            raise StoppingError("the daemon is stopping")
        new = await self._starting.new(workflow, params, trigger=Trigger.SCHEDULE, caller=caller, selection=Selection())
        self._check_queue(new, ahead)
        run = replace(new.run, schedule=schedule, scheduled_at=at, missed=tuple(missed))
        return replace(new, run=run)

    async def triggered(self, workflow: str, event: Emitted, *, priority: int | None, trigger: Trigger) -> NewRun:
        """The run that an event starts, not stored yet. Raises as `start` does. `priority` None: the workflow's."""
        if self._active.closing:
            raise StoppingError("the daemon is stopping")
        params = event.params if workflow == event.workflow else {}
        new = await self._starting.new(
            workflow, params, trigger=trigger, caller=event.caller or event.source.value, selection=Selection()
        )
        run = replace(
            new.run,
            event=event.seen(),
            depth=event.depth,
            priority=new.run.priority if priority is None else priority,
            schedule=event.schedule,
            scheduled_at=event.scheduled_at,
        )
        return replace(new, run=run)

    async def start_child(self, workflow: str, params: dict[str, Any], *, run_id: str, parent: Run, step: str) -> Run:
        """The child, made now or before. Raises EngineError, ParamError, StoreError."""
        there = await self._store.get_run_page(run_id, limit=0)
        if there is not None:
            return there
        new = await self._starting.new(
            workflow,
            params,
            trigger=Trigger.PARENT,
            caller=parent.caller,
            selection=Selection(),
            run_id=run_id,
            parent_run=parent.id,
            parent_step=step,
        )
        return await self._enter(replace(new, run=replace(new.run, depth=parent.depth)), None)

    async def _made_before(self, request: Request | None) -> Run | None:
        """Whatever became of the workflow since, a repeated request is answered with the run it made."""
        return await self._store.run_of_request(request) if request is not None else None

    def _check_open(self, doing: str) -> None:
        if self._active.closing:
            raise StoppingError(f"cannot {doing}: the daemon is stopping")
        self._admission.check(doing)

    async def _enter(self, new: NewRun, request: Request | None, *, requeue: str = "", by: str = "") -> Run:
        self._check_queue(new)
        # A caller who gives up must not leave a run behind that is stored and never begun.
        task = asyncio.get_running_loop().create_task(self._create(new, request, requeue, by))
        self._creating.add(task)
        task.add_done_callback(self._creating.discard)
        return await asyncio.shield(task)

    def _check_queue(self, new: NewRun, ahead: int = 0) -> None:
        """`ahead` runs of its workflow are going to enter the queue before it."""
        name = new.run.workflow
        if new.overlap.overflows(active=self._queue.begun(name), waiting=self._queue.waiting(name), ahead=ahead):
            raise QueueFullError(name, QUEUE_LIMIT)

    async def _create(self, new: NewRun, request: Request | None, requeue: str, by: str) -> Run:
        try:
            run, is_new = await self._store.create_run(
                new.run, max_active=new.overlap.skip_limit, request=request, requeue=requeue, by=by
            )
        except StoreError:
            self.begin_if_stored(new)
            raise
        if is_new:
            self._active.begin(new, run)
        return run

    def begin_if_stored(self, new: NewRun) -> None:
        """A commit that broke off may have been made all the same: then the run is there, and must begin."""
        self._start(self._adopt(new))

    async def _adopt(self, new: NewRun) -> None:
        pause = RETRY_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            with contextlib.suppress(StoreError):
                run = await self._store.get_run(new.run.id)
                break
        if run is not None and self._active.actor(run.id) is None:
            self._active.begin(new, run)
