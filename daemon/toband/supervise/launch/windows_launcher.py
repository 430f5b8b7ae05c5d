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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import structlog

import toband
from toband import failpoints
from toband.domain.attempt_model import Attempt, Orphans, TreeCause
from toband.domain.run_events import AttemptLost, AttemptVoided, Event, not_started
from toband.ports import Clock, Conditions, HealthStatus, Launch, Report
from toband.supervise.files.run_files import RunFiles
from toband.supervise.launch.attempt_probe import LOOK_AGAIN, AttemptProbe
from toband.supervise.launch.bootstrap import message_of
from toband.supervise.launch.claim_names import ClaimNames
from toband.supervise.launch.secret_directories import SecretDirectories
from toband.supervise.launch.windows_host import WindowsHost, WindowsShim
from toband.supervise.shim.windows import win32
from toband.supervise.shim.windows.shim import EXIT_DONE, KILL_PATIENCE, RECORD_PATIENCE

STARTED_AFTER = 0.1
"""Seconds. A shorter attempt is only reported as ended, which saves a commit."""
START_AGAIN = 1.0
"""Before a shim is started again when the system would not start it."""
SHIMS = "spawner"
SLACK = RECORD_PATIENCE + 30.0
"""Seconds that a shim may take longer than it should before it is ended: its record may wait for the disk."""
STARTING_AT_ONCE = 4
"""Shims that are being started beside each other: making a process takes a while here, and a processor."""
_PACKAGES = os.path.dirname(toband.__path__[0])
_PROGRAM = f"import sys; sys.path.append({_PACKAGES!r}); from toband.supervise.shim.windows import shim; shim.main()"
_PASSED_ON = ("PATH", "SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP", "TOBAN_BOOT_ID")
_CREATE_BREAKAWAY_FROM_JOB = 0x01000000

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Live:
    """An attempt that waits for its shim to be started, or has one (`process` is a handle of it)."""

    attempt: Attempt
    cancel: int = 0
    pid: int = 0
    process: int = 0
    waiting: bool = False
    """No shim could be started for it yet."""
    timeout: float | None = None
    ending: float = 10.0
    """Seconds that ending it may take."""
    overdue: asyncio.TimerHandle | None = None
    claimed: bool = False
    """The shim has the claim: the step may have started, even if the file is missing later."""
    wait: win32.HandleWait | None = None
    timer: asyncio.TimerHandle | None = None


class WindowsLauncher:
    """Implements `ports.Launcher` with one shim per attempt, each started by the daemon itself.

    There is no spawner, because nothing is forked, and there are no orphans: the job object ends with its shim.
    """

    def __init__(self, files: RunFiles, clock: Clock, shim_log: str, *, conditions: Conditions) -> None:
        self._files = files
        self._clock = clock
        self._conditions = conditions
        self._shim_log = shim_log
        self._boot_id = win32.boot_id()
        self._live: dict[str, _Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)
        self._shims_missing = False
        host = WindowsHost(self._boot_id)
        self._probe: AttemptProbe[WindowsShim] = AttemptProbe(files, host, clock, conditions, shim_log)
        self._names = ClaimNames(files)
        self._secrets = SecretDirectories(files)

    async def open(self, report: Report) -> None:
        """Raises OSError."""
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._names.open()
        self._secrets.open()
        self._open_log().close()

    async def close(self) -> None:
        self._names.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    async def prepare(self, run_id: str, params: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> None:
        await asyncio.to_thread(self._files.prepare, run_id, params, event)

    def any_alive(self, pids: Collection[int]) -> bool:
        """A job object leaves no processes to ask for."""
        return bool(pids)

    def running(self) -> int:
        return len(self._live)

    def live_shims(self) -> Mapping[str, int]:
        """The pid of the shim of every attempt that has one, by the attempt's id."""
        return {live.attempt.id: live.pid for live in self._live.values() if live.pid}

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        given = {"user": launch.user, "no_new_privileges": launch.no_new_privileges, "sandbox": launch.sandbox}
        if missing := next((name for name, value in given.items() if value), ""):
            error = f"cannot start it: `{missing}` is not available on Windows"
            self._report(attempt.run_id, not_started(attempt, error, self._clock.now()))
            return
        try:
            message = message_of(launch, self._files, self._secrets)
        except OSError as error:
            reason = f"cannot start it: cannot prepare its secret files: {error.strerror or error}"
            self._report(attempt.run_id, not_started(attempt, reason, self._clock.now()))
            return
        message["boot_id"] = self._boot_id
        message["timeout"] = launch.timeout
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
        ending = launch.kill_grace + KILL_PATIENCE + SLACK
        live = _Live(attempt, timeout=launch.timeout, ending=ending)
        self._live[attempt.token] = live
        self._spawn(self._start(live, message, deadline))

    def stop(self, attempt: Attempt) -> None:
        live = self._live.get(attempt.token)
        if live is None:
            return
        if live.waiting:
            # No shim has the attempt: it has not started and never will.
            self._finish(live, AttemptVoided(step=attempt.step, token=attempt.token))
            return
        # The event may be set before the shim runs; the shim finds it set then.
        try:
            if not live.cancel:
                live.cancel = win32.cancel_event(attempt.token)
            win32.set_event(live.cancel)
            self._expect_end(live, live.ending)
        except OSError as error:
            log.error("cannot stop an attempt", action="stop_failed", attempt=attempt.id, error=str(error))

    async def recover(self, attempt: Attempt) -> Event | None:
        """Probes the attempt: a living shim, an end record, not started, or lost.

        Raises OSError; the caller may repeat it.
        """
        found = await self._probe.once(attempt)
        if isinstance(found, WindowsShim):
            live = _Live(attempt, claimed=True)
            self._live[attempt.token] = live
            self._watch(live, found)
            return None
        return self._probe.event_of(attempt, found)

    async def recorded_end(self, attempt: Attempt) -> Event | None:
        record = await asyncio.to_thread(self._probe.record, attempt)
        return None if record is None else self._probe.event_of(attempt, record)

    def settle(self, token: str) -> None:
        self._names.settle(token)
        self._secrets.settle(token)

    def settle_others(self, active: Collection[str]) -> None:
        self._names.settle_others(active)
        self._secrets.settle_others(active)

    # -- shims

    async def _start(self, live: _Live, message: dict[str, Any], deadline: float | None) -> None:
        """Starts a shim, and tries again while the system refuses. Until then the attempt has not started."""
        while live.attempt.token in self._live:
            live.waiting = False
            try:
                async with self._starting:
                    if deadline is not None:
                        # The attempt may have waited while the deadline of its run or loop came closer.
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

    def _start_shim(self, message: bytes) -> WindowsShim:
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
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env=environment,
                    cwd=os.path.dirname(self._shim_log),
                    creationflags=flags | more,
                )

            try:
                shim = popen(_CREATE_BREAKAWAY_FROM_JOB)
            except PermissionError:
                # The daemon is in a job without breakaway: the job's owner wants its processes to end with it.
                shim = popen(0)
        assert shim.stdin is not None
        # A shim that died before it read its message has done nothing; its exit is handled like any other.
        with contextlib.suppress(OSError):
            shim.stdin.write(message)
        with contextlib.suppress(OSError):
            shim.stdin.close()
        failpoints.hit("launch.after_send")
        process = win32.open_process(shim.pid)
        assert process is not None, "a process is there as long as somebody has a handle of it"
        # It outlives us, and is not Popen's to wait for.
        shim.returncode = 0
        return WindowsShim(shim.pid, process)

    def _open_log(self) -> BinaryIO:
        return open(self._shim_log, "ab")

    # -- one attempt

    def _expect_end(self, live: _Live, within: float) -> None:
        if live.overdue is not None:
            live.overdue.cancel()
        live.overdue = self._loop.call_later(within, self._overdue, live)

    def _overdue(self, live: _Live) -> None:
        """A shim that does not act, because its step suspended it, is ended; its job ends with it."""
        live.overdue = None
        if live.process:
            attempt = live.attempt.id
            log.error("a supervisor does not act: ending it", action="shim_overdue", attempt=attempt)
            with contextlib.suppress(OSError):
                win32.terminate(live.process)

    def _watch(self, live: _Live, shim: WindowsShim) -> None:
        live.pid, live.process = shim
        if live.timeout is not None and live.overdue is None:
            self._expect_end(live, live.timeout + live.ending)

        def exited() -> None:
            # The loop may be closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._exited, live)

        try:
            live.wait = win32.HandleWait(live.process, exited)
        except OSError as error:
            log.error("cannot wait for a shim", action="watch_failed", error=str(error))
            live.timer = self._loop.call_later(LOOK_AGAIN, self._watch_again, live)
            return
        live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)

    def _watch_again(self, live: _Live) -> None:
        live.timer = None
        self._watch(live, WindowsShim(live.pid, live.process))

    def _tell_started(self, live: _Live) -> None:
        live.timer = None
        started = self._probe.started(live.attempt)
        if started is None:
            live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)
            return
        live.claimed = True
        self._report(live.attempt.run_id, started)

    def _exited(self, live: _Live) -> None:
        if live.attempt.token in self._live:
            self._spawn(self._take_up(live))

    async def _take_up(self, live: _Live) -> None:
        """A shim has ended: takes its record; without one and without a claim, the step certainly did not run."""
        # A shim that exited normally had its claim, or knew that another shim has it.
        claimed = live.claimed or win32.exit_code(live.process) == EXIT_DONE
        try:
            found = await self._probe.after_shim(live.attempt, claimed=claimed)
        except Exception as error:
            self._broken(live, error)
            return
        if live.attempt.token not in self._live:
            return
        if isinstance(found, WindowsShim):
            # Another one has the claim: ours came second.
            self._let_go(live)
            self._watch(live, found)
        else:
            self._finish(live, self._probe.event_of(live.attempt, found))

    def _broken(self, live: _Live, error: Exception) -> None:
        """An unexpected error after the exit of a shim: reports the attempt as lost, so that its run does not hang."""
        attempt = live.attempt
        message = f"cannot process the end of {attempt.step} of run {attempt.run_id}"
        self._loop.call_exception_handler({"message": message, "exception": error})
        reason = f"its end could not be processed: {type(error).__name__}: {error}"
        lost = AttemptLost(step=attempt.step, token=attempt.token, error=reason, orphans=Orphans.UNKNOWN)
        self._finish(live, lost)

    def _finish(self, live: _Live, event: Event) -> None:
        if self._live.pop(live.attempt.token, None) is not None:
            self._let_go(live)
            if not isinstance(event, AttemptVoided):
                self._probe.forget(live.attempt)
            self._report(live.attempt.run_id, event)

    def _let_go(self, live: _Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        if live.overdue is not None:
            live.overdue.cancel()
            live.overdue = None
        if live.wait is not None:
            live.wait.close()
            live.wait = None
        for handle in filter(None, (live.process, live.cancel)):
            win32.close(handle)
        live.pid = live.process = live.cancel = 0

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "a task of the launcher failed"
            self._loop.call_exception_handler({"message": message, "exception": error})
