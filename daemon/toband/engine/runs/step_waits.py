"""Steps with `job_type: wait`: finds out what each waits for, and ends its wait when that has come.

A wait for an event begins with the sequence of the last stored event. Later events are offered in the order in which
they were stored, before they are resolved, and an event is resolved only when the waits that it ends are saved as
ended. After a crash, events that are still PENDING are offered again. So no event is missed, and none counts twice.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog

from toban.definition import RenderError, references, wait_end
from toband import failpoints
from toband.backoff import Backoff
from toband.domain.emitted_events import Emitted
from toband.domain.run_events import BegunWait, Event, WaitFailed, WaitOver, WaitsBegun
from toband.domain.run_model import Awaited, StepRun
from toband.engine.execution.dispatcher import PASSING
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.run_actor import RunActor
from toband.engine.execution.template_scope import TemplateScope
from toband.engine.health.internal_errors import unexpected
from toband.engine.runs.file_waits import FileWaits
from toband.engine.runs.wait_clock import Key, WaitClock
from toband.engine.system_events import SystemEvents
from toband.ports import AwaitedFiles, Clock, EventStore, StoreError

AT_ONCE = 0.02
"""Seconds of judging an event before other tasks get their turn."""

SAVED_TOGETHER = 500
"""Waits of one run that begin in one transaction."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Waiter:
    key: Key
    actor: RunActor
    awaited: Awaited

    @property
    def step(self) -> StepRun | None:
        """The step, if it still waits for this."""
        found = self.actor.run.steps.get(self.key[1])
        waits = found is not None and found.awaited is not None and _key(self.actor, found) == self.key
        return found if waits else None


class StepWaits:
    """Belongs to the event loop. After a restart everything may be repeated."""

    def __init__(
        self,
        *,
        events: EventStore,
        files: AwaitedFiles,
        work: Callable[[str], str],
        seen: TemplateScope,
        evaluation: ExpressionEvaluator,
        announcing: SystemEvents,
        clock: Clock,
        zone: str,
        find: Callable[[str], RunActor | None],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`work` is the working directory of a run, `zone` the time zone of workflows that name none."""
        self._events = events
        self._work = work
        self._seen = seen
        self._evaluation = evaluation
        self._clock = clock
        self._zone = zone
        self._find = find
        self._start = start
        self._waiters: dict[str, dict[Key, _Waiter]] = {}
        """By event type."""
        self._beginning: dict[str, set[asyncio.Future[None]]] = {}
        """By event type: waits whose first event is known, and which are not saved yet."""
        self._unsaved: dict[str, list[tuple[BegunWait, asyncio.Future[None]]]] = {}
        """By run, while some are being saved."""
        self._times = WaitClock(clock, self._over)
        self._files = FileWaits(files, clock, self._over, start)
        announcing.awaited = self.awaits

    def close(self) -> None:
        self._times.close()

    def awaits(self, event_type: str) -> bool:
        """Whether a step waits for events of that type."""
        return bool(self._waiters.get(event_type) or self._beginning.get(event_type))

    # -- the beginning of a wait

    def begin(self, actor: RunActor, name: str) -> None:
        """Finds out what the step waits for."""
        self._start(self._begin(actor, name))

    async def _begin(self, actor: RunActor, name: str) -> None:
        step = actor.run.steps[name]
        backoff = Backoff()
        while True:
            try:
                return await self._try_begin(actor, step)
            except (OSError, StoreError) as error:
                if isinstance(error, OSError) and error.errno not in PASSING:
                    return self._fail(actor, step, f"cannot read the results of steps: {error}")
                log.error(
                    "cannot begin to wait, trying again",
                    action="wait_failed",
                    run=actor.run.id,
                    step=name,
                    error=str(error),
                )
                await asyncio.sleep(backoff.pause())
            except Exception as error:
                # The run must not wait for ever.
                unexpected(f"cannot begin the wait of step {name} of run {actor.run.id}", error)
                return self._fail(actor, step, f"unexpected error: {type(error).__name__}: {error}")

    async def _try_begin(self, actor: RunActor, step: StepRun) -> None:
        """Raises OSError, StoreError."""
        definition = actor.plan.step(step.id)
        assert definition.wait is not None
        try:
            awaited = await self._rendered(actor, step)
        except RenderError as error:
            return self._fail(actor, step, str(error))
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        types = definition.wait.events
        for event_type in types:
            self._beginning.setdefault(event_type, set()).add(begun)
        try:
            if types:
                awaited = replace(awaited, events=types, after=await self._events.last_event())
            failpoints.hit("wait.begin")
            await self._save(actor, BegunWait(step=step.id, attempts=step.attempts, awaited=awaited))
        finally:
            begun.set_result(None)
            for event_type in types:
                self._beginning[event_type].discard(begun)

    async def _save(self, actor: RunActor, wait: BegunWait) -> None:
        """Returns when the wait is saved. Those of a run that come meanwhile share the next change of the run."""
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        unsaved = self._unsaved.get(actor.run.id)
        if unsaved is None:
            self._unsaved[actor.run.id] = [(wait, saved)]
            self._start(self._save_all(actor))
        else:
            unsaved.append((wait, saved))
        await saved

    async def _save_all(self, actor: RunActor) -> None:
        unsaved = self._unsaved[actor.run.id]
        while unsaved:
            saving, unsaved[:SAVED_TOGETHER] = unsaved[:SAVED_TOGETHER], []
            try:
                await actor.ask(WaitsBegun(waits=tuple(wait for wait, _ in saving)))
            except Exception as error:
                for _, saved in saving:
                    saved.set_exception(error)
            else:
                for _, saved in saving:
                    saved.set_result(None)
        del self._unsaved[actor.run.id]

    async def _rendered(self, actor: RunActor, step: StepRun) -> Awaited:
        """Raises RenderError, OSError."""
        plan, run, definition = actor.plan, actor.run, actor.plan.step(step.id)
        scope = await self._seen.scope(plan, run, step, references(definition), base_dir=actor.base_dir)
        wait = await self._evaluation.wait(plan.workflow, definition, scope, run_id=run.id)
        since = step.started_at or self._clock.now()
        if wait.duration is not None:
            return Awaited(until=since + timedelta(seconds=wait.duration))
        if wait.until:
            try:
                return Awaited(until=wait_end(wait.until, plan.workflow.timezone or self._zone, since))
            except (ValueError, OverflowError) as error:
                raise RenderError(f"cannot render wait.until of step {definition.id}: {error}") from None
        if not wait.file:
            return Awaited()
        return Awaited(file=_below(actor.base_dir or self._work(run.id), wait.file))

    def _fail(self, actor: RunActor, step: StepRun, error: str) -> None:
        actor.post(WaitFailed(step=step.id, attempts=step.attempts, error=error))

    # -- waiting

    def keep(self, actor: RunActor, name: str) -> None:
        """Ends the wait of a step when what it waits for has come."""
        step = actor.run.steps[name]
        awaited, wait = step.awaited, actor.plan.step(name).wait
        if awaited is None or wait is None:
            return
        key = _key(actor, step)
        if awaited.until is not None and wait.duration is not None:
            # The clock of the system may be set: a duration does not depend on it.
            actor.arm_step(name, awaited.until, WaitOver(step=name, attempts=step.attempts))
        elif awaited.until is not None:
            self._times.add(awaited.until, key)
        elif awaited.file:
            self._files.add(key, awaited.file, wait.settle)
        else:
            for event_type in awaited.events:
                self._waiters.setdefault(event_type, {})[key] = _Waiter(key, actor, awaited)

    def restore(self, actors: Iterable[RunActor]) -> None:
        """After a restart, before events are resolved: the waits for events."""
        for actor in actors:
            for step in actor.run.steps.values():
                if step.awaited is not None and step.awaited.events:
                    self.keep(actor, step.id)

    def forget(self, run_id: str) -> None:
        """The run has ended."""
        for waiters in self._waiters.values():
            for key in [key for key in waiters if key[0] == run_id]:
                del waiters[key]
        self._files.forget(lambda key: key[0] == run_id)

    def _over(self, key: Key) -> None:
        run_id, name, attempts = key
        if (actor := self._find(run_id)) is not None:
            actor.post(WaitOver(step=name, attempts=attempts))

    # -- events

    async def offer(self, event: Emitted) -> None:
        """Ends the waits that the event ends; returns when they are saved. Raises OSError for a passing error."""
        while beginning := self._beginning.get(event.type):
            await asyncio.wait(list(beginning))
        turn = time.monotonic()
        for waiter in list(self._waiters.get(event.type, {}).values()):
            if time.monotonic() - turn > AT_ONCE:
                await asyncio.sleep(0)
                turn = time.monotonic()
            if waiter.step is None:
                self._drop(waiter)
            elif event.sequence > waiter.awaited.after:
                await self._judge(waiter, event)

    async def _judge(self, waiter: _Waiter, event: Emitted) -> None:
        actor, step = waiter.actor, waiter.step
        assert step is not None
        answer: Event
        try:
            if not await self._matches(actor, step, event):
                return
            answer = WaitOver(step=step.id, attempts=step.attempts, event=event.seen())
        except OSError as error:
            if error.errno in PASSING:
                raise
            answer = WaitFailed(
                step=step.id, attempts=step.attempts, error=f"cannot read the results of steps: {error}"
            )
        failpoints.hit("wait.matched")
        await actor.ask(answer)
        self._drop(waiter)

    async def _matches(self, actor: RunActor, step: StepRun, event: Emitted) -> bool:
        """A condition without a value, such as for a missing field, does not match. Raises OSError."""
        definition = actor.plan.step(step.id)
        assert definition.wait is not None
        if not definition.wait.condition:
            return True
        try:
            scope = await self._seen.scope(actor.plan, actor.run, step, references(definition), base_dir=actor.base_dir)
            scope = replace(scope, event=event.seen())
            return await self._evaluation.ends_wait(actor.plan.workflow, definition, scope, run_id=actor.run.id)
        except RenderError:
            return False

    def _drop(self, waiter: _Waiter) -> None:
        for event_type in waiter.awaited.events:
            waiters = self._waiters[event_type]
            if waiters.get(waiter.key) is waiter:
                del waiters[waiter.key]


def _below(directory: str, path: str) -> str:
    return os.path.normpath(os.path.join(directory, path))


def _key(actor: RunActor, step: StepRun) -> Key:
    return actor.run.id, step.id, step.attempts
