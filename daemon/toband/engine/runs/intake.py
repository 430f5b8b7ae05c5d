"""Run intake: checks and stores new runs, and puts them into the queue.

Runs of clients and child runs are stored here; those of schedules and events are stored with the line or the event that
starts them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from toband.backoff import Backoff
from toband.domain.emitted_events import Cause, Emitted
from toband.domain.overlap import QUEUE_LIMIT
from toband.domain.run_model import Run, Trigger
from toband.domain.secret_params import is_sealed
from toband.engine.caller import CallOrigin, OriginLookup
from toband.engine.errors import QueueFullError, StoppingError
from toband.engine.execution.step_maskers import StepMaskers
from toband.engine.health.admission import Admits
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_factory import NewRun, RunFactory
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_selection import NO_SELECTION, WHAT_FAILED, RetrySelection, Selection
from toband.ports import Request, RunStore, StoredWorkflow, StoreError, repeats_recorded_call

T = TypeVar("T")

log = structlog.get_logger()


class RunIntake:
    def __init__(
        self,
        *,
        active: ActiveRuns,
        factory: RunFactory,
        store: RunStore,
        queue: RunQueue,
        origins: OriginLookup,
        maskers: StepMaskers,
        admission: Admits,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._active = active
        self._factory = factory
        self._store = store
        self._queue = queue
        self._origins = origins
        self._maskers = maskers
        self._admission = admission
        self._start = start
        self._creating: set[asyncio.Task[Any]] = set()

    async def start(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        trigger: Trigger,
        caller: str,
        request: Request | None,
        selection: Selection = NO_SELECTION,
        labels: Mapping[str, str] | None = None,
        origin: CallOrigin | None = None,
    ) -> Run:
        """Starts a run. One that a step starts, `origin`, is as deep in a chain of events as the run of the step.

        Raises WorkflowNotFoundError, ParamError, ActiveRunError, RequestReusedError, StoppingError, RefusedError,
        QueueFullError, NoPriorResultError, UnknownScopeError, UnknownStepError, NothingToRunError.
        """
        stored = None
        if request is not None and params:
            stored, request = await self._factory.keyed(request, workflow, params)
        make = partial(
            self._factory.new,
            workflow,
            params,
            stored=stored,
            trigger=trigger,
            caller=caller,
            selection=selection,
            labels=labels,
        )
        return await self.admit(make, doing="start a run", request=request, origin=origin)

    async def retry(
        self,
        run_id: str,
        *,
        selection: RetrySelection = WHAT_FAILED,
        newest: bool = False,
        params: Mapping[str, Any] | None = None,
        caller: str,
        request: Request | None,
        origin: CallOrigin | None = None,
    ) -> Run:
        """Starts a run that repeats what failed in an ended one. Raises as `RunFactory.retry`, and as `start`."""
        if request is not None and params:
            request = await self._factory.keyed_retry(request, run_id, params)
        make = partial(self._factory.retry, run_id, selection=selection, newest=newest, params=params, caller=caller)
        return await self.admit(make, doing="retry a run", request=request, origin=origin)

    async def admit(
        self,
        make: Callable[[], Awaitable[NewRun]],
        *,
        doing: str,
        request: Request | None,
        origin: CallOrigin | None,
        requeue: str = "",
        by: str = "",
    ) -> Run:
        """Stores the run that a client asked for, and lets it begin. A repeated request gets the run it made before.

        `requeue` is the dead letter that the run is made for, `by` the client. Raises StoppingError, RefusedError,
        QueueFullError, ActiveRunError, RequestReusedError, DeadLetterClosedError, and whatever `make` raises.
        """
        if request is not None and (made := await self._store.run_of_request(request)) is not None:
            repeats_recorded_call()
            return made
        if self._active.closing:
            raise StoppingError(f"cannot {doing}: the daemon is stopping")
        self._admission.check(doing)
        new = await make()
        cause = await self._origins.cause(origin)
        if cause is not None and origin is not None:
            new = replace(new, run=_started_by(cause, new.run, is_caller=origin.is_caller))
            masker = await self._maskers.of_call(origin)
            if masker is not None:
                # Secret parameters are sealed by now.
                shown = {
                    name: each if is_sealed(each) else masker.mask_value(each) for name, each in new.run.params.items()
                }
                new = replace(new, run=replace(new.run, params=shown))
        return await self._store_and_begin(new, request, requeue=requeue, by=by)

    async def scheduled(
        self,
        stored: StoredWorkflow,
        params: Mapping[str, Any],
        *,
        caller: str,
        schedule: str,
        at: datetime,
        missed: Sequence[datetime],
        scope: str = "",
        ahead: int = 0,
    ) -> NewRun:
        """The run of a due time, not stored yet; `ahead` runs of its workflow come first. Raises as `start`."""
        self._check_open()
        new = await self._factory.new(
            stored.name,
            params,
            stored=stored,
            trigger=Trigger.SCHEDULE,
            caller=caller,
            selection=Selection(scope=scope),
        )
        self._check_queue(new, ahead)
        run = replace(new.run, schedule=schedule, scheduled_at=at, missed=tuple(missed))
        return replace(new, run=run)

    async def backfilled(
        self, stored: StoredWorkflow, params: Mapping[str, Any], *, caller: str, schedule: str, at: datetime, scope: str
    ) -> NewRun:
        """The run of a due time of the past, not stored yet. Raises as `start`."""
        self._check_open()
        new = await self._factory.new(
            stored.name,
            params,
            stored=stored,
            trigger=Trigger.BACKFILL,
            caller=caller,
            selection=Selection(scope=scope),
        )
        return replace(new, run=replace(new.run, schedule=schedule, scheduled_at=at))

    async def store_backfilled(
        self, new: NewRun, store: Callable[[], Awaitable[tuple[str, Run | None]]]
    ) -> tuple[str, Run | None]:
        """Lets the run begin that `store` stores; returns its answer. Raises StoreError."""

        async def work() -> tuple[str, Run | None]:
            try:
                answer = await store()
            except StoreError:
                self.begin_if_stored(new)
                raise
            if answer[1] is not None:
                self.begin(new, answer[1])
            return answer

        return await self._shielded(work())

    async def triggered(
        self,
        workflow: str,
        event: Emitted,
        *,
        stored: StoredWorkflow | None = None,
        priority: int | None,
        scope: str = "",
        trigger: Trigger,
    ) -> NewRun:
        """The run that an event starts, not stored yet. `priority` None: the workflow's own. Raises as `start`."""
        self._check_open()
        params = event.params if workflow == event.workflow else {}
        new = await self._factory.new(
            workflow,
            params,
            stored=stored,
            trigger=trigger,
            caller=event.caller or event.source.value,
            selection=Selection(scope=scope),
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

    async def start_child(
        self, workflow: str, params: dict[str, Any], *, secret: Collection[str], run_id: str, parent: Run, step: str
    ) -> Run:
        """The child run, created now or before; the `secret` parameters must be secret there.

        Raises EngineError, ParamError, SealError, StoreError.
        """
        there = await self._store.get_run_page(run_id, limit=0)
        if there is not None:
            return there
        new = await self._factory.new(
            workflow,
            params,
            trigger=Trigger.PARENT,
            caller=parent.caller,
            secret=secret,
            run_id=run_id,
            parent_run=parent.id,
            parent_step=step,
        )
        return await self._store_and_begin(replace(new, run=replace(new.run, depth=parent.depth)), None)

    def _check_open(self) -> None:
        if self._active.closing:
            raise StoppingError("the daemon is stopping")

    def _check_queue(self, new: NewRun, ahead: int = 0) -> None:
        """`ahead` runs of its workflow are going to enter the queue before it."""
        name = new.run.workflow
        if new.overlap.overflows(active=self._queue.begun(name), waiting=self._queue.waiting(name), ahead=ahead):
            raise QueueFullError(name, QUEUE_LIMIT)

    async def _store_and_begin(self, new: NewRun, request: Request | None, *, requeue: str = "", by: str = "") -> Run:
        self._check_queue(new)
        return await self._shielded(self._create(new, request, requeue, by))

    async def _shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """A client that gives up must not leave a run that is stored and never begins."""
        task = asyncio.get_running_loop().create_task(work)
        self._creating.add(task)
        task.add_done_callback(self._creating.discard)
        return await asyncio.shield(task)

    async def _create(self, new: NewRun, request: Request | None, requeue: str, by: str) -> Run:
        try:
            run, is_new = await self._store.create_run(
                new.run, max_active=new.overlap.skip_limit, request=request, requeue=requeue, by=by
            )
        except StoreError:
            self.begin_if_stored(new)
            raise
        if is_new:
            self.begin(new, run)
        return run

    def begin(self, new: NewRun, run: Run) -> None:
        """Lets a stored run begin when it is its turn; `run` has its number."""
        log.info("run created", action="run_created", run=run.id, run_name=run.name, trigger=run.trigger.value)
        self._queue.enter(self._active.add(new.plan, new.base_dir, run))

    def begin_if_stored(self, new: NewRun) -> None:
        """Lets the run begin if a commit that failed has stored it all the same."""
        self._start(self._adopt(new))

    async def _adopt(self, new: NewRun) -> None:
        backoff = Backoff()
        while True:
            await asyncio.sleep(backoff.pause())
            with contextlib.suppress(StoreError):
                run = await self._store.get_run(new.run.id)
                break
        if run is not None and self._active.actor(run.id) is None:
            self.begin(new, run)


def _started_by(cause: Cause, run: Run, *, is_caller: bool) -> Run:
    """The run of a call from a step: whatever the call says, no person made it."""
    trigger = Trigger.API if run.trigger is Trigger.MANUAL else run.trigger
    caller = cause.caller if is_caller else run.caller
    return replace(run, depth=max(run.depth, cause.depth), caller=caller, trigger=trigger)
