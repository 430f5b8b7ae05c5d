"""The real engine over a real database, with processes that a script plays."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import uuid_utils

from doubles.clock import SystemClock
from doubles.sandbox import InlineSandbox
from doubles.secrets import SecretsInMemory
from toband.app.run_parts import RunParts
from toband.domain.attempt_model import Attempt, Orphans, TreeCause, TreeEnding
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.transition import Ids, transition
from toband.engine.drain import DrainMode
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.health.health_conditions import Health
from toband.engine.run_notifier import RunNotifier
from toband.engine.runs.approvals import Approvals
from toband.engine.runs.run_control import RunControl
from toband.engine.system_events import SystemEvents
from toband.file_watch.awaited_files import FileLooks
from toband.ports import Clock, Launch, RunChange, StoreError, UpdateResult
from toband.store import SqlStore
from toband.supervise.artifacts.artifact_store import ArtifactFiles
from toband.supervise.artifacts.value_files import ValueFiles
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.log_reader import LogReader

BOOT = "boot"
Checking = Callable[..., None]


@dataclass(slots=True)
class _Process:
    attempt: Attempt
    began: datetime
    timer: asyncio.TimerHandle | None = None


class Processes:
    """Implements `ports.Launcher`. The processes outlive the engine, and their ends are kept until they are settled."""

    boot_id = BOOT

    def __init__(self, files: RunFiles, chance: Random, clock: Clock | None = None) -> None:
        self._files = files
        self._chance = chance
        self._clock = clock or SystemClock()
        self._report: Callable[[str, Event], None] | None = None
        self._live: dict[str, _Process] = {}
        self._ended: dict[str, tuple[str, Event]] = {}
        self.launched: list[str] = []

    async def open(self, report: Callable[[str, Event], None]) -> None:
        self._report = report

    def detach(self) -> None:
        """The daemon is gone: events from now on reach no one."""
        self._report = None

    async def prepare(self, run_id: str, params: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> None:
        self._files.prepare(run_id, params, event)

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        assert attempt.token not in self.launched, "a token was launched twice"
        self.launched.append(attempt.token)
        process = self._begin(attempt)
        outcome = self._chance.choices(["exit", "hang", "lost", "nostart", "void"], [80, 8, 4, 4, 4])[0]
        if outcome == "exit" or launch.timeout is None:
            code = self._chance.choices([0, 1, 75, 64], [70, 10, 15, 5])[0]
            self._later(process, self._chance.random() * 0.02, lambda: self._exited(process, code))
        elif outcome == "hang":
            cause = launch.timeout_cause
            self._later(process, launch.timeout, lambda: self._killed(process, cause))
        elif outcome == "lost":
            lost = AttemptLost(step=attempt.step, token=attempt.token, error="gone", orphans=Orphans.ENDED)
            self._later(process, self._chance.random() * 0.02, lambda: self._over(process, lost))
        elif outcome == "nostart":
            missing = not_started(attempt, "no such file", process.began)
            self._later(process, 0, lambda: self._over(process, missing))
        else:
            void = AttemptVoided(step=attempt.step, token=attempt.token)
            self._later(process, 0, lambda: self._over(process, void))
        if outcome in ("exit", "hang", "lost") and self._chance.random() < 0.8:
            started = AttemptStarted(step=attempt.step, token=attempt.token, pid=1, started_at=process.began)
            asyncio.get_running_loop().call_soon(self._say, attempt, started)

    def stop(self, attempt: Attempt) -> None:
        process = self._live.get(attempt.token)
        if process is not None:
            self._later(process, self._chance.random() * 0.01, lambda: self._killed(process, TreeCause.CANCEL))

    async def recover(self, attempt: Attempt) -> Event | None:
        await asyncio.sleep(0)
        if attempt.token in self._live:
            return None
        if attempt.token in self._ended:
            return self._ended[attempt.token][1]
        return AttemptVoided(step=attempt.step, token=attempt.token)

    def settle(self, token: str) -> None:
        self._ended.pop(token, None)

    def settle_others(self, active: Collection[str]) -> None:
        for token in [token for token in self._ended if token not in active]:
            del self._ended[token]

    def any_alive(self, pids: Collection[int]) -> bool:
        return False

    def running(self) -> int:
        return len(self._live)

    def _begin(self, attempt: Attempt) -> _Process:
        process = self._live[attempt.token] = _Process(attempt, self._clock.now())
        return process

    def _later(self, process: _Process, seconds: float, what: Callable[[], None]) -> None:
        """What a process does next, instead of what it would have done."""
        if process.timer is not None:
            process.timer.cancel()
        process.timer = asyncio.get_running_loop().call_later(seconds, what)

    def _exited(self, process: _Process, code: int) -> None:
        self._over(process, self._end(process, TreeCause.EXITED, exit_code=code))

    def _killed(self, process: _Process, cause: TreeCause) -> None:
        self._over(process, self._end(process, cause, signal=15))

    def _end(self, process: _Process, cause: TreeCause, **how: Any) -> AttemptEnded:
        attempt = process.attempt
        return AttemptEnded(
            step=attempt.step,
            token=attempt.token,
            started_at=process.began,
            finished_at=self._clock.now(),
            ending=TreeEnding(cause=cause, proved_empty=True),
            **how,
        )

    def _over(self, process: _Process, event: Event) -> None:
        attempt = process.attempt
        if self._live.pop(attempt.token, None) is None:
            return
        self._ended[attempt.token] = (attempt.run_id, event)
        self._say(attempt, event)

    def _say(self, attempt: Attempt, event: Event) -> None:
        if self._report is not None:
            self._report(attempt.run_id, event)


class UnreliableStore:
    """The store, whose answer to a save is an error at times, before or after the change was stored."""

    def __init__(self, store: SqlStore, chance: Random, rate: float) -> None:
        self._store = store
        self._chance = chance
        self.rate = rate

    async def save(self, change: RunChange) -> UpdateResult:
        fails = self._chance.random() < self.rate
        if fails and self._chance.random() < 0.5:
            raise StoreError("the disk fails")
        saved = await self._store.save(change)
        if fails:
            raise StoreError("the connection is lost")
        return saved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Admits:
    def check(self, doing: str) -> None:
        return None


class Engine:
    """One life of the daemon's engine: from its start to a crash."""

    def __init__(self, root: Path, store: UnreliableStore, processes: Processes, locks: Mapping[str, int]) -> None:
        clock, chance = SystemClock(), Random(0)
        self.store, self.processes = store, processes
        files = RunFiles(str(root / "runs"))
        sandbox = InlineSandbox()
        made = Ids(new_id=_new_id, new_token=lambda: uuid.uuid4().hex, boot_id=BOOT, random=chance.random)
        self.health = Health(clock)
        adapters = SimpleNamespace(
            store=store,
            launcher=processes,
            logs=LogReader(files),
            values=ValueFiles(files),
            files=files,
            artifacts=ArtifactFiles(files),
            awaited_files=FileLooks(),
            evaluation_sandbox=sandbox,
        )
        config = SimpleNamespace(
            locks=locks,
            event_concurrency=4,
            default_run_timeout=None,
            attempt_log_limit=None,
            max_attempts_running=3,
            artifact_time=10.0,
            timezone="UTC",
        )
        self._adapters = adapters
        self.parts = RunParts(
            cast(Any, config),
            cast(Any, adapters),
            self.health,
            cast(Any, _Admits()),
            ExpressionEvaluator(sandbox),
            SystemEvents(clock, made),
            cast(Any, clock),
            made,
            RunNotifier(),
            SecretsInMemory({}),
            server="unix:/nowhere",
            tools="",
            draining=DrainMode(),
            restored=False,
        )
        self.approvals = Approvals(self.parts.active)
        self.control = RunControl(self.parts.active, cast(Any, store), clock, remove=_keep)

    async def start(self) -> None:
        await self.processes.open(self.parts.report)
        await self.parts.recovery.find()
        self._recovering = asyncio.get_running_loop().create_task(self.parts.recovery.recover())

    async def crash(self) -> None:
        """Stops at once, whatever it was doing."""
        self.processes.detach()
        self._recovering.cancel()
        await asyncio.gather(self._recovering, return_exceptions=True)
        await self.parts.close()
        await self._adapters.artifacts.close()
        # What it had sent to the database is stored before the next life begins, as a database does for a dead client.
        await self.store.try_write()
        self._adapters.logs.close()


def _new_id() -> str:
    return str(uuid_utils.uuid7())


async def _keep(_run_id: str) -> bool:
    return False


@contextmanager
def checked(check: Checking) -> Iterator[None]:
    """`check` sees every transition of every run: the plan, the run before and after, the event, effects and time."""

    def checking(plan: Any, run: Any, event: Event, *, at: datetime, ids: Ids) -> Any:
        after, effects = transition(plan, run, event, at=at, ids=ids)
        check(plan, run, after, event, effects, at)
        return after, effects

    with patch("toband.engine.execution.run_actor.transition", checking):
        yield
