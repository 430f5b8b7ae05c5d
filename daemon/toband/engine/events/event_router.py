"""Receives events, ends the waits of steps for them, and starts the workflows that listen to them.

An event is stored, and only then acknowledged. Its runs are decided afterwards, in the order in which events were
stored, and saved with that decision in one transaction: after a crash, events still PENDING are decided again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from toban.definition import (
    DAEMON_STARTED,
    check_event_type,
)
from toband import failpoints
from toband.backoff import Backoff
from toband.domain.emitted_events import (
    Emitted,
    EventSource,
)
from toband.domain.lookup_keys import check_key
from toband.domain.transition import Ids
from toband.engine.caller import CallOrigin, OriginLookup
from toband.engine.drain import DrainMode
from toband.engine.errors import (
    EventNotFoundError,
    RefusedError,
    StoppingError,
)
from toband.engine.events.event_matching import Candidate, EventMatcher
from toband.engine.events.event_starts import EventStarts
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.health.admission import Admits
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_queue import RunQueue
from toband.engine.runs.step_waits import StepWaits
from toband.engine.system_events import SystemEvents
from toband.ports import (
    Clock,
    Request,
    Store,
    StoreError,
)

AT_ONCE = 50
"""Events that are decided together."""
WAITING_MOST = 1000
"""Waiting runs of events, from which on events stay PENDING."""
ANSWER_WITHIN = 2.0
"""Seconds that an emitter waits for the runs that its event starts. The event is stored before."""
LOOK_AGAIN = 30.0
HELD_BACK = 0.5
"""Seconds between checks whether events may start runs again."""

log = structlog.get_logger()


class EventRouter:
    """Belongs to the event loop. `resolved_to`: every event up to that sequence is resolved, or cut."""

    def __init__(
        self,
        *,
        store: Store,
        active: ActiveRuns,
        queue: RunQueue,
        intake: RunIntake,
        origins: OriginLookup,
        clock: Clock,
        ids: Ids,
        announcing: SystemEvents,
        admission: Admits,
        draining: DrainMode,
        evaluation: ExpressionEvaluator,
        waits: StepWaits,
        started: Mapping[str, Any],
    ) -> None:
        """`started` is the payload of DAEMON_STARTED."""
        self._store = store
        self._active = active
        self._queue = queue
        self._intake = intake
        self._origins = origins
        self._clock = clock
        self._ids = ids
        self._announcing = announcing
        self._admission = admission
        self._draining = draining
        draining.after(self.look)
        self._to_say: Emitted | None = replace(announcing.event(DAEMON_STARTED, started), dedupe_key=ids.new_id())
        self._matching = EventMatcher(store, evaluation)
        self._starts = EventStarts(store=store, intake=intake, clock=clock, matching=self._matching)
        self._known: dict[int, Emitted] = {}
        """Events by sequence that need not be read: they were stored a moment ago."""
        self._waiters: dict[str, asyncio.Future[Emitted]] = {}
        self._advanced = asyncio.Event()
        self._generation = 0
        self._waits = waits
        self._offered_to = 0
        self._closed = False
        self.resolved_to = 0

    # -- life

    async def run(self) -> None:
        """Never returns. Failed database calls are retried."""
        await self._active.loaded.wait()
        backoff = Backoff()
        while True:
            self._announcing.fresh.clear()
            try:
                await self._learn()
                await self._say_started()
                wait = await self._resolve_all()
                wait = min(wait, await self._end_bursts())
                backoff.reset()
            except Exception as error:
                # Whatever the error is, the events are stored, and other tasks must continue.
                unexpected = error if not isinstance(error, StoreError) else None
                log.error(
                    "cannot resolve events, trying again",
                    action="resolve_failed",
                    error=str(error),
                    exc_info=unexpected,
                )
                await asyncio.sleep(backoff.pause())
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._announcing.fresh.wait()

    def changed(self) -> None:
        """Definitions may have changed: reloads the listeners, and checks for events."""
        self._generation += 1
        self._matching.forget()
        self._announcing.know(None)
        self.look()

    def look(self) -> None:
        """There may be pending events."""
        self._announcing.fresh.set()

    def close(self) -> None:
        """Wakes the watchers for the last time."""
        self._closed = True
        self._advanced.set()

    def listens(self, event_type: str) -> bool:
        """Whether a workflow may listen to events of that type."""
        return self._announcing.listens(event_type)

    async def _learn(self) -> None:
        if self._announcing.knows:
            return
        generation = self._generation
        listened = await self._store.listened_types()
        if generation == self._generation:
            self._announcing.know(listened)

    async def _say_started(self) -> None:
        """Stored once, regardless of earlier tries: it has a dedupe key of its own. Raises StoreError."""
        if self._to_say is None or not self._announcing.knows:
            return  # stored already, or the listeners have just changed and are checked again at once
        if self.listens(DAEMON_STARTED):
            await self._store.add_events([self._to_say])
        self._to_say = None

    # -- receiving events

    async def emit(
        self,
        event_type: str,
        payload: Any,
        *,
        caller: str,
        dedupe_key: str = "",
        origin: CallOrigin | None = None,
        request: Request | None = None,
        workflow: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> tuple[Emitted, bool]:
        """Stores an event; returns it and whether it is new. Usually its runs are decided by then.

        It starts `workflow` with `params`, if one is given, besides those that listen to it.

        A repeated request gets the event that it created, in its current state, reported as new.

        Raises ValueError for an invalid type or key, EventSourceNotFoundError, RefusedError, StoppingError,
        RequestReusedError.
        """
        check_event_type(event_type)
        check_key(dedupe_key)
        if self._closed:
            raise StoppingError("cannot take an event: the daemon is stopping")
        self._admission.check("take an event")
        event = Emitted(
            id=self._ids.new_id(),
            type=event_type,
            payload=payload,
            at=self._clock.now(),
            source=EventSource.CLIENT,
            caller=caller,
            dedupe_key=dedupe_key,
            workflow=workflow,
            params=params or {},
        )
        if origin is not None:
            by = await self._origins.find(origin)
            event = replace(
                event,
                source=EventSource.STEP,
                caller=by.caller if origin.is_caller else caller,
                source_run=by.run_id,
                source_step=by.step,
                depth=by.depth + 1,
            )
        answer: asyncio.Future[Emitted] = asyncio.get_running_loop().create_future()
        self._waiters[event.id] = answer
        try:
            stored, is_new = await self._add(event, request)
            failpoints.hit("event.stored")
            if stored.id == event.id and not self.why_pending():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ANSWER_WITHIN):
                        stored = await answer
            return stored, is_new
        finally:
            self._waiters.pop(event.id, None)

    async def announce(self, event_type: str, payloads: Sequence[Any]) -> None:
        """Stores events of the daemon itself, if any workflow listens. Raises StoreError, RefusedError."""
        if not payloads or not self.listens(event_type):
            return
        self._admission.check("take an event")
        events = [self._announcing.event(event_type, payload) for payload in payloads]
        try:
            await self._store.add_events(events)
        finally:
            self.look()

    async def _add(self, event: Emitted, request: Request | None) -> tuple[Emitted, bool]:
        try:
            [(stored, is_new)] = await self._store.add_events([event], request=request)
            if stored.id == event.id and len(self._known) < AT_ONCE:
                self._known[stored.sequence] = stored
            return stored, is_new
        finally:
            # A caller that gave up waiting, or got an error, may have stored an event nevertheless.
            self.look()

    # -- starting runs

    def why_pending(self) -> str:
        """Why events start no runs for now; empty if they do."""
        if self._draining.active:
            return "the daemon drains"
        if self._queue.event_runs()[1] >= WAITING_MOST:
            return f"{WAITING_MOST} runs that events started wait for their turn"
        try:
            self._admission.check("start a run")
        except RefusedError as error:
            return str(error)
        return ""

    async def _resolve_all(self) -> float:
        """Decides everything that is PENDING; returns the seconds until the next check. Raises StoreError."""
        while not self.why_pending():
            events: Sequence[Emitted] = self._at_hand()
            last = 0
            if not events:
                last = await self._store.last_event()
                events = await self._store.pending_events(limit=AT_ONCE)
            if not events:
                self._advance(last)
                return LOOK_AGAIN
            if resolved := await self._resolve_some(events):
                self._advance(events[resolved - 1].sequence)
        while events := await self._store.pending_events(after=self._offered_to, limit=AT_ONCE):
            for event in events:
                await self._offer(event)
        return HELD_BACK

    async def _offer(self, event: Emitted) -> None:
        """Ends waits of steps, before anything else follows from the event: they are saved before it is resolved."""
        if event.sequence > self._offered_to:
            await self._waits.offer(event)
            self._offered_to = event.sequence

    async def _end_bursts(self) -> float:
        """Starts the runs of bursts that have ended; returns the seconds until the next may end. Raises StoreError."""
        while not self.why_pending():
            bursts = await self._store.due_bursts(self._clock.now(), limit=AT_ONCE)
            for burst in bursts:
                if self.why_pending():
                    break
                await self._starts.end_burst(burst)
            if not bursts:
                following = await self._store.next_burst()
                if following is None:
                    return LOOK_AGAIN
                return min(LOOK_AGAIN, max(0.0, (following - self._clock.now()).total_seconds()))
        return HELD_BACK

    def _at_hand(self) -> list[Emitted]:
        """The next events after the resolved ones, if this process has just stored them."""
        found: list[Emitted] = []
        while (event := self._known.pop(self.resolved_to + len(found) + 1, None)) is not None:
            found.append(event)
        if not found:
            self._known.clear()
        return found

    def _advance(self, sequence: int) -> None:
        if sequence > self.resolved_to:
            self.resolved_to = sequence
            advanced, self._advanced = self._advanced, asyncio.Event()
            advanced.set()

    async def _resolve_some(self, events: Sequence[Emitted]) -> int:
        """Resolves events in order; those of one batch share commits, and their runs begin when all of them are stored.

        Returns how many; the rest stay PENDING, because the daemon began to drain, for example.
        """
        decided = []
        for event in events:
            if self.why_pending():
                break
            await self._offer(event)
            decided.append(await self._starts.decide(event))
        answers = await asyncio.gather(
            *(self._starts.save(resolution, made) for resolution, made in decided),
            return_exceptions=True,
        )
        failed: BaseException | None = None
        for answer, (_, made) in zip(answers, decided, strict=True):
            if isinstance(answer, BaseException):
                failed = failed or answer
            elif answer is not None:
                for run in answer.runs:
                    self._intake.begin(made[run.id], run)
                waiter = self._waiters.get(answer.event.id)
                if waiter is not None and not waiter.done():
                    waiter.set_result(answer.event)
        if failed is not None:
            raise failed
        return len(decided)

    # -- queries

    async def get(self, event_id: str) -> Emitted:
        """Raises EventNotFoundError."""
        event = await self._store.get_event(event_id)
        if event is None:
            raise EventNotFoundError(event_id)
        return event

    async def explain(self, event_type: str, payload: Any) -> tuple[list[Candidate], int]:
        """The listeners, whether each would start now, and how many workflows do not listen. Raises ValueError."""
        check_event_type(event_type)
        event = Emitted(
            id="",
            type=event_type,
            payload=payload,
            at=self._clock.now(),
            source=EventSource.CLIENT,
        )
        return await self._explain(event)

    async def explain_stored(self, event_id: str) -> tuple[list[Candidate], int]:
        """As `explain`, for a stored event, whatever its outcome. Raises EventNotFoundError."""
        return await self._explain(await self.get(event_id))

    async def _explain(self, event: Emitted) -> tuple[list[Candidate], int]:
        candidates = await self._starts.foresee(event)
        counts = await self._store.counts()
        return candidates, max(0, counts.workflows + counts.jobs - len(candidates))

    async def wait_beyond(self, sequence: int) -> int:
        """Waits until `resolved_to` is above that, and returns it; -1 if the daemon stops."""
        while not self._closed:
            if self.resolved_to > sequence:
                return self.resolved_to
            await self._advanced.wait()
        return -1
