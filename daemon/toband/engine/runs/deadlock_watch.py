"""Deadlock watch: fails the step whose child run would wait for its turn for ever, see `domain/deadlocks.py`."""

from __future__ import annotations

import asyncio

import structlog

from toband.domain import run_texts
from toband.domain.deadlocks import find_deadlock
from toband.domain.run_events import CancelRequested
from toband.domain.run_model import run_name
from toband.engine.execution.lock_table import LockTable
from toband.engine.runs.registry import ActiveRuns
from toband.engine.runs.run_queue import RunQueue

LOOK_EVERY = 1.0

log = structlog.get_logger()


class DeadlockWatch:
    """Belongs to the event loop."""

    def __init__(self, *, active: ActiveRuns, queue: RunQueue, table: LockTable) -> None:
        self._active = active
        self._queue = queue
        self._table = table

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Cancels one child run of a deadlock. It has not begun, so nothing is lost that its parent cannot repeat."""
        if not self._queue.children_wait():
            return
        queues = self._queue.states()
        wanted = {lock for queue in queues for run in queue.waiting if run.request for lock in run.request.locks}
        deadlock = find_deadlock(queues, self._table.state(wanted), self._active.parents())
        if deadlock is None:
            return
        victim, *others = deadlock.runs
        actor = self._active.actor(victim)
        if actor is not None:
            reason = run_texts.deadlock([self._name_of(run_id) for run_id in others])
            log.warning("child run cancelled", action="deadlock_ended", run=victim, reason=reason)
            actor.post(CancelRequested(reason=reason))

    def _name_of(self, run_id: str) -> str:
        run = self._active.run(run_id)
        return run_name(run.workflow, run.number) if run is not None else run_id
