"""The daemon's side of the launch protocol on Windows: starts a shim per attempt and waits for its process to end."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this is the launcher for Windows")

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import structlog

from toband import failpoints
from toband.domain.events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.model import Attempt, TreeCause
from toband.ports import Clock, Conditions, HealthStatus, Launch, Report
from toband.supervise import frames, records
from toband.supervise.files import RunFiles
from toband.supervise.windows import win32
from toband.supervise.windows.attempt_file import claim

STARTED_AFTER = 0.1
"""An attempt that is over sooner is never reported as started: its end says all, and costs one commit less."""
SHIM_TRIES = 3
LOOK_AGAIN = 1.0
"""Before an attempt is looked up again when the disk would not answer."""
START_AGAIN = 1.0
"""Before a shim is started again when the system would not start it."""
SHIMS = "spawner"
ATTEMPT_FILES = "attempt_files"
STARTING_AT_ONCE = 4
"""Shims that are being started beside each other: making a process takes a while here, and a processor."""
_PACKAGES = os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
)
_PROGRAM = (
    f"import sys; sys.path.append({_PACKAGES!r}); "
    "from toband.supervise.windows import shim; shim.main()"
)
_PASSED_ON = ("PATH", "SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP", "TOBAN_BOOT_ID")
_CREATE_BREAKAWAY_FROM_JOB = 0x01000000

log = structlog.get_logger()


class Shim(NamedTuple):
    """A shim, and a handle of its process."""

    pid: int
    process: int


class _Record(NamedTuple):
    """The end record of an attempt."""

    facts: dict[str, Any]


@dataclass(slots=True, eq=False)
class _Live:
    """An attempt that waits for its shim to be started, or has one (`process` is a handle of it)."""

    attempt: Attempt
    cancel: int = 0
    pid: int = 0
    process: int = 0
    waiting: bool = False
    """No shim could be started for it yet."""
    wait: win32.Wait | None = None
    timer: asyncio.TimerHandle | None = None


class WindowsLauncher:
    """Implements `ports.Launcher` with one shim per attempt, each started by the daemon itself.

    There is no spawner, since nothing is ever forked, and nobody has to look after orphans: what a shim leaves ends
    with its job.
    """

    def __init__(
        self, files: RunFiles, clock: Clock, shim_log: str, *, conditions: Conditions
    ) -> None:
        self._files = files
        self._clock = clock
        self._conditions = conditions
        self._shim_log = shim_log
        self._boot_id = win32.boot_id()
        self._live: dict[str, _Live] = {}
        self._voids: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)
        self._shims_missing = False
        self._unknown: set[str] = set()
        self._unsynced = False

    async def open(self, report: Report) -> None:
        """Raises OSError."""
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._open_log().close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    async def prepare(self, run_id: str, params: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._files.prepare, run_id, params)

    def running(self) -> int:
        return len(self._live)

    def live_shims(self) -> Mapping[str, int]:
        """The pid of the shim of every attempt that has one, by the attempt's id."""
        return {live.attempt.id: live.pid for live in self._live.values() if live.pid}

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        if launch.user:
            error = f"cannot run as {launch.user}: `user` is not available on Windows"
            self._report(attempt.run_id, not_started(attempt, error, self._clock.now()))
            return
        message: dict[str, Any] = {
            "attempt": attempt.id,
            "token": attempt.token,
            "boot_id": self._boot_id,
            "dir": self._files.attempts(attempt.run_id),
            "file": self._files.log_name(attempt),
            "output": self._files.output(attempt),
            "result": self._files.result(attempt),
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": launch.workspace,
            "stdin": launch.stdin,
            "timeout": launch.timeout,
            "timeout_kind": launch.timeout_cause,
            "grace": launch.kill_grace,
            "log_limit": launch.log_limit,
            "logs_full": self._files.logs_full,
        }
        if (limits := launch.resources) is not None:
            message["limits"] = {
                "memory": limits.memory,
                "cpu": limits.cpu,
                "pids": limits.pids,
                "nice": limits.nice,
            }
        deadline = None
        if launch.timeout is not None and launch.timeout_cause is not TreeCause.TIMEOUT:
            deadline = self._loop.time() + launch.timeout
        live = _Live(attempt)
        self._live[attempt.token] = live
        self._spawn(self._start(live, message, deadline))

    def stop(self, attempt: Attempt) -> None:
        live = self._live.get(attempt.token)
        if live is None:
            return
        if live.waiting:
            # No shim was told of it: it has not begun, and now never will.
            self._finish(live, AttemptVoided(step=attempt.step, token=attempt.token))
            return
        # The event is there before the shim is, if need be: that one finds it set then.
        try:
            if not live.cancel:
                live.cancel = win32.cancel_event(attempt.token)
            win32.set_event(live.cancel)
        except OSError as error:
            log.error(
                "cannot stop an attempt", action="stop_failed", attempt=attempt.id, error=str(error)
            )

    async def recover(self, attempt: Attempt) -> Event | None:
        """Looks at what the disk says: a living shim, an end record, nothing yet, or nothing any more.

        Raises OSError; it may be asked again then.
        """
        try:
            found = await asyncio.to_thread(self._look, attempt)
        except OSError as error:
            self._cannot_look(attempt, error)
            raise
        self._could_look(attempt)
        if isinstance(found, Shim):
            live = _Live(attempt)
            self._live[attempt.token] = live
            self._watch(live, found)
            return None
        return self._event_of(attempt, found)

    # -- shims

    async def _start(self, live: _Live, message: dict[str, Any], deadline: float | None) -> None:
        """A system that will not start a shim now may do it later: until then the attempt has not begun, and waits."""
        while live.attempt.token in self._live:
            live.waiting = False
            try:
                async with self._starting:
                    if deadline is not None:
                        # It may have waited: a timeout that began before this attempt did not.
                        message["timeout"] = max(0.0, deadline - self._loop.time())
                    data = json.dumps(message).encode()
                    shim = await asyncio.to_thread(self._start_shim, data)
            except OSError as error:
                live.waiting = True
                self._no_shim(error)
                await asyncio.sleep(START_AGAIN)
                continue
            if self._shims_missing:
                self._shims_missing = False
                self._conditions.well(SHIMS)
            self._watch(live, shim)
            return

    def _no_shim(self, error: OSError) -> None:
        self._shims_missing = True
        detail = f"cannot start steps' supervisors, trying again: {error.strerror or error}"
        self._conditions.trouble(SHIMS, HealthStatus.DEGRADED, detail)

    def _start_shim(self, message: bytes) -> Shim:
        """A shim that was given its message, or died before. Raises OSError: there is none. In a thread."""
        failpoints.hit("launch.before_send")
        environment = {key: value for key, value in os.environ.items() if key.upper() in _PASSED_ON}
        environment["TOBAN_FAILPOINTS"] = os.environ.get("TOBAN_FAILPOINTS_SPAWNER", "")
        with self._open_log() as errors:
            # A hidden console of its own: Ctrl-C in ours does not reach it, and its step can be sent CTRL_BREAK.
            flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP

            def popen(more: int) -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _PROGRAM],
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
                    env=environment, cwd=os.path.dirname(self._shim_log), creationflags=flags | more,
                )  # fmt: skip

            try:
                shim = popen(_CREATE_BREAKAWAY_FROM_JOB)
            except PermissionError:
                # We are in a job that lets nobody leave: its owner wants all that we start to end with us.
                shim = popen(0)
        assert shim.stdin is not None
        # One that died before it could read everything has done nothing, and its exit is seen like any other.
        with contextlib.suppress(OSError):
            shim.stdin.write(message)
        with contextlib.suppress(OSError):
            shim.stdin.close()
        failpoints.hit("launch.after_send")
        process = win32.open_process(shim.pid)
        assert process is not None, "a process is there as long as somebody has a handle of it"
        # It outlives us, and is not Popen's to wait for.
        shim.returncode = 0
        return Shim(shim.pid, process)

    def _open_log(self) -> BinaryIO:
        return open(self._shim_log, "ab")

    # -- one attempt

    def _watch(self, live: _Live, shim: Shim) -> None:
        live.pid, live.process = shim

        def exited() -> None:
            # The loop may be closed by now; then nobody waits for it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._exited, live)

        try:
            live.wait = win32.Wait(live.process, exited)
        except OSError as error:
            log.error("cannot wait for a shim", action="watch_failed", error=str(error))
            live.timer = self._loop.call_later(LOOK_AGAIN, self._watch_again, live)
            return
        live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)

    def _watch_again(self, live: _Live) -> None:
        live.timer = None
        self._watch(live, Shim(live.pid, live.process))

    def _tell_started(self, live: _Live) -> None:
        live.timer = None
        started = None
        with contextlib.suppress(OSError), open(self._files.log(live.attempt), "rb") as file:
            started = frames.read_started(file.fileno())
        if started is None:
            live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)
            return
        event = AttemptStarted(
            step=live.attempt.step,
            token=live.attempt.token,
            pid=started["pid"],
            started_at=records.time_of(started["at"]),
        )
        self._report(live.attempt.run_id, event)

    def _exited(self, live: _Live) -> None:
        if live.attempt.token in self._live:
            self._spawn(self._take_up(live))

    async def _take_up(self, live: _Live) -> None:
        """A shim has ended: takes its record; without one and without a claim, the step certainly did not run."""
        found = await self._look_until_known(live.attempt)
        if isinstance(found, AttemptVoided):
            # Somebody may have ended the shim before it began; one that fails every time is the step's failure.
            voids = self._voids[live.attempt.id] = self._voids.get(live.attempt.id, 0) + 1
            if voids >= SHIM_TRIES:
                reason = (
                    f"cannot start the step's supervisor: it fails at once, see {self._shim_log}"
                )
                found = not_started(live.attempt, reason, self._clock.now())
        if live.attempt.token not in self._live:
            return
        if isinstance(found, Shim):
            # Another one has the claim: ours came second.
            self._let_go(live)
            self._watch(live, found)
        else:
            self._finish(live, self._event_of(live.attempt, found))

    def _event_of(self, attempt: Attempt, found: _Record | Event) -> Event:
        """What is to be reported; what a record says of the disk goes to the conditions."""
        if not isinstance(found, _Record):
            return found
        if found.facts.get("unsynced"):
            self._unsynced = True
            detail = (
                f"the disk failed to store {self._files.log(attempt)}: look at the disk; "
                "the end is known, but what the step printed may be lost if the power fails"
            )
            self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        elif self._unsynced:
            self._unsynced = False
            if not self._unknown:
                self._conditions.well(ATTEMPT_FILES)
        return records.ended(attempt, found.facts)

    def _finish(self, live: _Live, event: Event) -> None:
        if self._live.pop(live.attempt.token, None) is not None:
            self._let_go(live)
            if not isinstance(event, AttemptVoided):
                self._voids.pop(live.attempt.id, None)
            self._report(live.attempt.run_id, event)

    def _let_go(self, live: _Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        if live.wait is not None:
            live.wait.close()
            live.wait = None
        for handle in filter(None, (live.process, live.cancel)):
            win32.close(handle)
        live.pid = live.process = live.cancel = 0

    async def _look_until_known(self, attempt: Attempt) -> Shim | _Record | Event:
        """What became of an attempt is never guessed: a disk that does not answer now is asked again."""
        while True:
            try:
                found = await asyncio.to_thread(self._look, attempt)
            except OSError as error:
                self._cannot_look(attempt, error)
            else:
                self._could_look(attempt)
                return found
            await asyncio.sleep(LOOK_AGAIN)

    def _could_look(self, attempt: Attempt) -> None:
        if attempt.id in self._unknown:
            self._unknown.discard(attempt.id)
            if not self._unknown and not self._unsynced:
                self._conditions.well(ATTEMPT_FILES)

    def _cannot_look(self, attempt: Attempt, error: OSError) -> None:
        self._unknown.add(attempt.id)
        detail = (
            f"cannot find out what became of {len(self._unknown)} attempts, trying again: "
            f"{error.strerror or error} ({self._files.log(attempt)})"
        )
        self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        log.error(
            "cannot look up an attempt, trying again",
            action="look_failed", attempt=attempt.id, error=str(error),
        )  # fmt: skip

    def _look(self, attempt: Attempt) -> Shim | _Record | Event:
        """The living shim, or what became of the attempt. Runs in a thread."""
        path = self._files.log(attempt)
        for _ in range(1000):
            try:
                fd = win32.open_to_read(path)
            except FileNotFoundError:
                void = {"format": frames.FORMAT, "attempt": attempt.id, "void": True}
                os.makedirs(self._files.attempts(attempt.run_id), exist_ok=True)
                won = claim(
                    self._files.attempts(attempt.run_id), self._files.log_name(attempt), void
                )
                if won is None:
                    continue
                os.close(won)
                return AttemptVoided(step=attempt.step, token=attempt.token)
            try:
                found = self._read(attempt, fd)
            finally:
                os.close(fd)
            if found is not None:
                return found
            time.sleep(0.001)
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error=f"the claim {path} is held by somebody who is not its supervisor",
            orphans="unknown",
        )

    def _read(self, attempt: Attempt, fd: int) -> Shim | _Record | Event | None:
        """What a claimed file says; None when it changed under our eyes."""
        facts = frames.read_claim(fd)
        if facts is not None and facts.get("void"):
            return AttemptVoided(step=attempt.step, token=attempt.token)
        if facts is not None and _locked(fd):
            process = win32.open_process(facts["pid"])
            if process is None:
                return None
            same = facts["boot_id"] == self._boot_id and win32.created(process) == facts["start"]
            if same and win32.lives(process) and _locked(fd):
                return Shim(facts["pid"], process)
            win32.close(process)
            return None
        record = frames.read_end(fd)
        if record is not None:
            return _Record(record)
        booted = facts is not None and facts["boot_id"] != self._boot_id
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error="the machine went down while it ran"
            if booted
            else "its supervisor ended without a record; whether the step did its work is unknown",
            # The system ends a job with its last handle, and the shim had the only one.
            orphans="none" if booted else "ended",
        )

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _locked(fd: int) -> bool:
    """Whether a living shim holds the claim."""
    if not win32.try_lock(fd):
        return True
    win32.unlock(fd)
    return False
