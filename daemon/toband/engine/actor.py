"""One active run: a serial mailbox. Each event is decided on committed state, saved, and only then acted on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import structlog

from toband.domain.events import Effect, Event, name_of
from toband.domain.model import Run
from toband.domain.plan import Plan
from toband.domain.transition import Ids, transition
from toband.ports import Clock, RunChange, Store, StoreError, UpdateResult

RETRY_FIRST, RETRY_MOST = 0.05, 5.0

log = structlog.get_logger()


class Act(Protocol):
    """Carries out the effects of a saved transition, in order."""

    def __call__(
        self, actor: RunActor, effects: tuple[Effect, ...]
    ) -> Coroutine[Any, Any, None]: ...


@dataclass(frozen=True, slots=True)
class _Letter:
    event: Event
    at: datetime
    answer: asyncio.Future[Run] | None


class RunActor:
    """Owns the only copy of a run that may change."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        *,
        base_dir: str,
        store: Store,
        clock: Clock,
        ids: Ids,
        act: Act,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.plan = plan
        self.run = run
        self.base_dir = base_dir
        self.prepared = False
        self.timer: asyncio.TimerHandle | None = None
        self._store = store
        self._clock = clock
        self._ids = ids
        self._act = act
        self._start = start
        self._letters: deque[_Letter] = deque()
        self._busy = False

    def post(self, event: Event) -> None:
        """Delivers a fact; it is handled after those before it."""
        self._put(_Letter(event, self._clock.now(), None))

    async def ask(self, event: Event) -> Run:
        """Delivers a fact and answers the run as it is once that is saved."""
        answer: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._put(_Letter(event, self._clock.now(), answer))
        return await answer

    def _put(self, letter: _Letter) -> None:
        self._letters.append(letter)
        if not self._busy:
            self._busy = True
            self._start(self._work())

    async def _work(self) -> None:
        try:
            while self._letters:
                letter = self._letters[0]
                await self._handle(letter)
                self._letters.popleft()
                if letter.answer is not None and not letter.answer.done():
                    letter.answer.set_result(self.run)
        finally:
            self._busy = False

    async def _handle(self, letter: _Letter) -> None:
        pause = RETRY_FIRST
        while True:
            before = self.run
            after, effects = transition(
                self.plan, before, letter.event, at=letter.at, ids=self._ids
            )
            if after is before:
                return
            try:
                saved = await self._store.save(
                    RunChange(before=before, after=after, at=letter.at, event=name_of(letter.event))
                )
            except StoreError as error:
                log.error(
                    "cannot save a run, trying again", action="save_failed", run=before.id, error=str(error)
                )  # fmt: skip
            else:
                if saved is UpdateResult.UPDATED:
                    self.run = after
                    await self._act(self, tuple(effects))
                    return
                log.error(
                    "a run is not as it was left", action="save_refused", run=before.id, answer=saved.value
                )  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(RETRY_MOST, pause * 2)
            await self._reload()

    async def _reload(self) -> None:
        """Takes what is committed as the truth; whatever this process believed is forgotten."""
        try:
            run = await self._store.get_run(self.run.id)
        except StoreError:
            return
        if run is not None:
            self.run = run
