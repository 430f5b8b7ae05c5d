"""One life of the daemon without its API: the real adapters and engine, with a virtual clock and scripted steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from doubles.sandbox import InlineSandbox
from soak.scripted_steps import ScriptedSteps
from soak.virtual_time import VirtualAlarm, VirtualClock, VirtualIds, VirtualLoop, waiting_for_commits
from toband.app.adapters import Adapters
from toband.app.engine_parts import EngineParts
from toband.config import load
from toband.domain.identity import Role
from toband.engine.access.door import Door
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.health.admission import Admission
from toband.engine.health.health_conditions import Health
from toband.engine.health.host_monitor import HostMonitor
from toband.engine.retention.clock_trust import ClockTrust
from toband.installation import note_database
from toband.state_dir import StateDir

HEARTBEATS = {
    "toband.engine.schedules.uptime.BEAT": 60.0,
    "toband.engine.schedules.uptime.ON_TIME": 65.0,
    "toband.engine.schedules.scheduler.ON_TIME": 65.0,
    "toband.domain.misfire.ON_TIME": 65.0,
    "toband.engine.schedules.scheduler.LOOK_AGAIN": 600.0,
    "toband.engine.schedules.calendar_refresh.LOOK_AGAIN": 3600.0,
    "toband.engine.events.event_router.LOOK_AGAIN": 600.0,
    "toband.engine.events.event_router.HELD_BACK": 60.0,
    "toband.engine.runs.deadlock_watch.LOOK_EVERY": 300.0,
    "toband.engine.runs.resource_sampling.TICK": 600.0,
    "toband.engine.execution.lock_leftovers.LOOK_EVERY": 600.0,
    "toband.engine.access.audit_log.REFUSALS_EVERY": 600.0,
    "toband.engine.access.tokens.NOTE_EVERY": 600.0,
    "toband.engine.access.step_tokens.LOOK_EVERY": 600.0,
    "toband.engine.secrets.key_ring.CHECK_EVERY": 3600.0,
    "toband.engine.health.host_monitor.LOOK_EVERY": 600.0,
    "toband.supervise.host.daemon_meter.SAMPLE_EVERY": 600.0,
}
"""Seconds between the beats of tasks that only look whether something happened: a year has too many of them. The
scheduler believes that the daemon was not running when its own beat is late by ON_TIME.
"""


class DaemonLife:
    def __init__(
        self, root: Path, clock: VirtualClock, steps: ScriptedSteps, settings: Mapping[str, str], pause: float
    ) -> None:
        """`pause`: seconds between two passes of retention."""
        self._pause = pause
        self.clock = clock
        self._steps = steps
        self._state = StateDir(str(root))
        self._state.acquire()
        self._config = load(None, {}, {"state_dir": str(root), "timezone": "UTC", **settings})
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self, loop: VirtualLoop) -> None:
        clock = cast(Any, self.clock)
        config, state = self._config, self._state
        self.health = health = Health(clock)
        self.adapters = adapters = Adapters(config, state, health, clock, take_over=False, new_database=False)
        adapters.launcher = cast(Any, self._steps)
        adapters.alarm = VirtualAlarm(loop, self.clock)
        adapters.evaluation_sandbox = cast(Any, _Sandbox())
        admission = Admission(adapters.disk, health, 0)
        monitor = HostMonitor(
            state_dir=config.state_dir,
            disk=adapters.disk,
            descriptors=adapters.descriptors,
            health=health,
            admission=admission,
            leave=_refuse,
            monotonic=loop.time,
        )
        adapters.store.watch(monitor)
        await adapters.store.open()
        note_database(state)
        self._parser = DefinitionParser(InlineSandbox())
        self.engine = engine = EngineParts(
            config,
            state,
            adapters,
            health,
            admission,
            self._parser,
            clock,
            doors=[Door(address="unix:///nowhere", role=Role.ADMIN)],
            admin=None,
            tools="",
            started_at=self.clock.now(),
        )
        engine.retention._trust = ClockTrust(clock, loop.time)
        engine.row_retention._trust = ClockTrust(clock, loop.time)
        engine.retention._passes = engine.retention._log_checks = self._pause
        await engine.access.tokens.load()
        await self._steps.open(engine.runs.report)
        await engine.runs.recovery.find()
        works = [*engine.companions(), *engine.starters(), monitor.watch(adapters.store)]
        self._tasks = [loop.create_task(each) for each in works]

    async def stop(self) -> None:
        """A clean stop, as `app.application` makes it."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self.engine.end_streams()
        await self.engine.access.tokens.flush()
        await self.engine.runs.close()
        await self._steps.close()
        self._parser.close()
        await self.adapters.close()
        self._state.release()

    async def runs_made(self) -> int:
        """The number of runs since the first life, of which most are removed by now."""
        return sum(span.last for span in await self.adapters.store.run_spans())

    def check_tasks(self) -> None:
        """Raises what has ended one of the daemon's tasks."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error


@contextmanager
def on_virtual_time(loop: VirtualLoop, clock: VirtualClock) -> Iterator[None]:
    """Daemons that are started here live on that clock."""
    ids = VirtualIds(clock)
    with ExitStack() as patches:
        for path, seconds in HEARTBEATS.items():
            patches.enter_context(patch(path, seconds))
        for module in ("toband.app.engine_parts", "toband.store.rows.definition_events"):
            patches.enter_context(patch(f"{module}.uuid_utils", ids))
        patches.enter_context(waiting_for_commits(loop))
        yield


class _Sandbox(InlineSandbox):
    async def close(self) -> None:
        return None


def _refuse(error: Exception) -> None:
    raise error
