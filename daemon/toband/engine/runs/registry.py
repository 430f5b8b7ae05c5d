"""Registry of active runs: one actor for each run that has not ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from toban.definition import Workflow
from toband.domain.plan import Plan
from toband.domain.run_events import CancelRequested
from toband.domain.run_model import Run
from toband.domain.transition import Ids
from toband.engine.errors import RunNotFoundError, RunTerminalError
from toband.engine.execution.run_actor import Act, LeftoverLocks, RunActor
from toband.engine.system_events import SystemEvents
from toband.ports import Clock, RunStore

log = structlog.get_logger()


class ActiveRuns:
    """Belongs to the event loop. Call `connect` before the first `add`."""

    def __init__(
        self,
        *,
        store: RunStore,
        clock: Clock,
        ids: Ids,
        announcing: SystemEvents,
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._announcing = announcing
        self._start = start
        self._act: Act
        self._locks: LeftoverLocks
        self._actors: dict[str, RunActor] = {}
        self._drained: asyncio.Event | None = None
        self.on_end: Callable[[str], None] = lambda _: None
        """Called with the workflow of each run that has ended."""
        self.on_add: Callable[[str], None] = lambda _: None
        """Called with the id of each run that was stored or loaded."""
        self.loaded = asyncio.Event()
        """Set when all runs that had not ended before the restart are here."""
        self.closing = False
        """Set when no more runs may be created; active ones go on."""

    def connect(self, act: Act, locks: LeftoverLocks) -> None:
        """`act` carries out the effects of every saved transition."""
        self._act = act
        self._locks = locks

    @property
    def count(self) -> int:
        return len(self._actors)

    def add(self, plan: Plan, base_dir: str, run: Run) -> RunActor:
        actor = RunActor(
            plan,
            run,
            base_dir=base_dir,
            store=self._store,
            clock=self._clock,
            ids=self._ids,
            act=self._act,
            start=self._start,
            announcing=self._announcing,
            locks=self._locks,
        )
        self._actors[run.id] = actor
        self.on_add(run.id)
        return actor

    def remove(self, actor: RunActor) -> None:
        """The run has ended."""
        run = actor.run
        actor.disarm()
        self._actors.pop(run.id, None)
        self.on_end(run.workflow)
        if self._drained is not None and not self._actors:
            self._drained.set()
        log.info("run ended", action="run_ended", run=run.id, run_name=run.name, state=run.state.value)

    def actor(self, run_id: str) -> RunActor | None:
        return self._actors.get(run_id)

    def run(self, run_id: str) -> Run | None:
        """The run as it was last saved; None if it has ended."""
        actor = self._actors.get(run_id)
        return actor.run if actor is not None else None

    def parents(self) -> dict[str, str]:
        """The parent of each active child run, by ids."""
        runs = (actor.run for actor in self._actors.values())
        return {run.id: run.parent_run for run in runs if run.parent_run in self._actors}

    def descendants(self, run_id: str) -> list[RunActor]:
        """Its active child runs and theirs, parents first."""
        found, above = [], {run_id}
        while below := [actor for actor in self._actors.values() if actor.run.parent_run in above]:
            found += below
            above = {actor.run.id for actor in below}
        return found

    def definitions_of(self, workflow: str) -> list[Workflow]:
        """Those of its active runs, one of each version."""
        actors = (actor for actor in self._actors.values() if actor.run.workflow == workflow)
        return list({actor.run.version: actor.plan.workflow for actor in actors}.values())

    async def find(self, run_id: str) -> RunActor:
        """Waits until the registry is loaded. Raises RunNotFoundError, RunTerminalError."""
        if run_id not in self._actors:
            await self.loaded.wait()
        actor = self._actors.get(run_id)
        if actor is None:
            run = await self._store.get_run_page(run_id, limit=0)
            if run is None:
                raise RunNotFoundError(run_id)
            raise RunTerminalError(run)
        return actor

    async def drain(self) -> None:
        """Returns when no run is active."""
        await self.loaded.wait()
        self._drained = asyncio.Event()
        if self._actors:
            await self._drained.wait()

    async def cancel_all(self, reason: str) -> None:
        """Returns when every request is saved. Child runs are cancelled by their parents, unless for finally steps."""
        await self.loaded.wait()
        first = [actor for actor in self._actors.values() if actor.run.parent_run not in self._actors]
        requests = (actor.ask(CancelRequested(reason=reason)) for actor in first)
        await asyncio.gather(*requests)

    def disarm(self) -> None:
        """Stops all timers; processes go on without the daemon."""
        for actor in self._actors.values():
            actor.disarm()
