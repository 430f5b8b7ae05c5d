"""Unread runs: runs that could not be loaded after a restart. They do not continue, and their processes may still live.

So all locks that such a run could hold stay held until its processes are proved to be gone, or an operator releases
them. This is known in memory only: the next start of the daemon decides it again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, assert_never

import structlog

from toband.domain.attempt_model import Attempt
from toband.domain.lock_rules import LockLeftover, LockUser
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptVoided, Event
from toband.domain.run_model import Run, RunState
from toband.engine.execution.lock_table import LockTable
from toband.engine.health.internal_errors import unexpected
from toband.ports import Clock, Launcher, Store

log = structlog.get_logger()


class UnreadRuns:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        launcher: Launcher,
        table: LockTable,
        clock: Clock,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._table = table
        self._clock = clock
        self._start = start
        self._held: dict[str, list[LockLeftover]] = {}
        self._live: dict[str, set[str]] = {}
        """Tokens of attempts that are not proved to be gone."""

    async def add(self, run_id: str) -> None:
        """Holds what the run could hold, and looks for its processes in the background."""
        try:
            run = await self._store.get_run_page(run_id, limit=0)
            locks = await self._locks_of(run) if run is not None and run.state is RunState.RUNNING else ()
        except Exception as error:
            unexpected(f"cannot tell which locks run {run_id} holds: it holds none", error)
            return
        if run is None or not locks:
            return
        self._held[run_id] = [self._leftover(lock, run) for lock in sorted(locks)]
        for leftover in self._held[run_id]:
            self._table.keep(leftover)
        self._start(self._look_up(run_id))

    async def _locks_of(self, run: Run) -> Collection[str]:
        """The locks of its workflow and of its steps, and of the step whose child it is.

        Read from the stored definition as it is: it may be the reason why the run could not be loaded.
        """
        parsed = await self._parsed(run)
        found = {*_locks(parsed), *(lock for step in _steps(parsed).values() for lock in _locks(step))}
        parent = await self._store.get_run_page(run.parent_run, limit=0) if run.parent_run else None
        if parent is not None:
            found.update(_locks(_steps(await self._parsed(parent)).get(run.parent_step, {})))
        return found

    async def _parsed(self, run: Run) -> Mapping[str, Any]:
        version = await self._store.get_version(run.workflow, run.version)
        return version.parsed if version is not None else {}

    def _leftover(self, lock: str, run: Run) -> LockLeftover:
        return LockLeftover(
            lock=lock,
            user=LockUser(run.id),
            attempt_id=run.id,
            run_id=run.id,
            workflow=run.workflow,
            number=run.number,
            step="",
            since=self._clock.now(),
        )

    async def _look_up(self, run_id: str) -> None:
        try:
            attempts = [attempt async for attempt in self._attempts(run_id)]
            self._live[run_id] = {attempt.token for attempt in attempts}
            for attempt in attempts:
                event = await self._launcher.recover(attempt)
                if event is not None:
                    self.report(run_id, event)
        except Exception as error:
            unexpected(f"cannot look up the processes of run {run_id}: its locks stay held", error)
            return
        self._free(run_id)

    async def _attempts(self, run_id: str) -> AsyncIterator[Attempt]:
        """Those of its processes that have not ended, as far as the database knows."""
        ordinal = 0
        while page := await self._store.run_attempts(run_id, from_ordinal=ordinal):
            for attempt in page:
                if not attempt.state.terminal and not attempt.child:
                    yield attempt
            ordinal = page[-1].ordinal + 1

    def report(self, run_id: str, event: Event) -> None:
        """An attempt of a run may have ended; other runs and events are ignored."""
        live = self._live.get(run_id)
        if live is not None and isinstance(event, AttemptEnded | AttemptLost | AttemptVoided) and _gone(event):
            live.discard(event.token)
            self._free(run_id)

    def _free(self, run_id: str) -> None:
        if self._live.get(run_id):
            return
        self._live.pop(run_id, None)
        for leftover in self._held.pop(run_id, ()):
            log.info("lock freed", action="lock_freed", lock=leftover.lock, run=run_id)
            self._table.give_up(leftover)


def _steps(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    return {step["id"]: step for step in parsed.get("steps", ())}


def _locks(parsed: Mapping[str, Any]) -> Collection[str]:
    return parsed.get("locks") or ()


def _gone(event: AttemptEnded | AttemptLost | AttemptVoided) -> bool:
    """Whether all of its processes are proved to be gone."""
    match event:
        case AttemptEnded():
            return event.not_started or (event.ending.proved_empty and not event.ending.survivors)
        case AttemptLost():
            return event.orphans.gone
        case AttemptVoided():
            return True
        case _:
            assert_never(event)
