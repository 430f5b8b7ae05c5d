"""A launcher on a state directory of its own, with everything it reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from doubles.clock import SystemClock
from doubles.conditions import Conditions
from helpers.gate import Gate
from helpers.processes import Process, alive, children_of, command_of, marked, seen, stat_of
from helpers.wait import DEADLINE, wait_for
from toban.definition import Resources, StepSandbox
from toband.domain.attempt_model import Attempt, AttemptState, TreeCause
from toband.domain.run_events import AttemptEnded, AttemptLost, AttemptStarted, AttemptVoided, Event
from toband.ports import Launch, LogKind, SecretMaterial
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch.launcher import ProcessLauncher, ShimPatience
from toband.supervise.launch.shim_pool import PARKED
from toband.supervise.logs.log_reader import LogReader
from toband.supervise.shim import frames
from toband.supervise.shim.cgroups import Cgroups

RUN = "run-1"
E = TypeVar("E", AttemptEnded, AttemptLost, AttemptStarted, AttemptVoided)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test's files are, and the marker that everything it starts carries."""

    root: str
    marker: str

    @property
    def files(self) -> RunFiles:
        return RunFiles(f"{self.root}/runs")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str) -> str:
        with open(self.path(name)) as file:
            return file.read()

    def write(self, name: str, text: str = "") -> str:
        """Makes a file; its path."""
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "MARKER": self.marker}


def new_attempt(step: str = "step", *, id: str = "", token: str = "") -> Attempt:  # noqa: A002
    return Attempt(
        id=id or uuid4().hex,
        run_id=RUN,
        step=step,
        number=1,
        ordinal=0,
        token=token or uuid4().hex,
        state=AttemptState.STARTING,
        created_at=datetime.now(UTC),
    )


def new_launch(
    place: Place,
    argv: Sequence[str],
    *,
    attempt: Attempt | None = None,
    timeout: float | None = None,
    cause: TreeCause = TreeCause.TIMEOUT,
    idle_timeout: float | None = None,
    grace: float = 0.2,
    env: Mapping[str, str] | None = None,
    env_files: Sequence[tuple[str, bool]] = (),
    workspace: str | None = None,
    user: str = "",
    resources: Resources | None = None,
    no_new_privileges: bool = False,
    sandbox: StepSandbox | None = None,
    log_limit: int | None = None,
    stdin: str | None = None,
    secrets: SecretMaterial | None = None,
) -> Launch:
    return Launch(
        attempt=attempt or new_attempt(),
        argv=argv,
        env={**place.environment(), **(env or {})},
        env_files=env_files,
        workspace=place.root if workspace is None else workspace,
        timeout=timeout,
        timeout_cause=cause,
        idle_timeout=idle_timeout,
        kill_grace=grace,
        user=user,
        resources=resources,
        no_new_privileges=no_new_privileges,
        sandbox=sandbox,
        log_limit=log_limit,
        stdin=stdin,
        secrets=secrets,
    )


class Supervision:
    """One opened launcher. What it reports is kept in order and can be waited for."""

    def __init__(self, place: Place, cgroups: Cgroups | None = None, patience: ShimPatience | None = None) -> None:
        self.place = place
        self.files = place.files
        self.conditions = Conditions()
        self.launcher = ProcessLauncher(
            self.files,
            SystemClock(),
            place.path("spawner.log"),
            conditions=self.conditions,
            cgroups=cgroups,
            patience=patience,
        )
        self.events: list[Event] = []
        self.spawners: list[Process] = []
        self._changed = asyncio.Event()

    async def open(self) -> None:
        os.makedirs(self.files.root, exist_ok=True)
        await self.launcher.open(self._report)
        self._note_spawner()
        await self.launcher.prepare(RUN, {})

    async def close(self) -> None:
        await self.launcher.close()

    @property
    def spawner(self) -> Process:
        return self.spawners[-1]

    async def new_spawner(self) -> Process:
        """Waits until the launcher has replaced its spawner."""

        def replaced() -> bool:
            return self.launcher.spawner_pid not in (0, self.spawner.pid)

        await wait_for(replaced, "the spawner was not replaced")
        self._note_spawner()
        return self.spawner

    def _note_spawner(self) -> None:
        """It may be a zombie already; it is not reaped as long as it has a pid."""
        pid = self.launcher.spawner_pid
        found = stat_of(pid)
        assert found is not None, f"there is no spawner {pid}"
        self.spawners.append(Process(pid, found.start))

    async def parked(self) -> list[Process]:
        """The shims that wait for an attempt, once all are there and the launcher knows of them.

        One that it does not know of yet is given an attempt later, and not by the next launch.
        """
        known = self.launcher._pool._parked

        def all_parked() -> list[Process] | None:
            found = children_of(self.spawner.pid)
            return found if len(found) >= PARKED and len(known) >= PARKED else None

        return await wait_for(all_parked, "shims are not parked")

    def strays(self) -> list[Process]:
        """What carries the marker, the spawner and its shims apart."""
        # A shim on its way out has no command any more, and takes its time with the dead that it has taken up.
        commands = ((each, command_of(each.pid)) for each in marked(self.place.marker))
        return [each for each, command in commands if command and not command.startswith("toban: ") and alive(each)]

    def launch(self, argv: Sequence[str], **how: Any) -> Attempt:
        launch = new_launch(self.place, argv, **how)
        self.launcher.launch(launch)
        return launch.attempt

    async def ready_in_time(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        made: str = "",
        ready: Callable[[Attempt], bool] = lambda _: True,
        **how: Any,
    ) -> tuple[Attempt, float]:
        """Launches what its timeout is to end, but not before it made that file and is ready; with its timeout.

        That is a longer one where the machine is too slow for it at the moment.
        """
        path = self.place.path(made)
        while True:
            until = time.monotonic() + seconds
            attempt = self.launch(argv, timeout=seconds, **how)
            await wait_for(
                lambda: (os.path.exists(path) and ready(attempt)) or time.monotonic() >= until,  # noqa: B023
                f"{attempt.step} is not ready",
            )
            if time.monotonic() < until:
                return attempt, seconds
            await self.ended(attempt)
            if made:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            seconds *= 2
            assert seconds < DEADLINE, f"{attempt.step} is never ready"

    async def ended(self, attempt: Attempt, deadline: float = DEADLINE) -> AttemptEnded:
        return await self._the(AttemptEnded, attempt, deadline)

    async def lost(self, attempt: Attempt, deadline: float = DEADLINE) -> AttemptLost:
        return await self._the(AttemptLost, attempt, deadline)

    async def voided(self, attempt: Attempt, deadline: float = DEADLINE) -> AttemptVoided:
        return await self._the(AttemptVoided, attempt, deadline)

    async def started(self, attempt: Attempt, deadline: float = DEADLINE) -> AttemptStarted:
        until = time.monotonic() + deadline
        while True:
            found = [each for each in self.events_of(attempt) if isinstance(each, AttemptStarted)]
            if found:
                return found[0]
            assert not self.ends_of(attempt), f"ended before it was started: {self.ends_of(attempt)}"
            await self._next(until, f"{attempt.step} was not started")

    async def end(self, attempt: Attempt, deadline: float = DEADLINE) -> Event:
        """However it ended."""
        until = time.monotonic() + deadline
        while not (found := self.ends_of(attempt)):
            await self._next(until, f"{attempt.step} did not end")
        return found[0]

    async def run(self, argv: Sequence[str], **how: Any) -> AttemptEnded:
        return await self.ended(self.launch(argv, **how))

    def events_of(self, attempt: Attempt) -> list[Event]:
        return [each for each in self.events if getattr(each, "token", "") == attempt.token]

    def ends_of(self, attempt: Attempt) -> list[Event]:
        return [each for each in self.events_of(attempt) if not isinstance(each, AttemptStarted)]

    async def shim(self, attempt: Attempt) -> Process:
        """The supervisor of an attempt, from its claim."""
        facts = await wait_for(lambda: self.claim_of(attempt), f"no claim of {attempt.step}")
        # Until then the claim has two names.
        folder, name = os.path.split(self.files.log(attempt))
        prepared = f".{name}"
        await wait_for(
            lambda: not any(each.startswith(prepared) for each in os.listdir(folder)),
            f"the claim of {attempt.step} keeps its first name",
        )
        return seen(facts["pid"])

    async def shim_gone(self, shim: Process) -> None:
        await wait_for(lambda: not alive(shim), f"the shim {shim.pid} lives on")

    def claim_of(self, attempt: Attempt) -> dict[str, Any] | None:
        try:
            with open(self.files.log(attempt), "rb") as file:
                return frames.read_claim(file.fileno())
        except FileNotFoundError:
            return None

    def record_of(self, attempt: Attempt) -> dict[str, Any]:
        with open(self.files.log(attempt), "rb") as file:
            record = frames.read_end(file.fileno())
        assert record is not None, "there is no end record"
        return record

    def printed(self, attempt: Attempt, kind: LogKind = LogKind.STDOUT) -> bytes:
        return LogReader(self.files).printed(attempt, kind, 1 << 40)

    def gate(self, name: str = "gate") -> Gate:
        return Gate(self.place.path(name))

    async def appears(self, name: str) -> str:
        """Waits for a file that a step makes; its text."""
        path = self.place.path(name)
        await wait_for(lambda: os.path.exists(path), f"{name} does not appear")
        return self.place.read(name)

    def witnessed(self, name: str = "witness") -> int:
        """How often a step said that it was started: a line each time."""
        try:
            return self.place.read(name).count("\n")
        except FileNotFoundError:
            return 0

    async def _the(self, kind: type[E], attempt: Attempt, deadline: float) -> E:
        found = await self.end(attempt, deadline)
        assert isinstance(found, kind), f"expected {kind.__name__}, got {found}"
        return found

    async def _next(self, until: float, what: str) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise AssertionError(f"waited in vain: {what}; reported: {self.events}") from None

    def _report(self, run_id: str, event: Event) -> None:
        assert run_id == RUN
        self.events.append(event)
        self._changed.set()


Opener: TypeAlias = Callable[..., Awaitable[Supervision]]
