"""The daemon's side of the launch protocol: hands attempts to the spawner and learns of their ends through pidfds."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX launcher needs a spawner")

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from toband import failpoints
from toband.domain.events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.model import Attempt
from toband.ports import Clock, Launch, Report
from toband.supervise import frames, records, tree
from toband.supervise.attempt_file import claim
from toband.supervise.files import RunFiles
from toband.supervise.pool import Pool

STARTED_AFTER = 0.1
"""An attempt that is over sooner is never reported as started: its end says all, and costs one commit less."""
ORPHANS_WITHIN = 10.0
"""How long the spawner may take to end what a killed shim left."""
SHIM_TRIES = 3
LOOK_AGAIN = 1.0
"""Before an attempt is looked up again when the disk would not answer."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Live:
    """An attempt that waits for a shim (`bootstrap` is its message), or has one (`pidfd` is the shim's)."""

    attempt: Attempt
    bootstrap: int = -1
    pid: int = 0
    pidfd: int = -1
    sock: socket.socket | None = None
    ours: bool = True
    stopping: bool = False
    exited: bool = False
    timer: asyncio.TimerHandle | None = None


class ProcessLauncher:
    """Implements `ports.Launcher` with a spawner and one shim per attempt."""

    def __init__(self, files: RunFiles, clock: Clock, spawner_log: str) -> None:
        self._files = files
        self._clock = clock
        self._boot_id = tree.boot_id()
        self._spawner_log = spawner_log
        self._pool = Pool(self, spawner_log)
        self._live: dict[str, _Live] = {}
        self._waiting: deque[_Live] = deque()
        self._voids: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, report: Report) -> None:
        """Raises OSError."""
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pool.open()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    @property
    def spawner_pid(self) -> int:
        return self._pool.spawner_pid

    async def prepare(self, run_id: str, params: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._files.prepare, run_id, params)

    def running(self) -> int:
        return len(self._live)

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        message = json.dumps(
            {
                "attempt": attempt.id,
                "token": attempt.token,
                "dir": self._files.attempts(attempt.run_id),
                "file": self._files.log_name(attempt),
                "output": self._files.output(attempt),
                "result": self._files.result(attempt),
                "argv": list(launch.argv),
                "env": dict(launch.env),
                "cwd": launch.workspace,
                "timeout": launch.timeout,
                "timeout_kind": launch.timeout_cause,
                "grace": launch.kill_grace,
            }
        ).encode()
        bootstrap = os.memfd_create("toban-bootstrap", os.MFD_CLOEXEC)
        os.write(bootstrap, message)
        live = _Live(attempt, bootstrap=bootstrap)
        self._live[attempt.token] = live
        self._waiting.append(live)
        self._hand_over()

    def stop(self, attempt: Attempt) -> None:
        live = self._live.get(attempt.token)
        if live is None:
            return
        live.stopping = True
        if live.pidfd >= 0 and not live.exited:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(live.pidfd, signal.SIGTERM)

    async def recover(self, attempt: Attempt) -> Event | None:
        """Looks at what the disk says: a living shim, an end record, nothing yet, or nothing any more."""
        found = await asyncio.to_thread(self._look, attempt)
        if isinstance(found, int):
            self._watch(_Live(attempt, pidfd=found, ours=False))
            return None
        return found

    # -- shims

    def _hand_over(self) -> None:
        """Gives waiting attempts to parked shims, and asks for those that are missing."""
        while self._waiting and (parked := self._pool.take()) is not None:
            live = self._waiting.popleft()
            failpoints.hit("launch.before_send")
            try:
                socket.send_fds(parked.sock, [b"bootstrap"], [live.bootstrap])
            except OSError:
                # It was ended while it was parked, and has read nothing.
                parked.discard()
                self._waiting.appendleft(live)
                continue
            failpoints.hit("launch.after_send")
            os.close(live.bootstrap)
            live.bootstrap = -1
            live.pid, live.pidfd, live.sock = parked.pid, parked.pidfd, parked.sock
            live.ours = True
            self._loop.add_reader(live.sock, self._closed, live)
            self._watch(live)
        self._pool.want(len(self._waiting))

    def shim_parked(self) -> None:
        self._hand_over()

    def shim_gone(self, pid: int, orphans: int, left: int) -> None:
        """The spawner reaped a shim that failed, and ended what it left."""
        for live in list(self._live.values()):
            if live.ours and live.pid == pid:
                if not live.exited:
                    self._exited(live)
                if live.attempt.token in self._live:
                    known = "ended" if orphans else "none"
                    self._lost(live, f"{left} could not be ended" if left else known)

    def no_shim(self, reason: str, count: int | None = None) -> None:
        """What waits has certainly not begun, and cannot."""
        for _ in range(len(self._waiting) if count is None else min(count, len(self._waiting))):
            live = self._waiting.popleft()
            error = f"cannot start the step's supervisor: {reason}"
            self._finish(live, not_started(live.attempt, error, self._clock.now()))

    def spawner_died(self) -> None:
        """What has a shim goes on without the spawner; what has none waits for the next one."""
        for live in list(self._live.values()):
            live.ours = False
            if live.exited:
                self._lost(live, "unknown")

    # -- one attempt

    def _watch(self, live: _Live) -> None:
        self._live[live.attempt.token] = live
        self._loop.add_reader(live.pidfd, self._exited, live)
        live.timer = self._loop.call_later(STARTED_AFTER, self._tell_started, live)
        if live.stopping:
            self.stop(live.attempt)

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

    def _closed(self, live: _Live) -> None:
        """The shim closed its socket: its record is on disk, or it is dying without one, which its pidfd will say."""
        assert live.sock is not None
        self._loop.remove_reader(live.sock)
        self._take_record(live)

    def _take_record(self, live: _Live) -> bool:
        record = None
        with contextlib.suppress(OSError), open(self._files.log(live.attempt), "rb", 0) as file:
            record = frames.read_end(file.fileno())
        if record is None:
            return False
        self._finish(live, records.ended(live.attempt, record))
        return True

    def _exited(self, live: _Live) -> None:
        self._loop.remove_reader(live.pidfd)
        live.exited = True
        if self._take_record(live):
            return
        if live.ours and self._pool.alive:
            # The spawner first ends what the shim left, and then says so.
            if live.timer is not None:
                live.timer.cancel()
            live.timer = self._loop.call_later(ORPHANS_WITHIN, self._lost, live, "unknown")
        else:
            self._lost(live, "unknown")

    def _lost(self, live: _Live, orphans: str) -> None:
        """A shim ended without a record: if it never took its claim, the step certainly did not run."""
        self._spawn(self._lost_or_void(live, orphans))

    async def _lost_or_void(self, live: _Live, orphans: str) -> None:
        found = await self._look_until_known(live.attempt)
        if isinstance(found, AttemptVoided):
            # Somebody may have ended the shim before it began; one that fails every time is the step's failure.
            voids = self._voids[live.attempt.id] = self._voids.get(live.attempt.id, 0) + 1
            if voids >= SHIM_TRIES:
                reason = (
                    f"cannot start the step's supervisor: it fails at once, see {self._spawner_log}"
                )
                found = not_started(live.attempt, reason, self._clock.now())
        elif isinstance(found, AttemptLost):
            found = AttemptLost(
                step=found.step, token=found.token, error=found.error, orphans=orphans
            )
        if not isinstance(found, int):
            self._finish(live, found)
        else:
            os.close(found)

    def _finish(self, live: _Live, event: Event) -> None:
        if self._live.pop(live.attempt.token, None) is not None:
            self._let_go(live)
            if not isinstance(event, AttemptVoided):
                self._voids.pop(live.attempt.id, None)
            self._report(live.attempt.run_id, event)

    def _let_go(self, live: _Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
        if live.bootstrap >= 0:
            os.close(live.bootstrap)
            live.bootstrap = -1
        if live.sock is not None:
            self._loop.remove_reader(live.sock)
            live.sock.close()
            live.sock = None
        if live.pidfd >= 0:
            self._loop.remove_reader(live.pidfd)
            os.close(live.pidfd)
            live.pidfd = -1

    async def _look_until_known(self, attempt: Attempt) -> int | Event:
        """What became of an attempt is never guessed: a disk that does not answer now is asked again."""
        while True:
            try:
                return await asyncio.to_thread(self._look, attempt)
            except OSError as error:
                log.error(
                    "cannot look up an attempt, trying again",
                    action="look_failed",
                    attempt=attempt.id,
                    error=str(error),
                )
            await asyncio.sleep(LOOK_AGAIN)

    def _look(self, attempt: Attempt) -> int | Event:
        """A pidfd of the living shim, or what became of the attempt. Runs in a thread."""
        path = self._files.log(attempt)
        for _ in range(1000):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                void = {"format": frames.FORMAT, "attempt": attempt.id, "void": True}
                os.makedirs(self._files.attempts(attempt.run_id), mode=0o700, exist_ok=True)
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

    def _read(self, attempt: Attempt, fd: int) -> int | Event | None:
        """What a claimed file says; None when it changed under our eyes."""
        facts = frames.read_claim(fd)
        if facts is not None and facts.get("void"):
            return AttemptVoided(step=attempt.step, token=attempt.token)
        if facts is not None and _locked(fd):
            try:
                pidfd = os.pidfd_open(facts["pid"])
            except ProcessLookupError:
                return None
            seen = tree.stat_of(facts["pid"])
            lives = seen is not None and seen[1] == facts["start"] and seen[2] != "Z"
            if facts["boot_id"] == self._boot_id and lives and _locked(fd):
                return pidfd
            os.close(pidfd)
            return None
        record = frames.read_end(fd)
        if record is not None:
            return records.ended(attempt, record)
        booted = facts is not None and facts["boot_id"] != self._boot_id
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error="the machine went down while it ran"
            if booted
            else "its supervisor ended without a record; whether the step did its work is unknown",
            orphans="none" if booted else "unknown",
        )

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _locked(fd: int) -> bool:
    """Whether a living shim holds the claim."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
