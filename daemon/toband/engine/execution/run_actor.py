"""One active run as a serial mailbox. Each event is decided on committed state, saved, and only then acted on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import structlog

from toband.backoff import Backoff
from toband.domain.attempt_model import Orphans
from toband.domain.lock_rules import LockLeftover
from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    Effect,
    Event,
    KeepDeadLetter,
    StepTimeoutPassed,
    name_of,
    name_of_type,
)
from toband.domain.run_model import Run
from toband.domain.transition import Ids, transition
from toband.engine.health.internal_errors import unexpected
from toband.engine.system_events import SystemEvents
from toband.ports import Clock, RunChange, RunStore, StoreError, UpdateResult

log = structlog.get_logger()


class LeftoverLocks(Protocol):
    """Knows which locks stay held when attempts end whose processes may still live."""

    def leftovers(self, actor: RunActor, after: Run) -> tuple[LockLeftover, ...]:
        """Those of a transition that is going to be saved."""
        ...

    def keep(self, leftovers: tuple[LockLeftover, ...]) -> None:
        """They are saved."""
        ...


class Act(Protocol):
    """Carries out the effects of a saved transition, in order."""

    def __call__(self, actor: RunActor, effects: tuple[Effect, ...]) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True, slots=True)
class _Letter:
    event: Event | None
    at: datetime
    answer: asyncio.Future[Run] | None
    then: Callable[[], None] | None = None
    """Called when the event was handled and its consequences are saved."""


class RunActor:
    """Owns the only copy of a run that may change."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        *,
        base_dir: str,
        store: RunStore,
        clock: Clock,
        ids: Ids,
        act: Act,
        start: Callable[[Coroutine[Any, Any, None]], object],
        announcing: SystemEvents,
        locks: LeftoverLocks,
    ) -> None:
        self.plan = plan
        self.run = run
        self.base_dir = base_dir
        self.prepared = False
        self.preparing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._step_timers: dict[str, asyncio.TimerHandle] = {}
        self._store = store
        self._clock = clock
        self._ids = ids
        self._act = act
        self._start = start
        self._announcing = announcing
        self._locks = locks
        self._letters: deque[_Letter] = deque()
        self._busy = False

    def post(self, event: Event, then: Callable[[], None] | None = None) -> None:
        """Delivers an event; it is handled after all earlier ones. `then` is called when its consequences are saved."""
        self._put(_Letter(event, self._clock.now(), None, then))

    async def ask(self, event: Event) -> Run:
        """Delivers an event, and returns the run once its consequences are saved."""
        answer: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._put(_Letter(event, self._clock.now(), answer))
        return await answer

    async def settled(self) -> Run:
        """The run once all delivered events are saved. Until then the database may be ahead of `run`."""
        if not self._busy:
            return self.run
        answer: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._put(_Letter(None, self._clock.now(), answer))
        return await answer

    def arm(self, due: datetime, event: Event) -> None:
        """Posts the event of a timeout of the run at that time; replaces its earlier timer.

        Setting the wall clock meanwhile does not move it.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._post_at(due, event)

    def arm_step(self, step: str, due: datetime, event: Event) -> None:
        """Posts an event of a step at that time, and replaces a timer of the same kind."""
        key = f"{name_of(event)} {step}"
        if (earlier := self._step_timers.get(key)) is not None:
            earlier.cancel()
        self._step_timers[key] = self._post_at(due, event)

    def step_time_left(self, step: str) -> float | None:
        """Seconds until the timeout of a step that is enforced here; None if it has none."""
        timer = self._step_timers.get(f"{name_of_type(StepTimeoutPassed)} {step}")
        return None if timer is None else self._left(timer)

    def _post_at(self, due: datetime, event: Event) -> asyncio.TimerHandle:
        left = max(0.0, (due - self._clock.now()).total_seconds())
        return asyncio.get_running_loop().call_later(left, self.post, event)

    def disarm(self) -> None:
        for timer in (self._timer, *self._step_timers.values()):
            if timer is not None:
                timer.cancel()

    def time_left(self) -> float | None:
        """Seconds until the run's timeout, or that of its finally steps; None if it has none."""
        return None if self._timer is None else self._left(self._timer)

    def _left(self, timer: asyncio.TimerHandle) -> float:
        return max(0.0, timer.when() - asyncio.get_running_loop().time())

    def _put(self, letter: _Letter) -> None:
        self._letters.append(letter)
        if not self._busy:
            self._busy = True
            self._start(self._work())

    async def _work(self) -> None:
        try:
            while self._letters:
                letter = self._letters[0]
                try:
                    if letter.event is not None:
                        await self._handle(letter.event, letter.at)
                except Exception as error:
                    self._letters.popleft()
                    self._broken(letter, error)
                    continue
                self._letters.popleft()
                if letter.then is not None:
                    letter.then()
                if letter.answer is not None and not letter.answer.done():
                    letter.answer.set_result(self.run)
        finally:
            self._busy = False

    def _broken(self, letter: _Letter, error: Exception) -> None:
        """An event that cannot be handled does not block later ones. Such an end of an attempt counts as lost."""
        if letter.answer is not None and not letter.answer.done():
            letter.answer.set_exception(error)
            return
        event = letter.event
        name = name_of(event) if event is not None else "nothing"
        unexpected(f"run {self.run.id} cannot take in {name}", error)
        if isinstance(event, AttemptEnded):
            reason = f"what is known of it cannot be taken in: {error}"
            lost = AttemptLost(step=event.step, token=event.token, error=reason, orphans=Orphans.UNKNOWN)
            self._letters.appendleft(_Letter(lost, letter.at, None))

    async def _handle(self, event: Event, at: datetime) -> None:
        while True:
            before = self.run
            after, effects = transition(self.plan, before, event, at=at, ids=self._ids)
            if after is before:
                return
            letters = tuple(e.letter for e in effects if isinstance(e, KeepDeadLetter))
            announced = self._announcing.of_run(self.plan, before, after)
            leftovers = self._locks.leftovers(self, after)
            change = RunChange(
                before=before,
                after=after,
                at=at,
                event=name_of(event),
                dead_letters=letters,
                touched=after.touched,
                events=announced,
                lock_leftovers=leftovers,
            )
            if await self._save(change):
                self.run = after
                self._locks.keep(leftovers)
                if announced:
                    self._announcing.fresh.set()
                await self._act(self, tuple(effects))
                return

    async def _save(self, change: RunChange) -> bool:
        """True when the change is on disk. False: the stored run differs, and was read again; decide anew.

        A failing database may have stored the change and only failed to confirm it: the stored state is read, and the
        same change is tried again if it is missing.
        """
        before, after = change.before, change.after
        backoff = Backoff()
        while True:
            try:
                saved = await self._store.save(change)
                if saved is UpdateResult.UPDATED:
                    return True
                stored = await self._store.get_run(after.id)
            except StoreError as error:
                log.error("cannot save a run, trying again", action="store_failed", run=after.id, error=str(error))
                await asyncio.sleep(backoff.pause())
                with contextlib.suppress(StoreError):
                    stored = await self._store.get_run(after.id)
                    if stored is not None and stored.sequence == after.sequence:
                        return True
                continue
            if stored is not None and stored.sequence == after.sequence:
                return True
            log.error("a run is not as it was left", action="save_refused", run=after.id)
            if stored is None or stored.sequence <= before.sequence:
                raise RuntimeError(f"run {after.id} cannot be saved")
            self.run = stored
            return False
