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
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import structlog

from toband import failpoints
from toband.domain.events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.model import Attempt
from toband.ports import Clock, Launch, Report
from toband.supervise import frames, records, tree
from toband.supervise.attempt_file import claim
from toband.supervise.files import RunFiles

STARTED_AFTER = 0.1
"""An attempt that is over sooner is never reported as started: its end says all, and costs one commit less."""
ORPHANS_WITHIN = 10.0
"""How long the spawner may take to end what a killed shim left."""
SPAWNER_TRIES = 3
SPAWNER_PAUSE = 1.0
"""Before another spawner is started when several have died in a row, or could not be started."""
LOOK_AGAIN = 1.0
"""Before an attempt is looked up again when the disk would not answer."""
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

log = structlog.get_logger()


@dataclass(slots=True)
class _Live:
    """An attempt that was handed over: `pidfd` is -1 until its shim is known."""

    attempt: Attempt
    pidfd: int = -1
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
        self._live: dict[str, _Live] = {}
        self._queue: deque[tuple[bytes, int]] = deque()
        self._sock: socket.socket | None = None
        self._spawner: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, report: Report) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._start_spawner()

    async def close(self) -> None:
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._drop_spawner()
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    @property
    def spawner_pid(self) -> int:
        return self._spawner.pid if self._spawner else 0

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
        self._live[attempt.token] = _Live(attempt)
        failpoints.hit("launch.before_send")
        self._send(json.dumps({"token": attempt.token}).encode(), bootstrap)
        failpoints.hit("launch.after_send")

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

    # -- the spawner

    def _start_spawner(self) -> None:
        """Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        program = (
            f"import sys; sys.path.append({_PACKAGES!r}); "
            f"from toband.supervise import spawner; spawner.main({theirs.fileno()})"
        )
        environment = {
            key: value
            for key, value in os.environ.items()
            if key in ("TOBAN_FAILPOINTS_SPAWNER", "TOBAN_BOOT_ID", "PATH", "LANG")
        }
        environment["TOBAN_FAILPOINTS"] = environment.pop("TOBAN_FAILPOINTS_SPAWNER", "")
        try:
            with theirs, self._open_log() as errors:
                # Not asyncio's subprocess: that one is KILLed when its transport is thrown away.
                self._spawner = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", program],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                    pass_fds=[theirs.fileno()], start_new_session=True, env=environment, cwd="/",
                )  # fmt: skip
        except OSError:
            ours.close()
            raise
        self._sock = ours
        self._loop.add_reader(ours, self._receive)
        log.info("spawner started", action="spawner_started", pid=self._spawner.pid)

    def _open_log(self) -> BinaryIO:
        return open(self._spawner_log, "ab")

    def _drop_spawner(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._sock = None
        if self._spawner is not None:
            # It ends with its last shim, whenever that is, and is taken up if this process still lives then.
            threading.Thread(target=self._spawner.wait, daemon=True).start()
            self._spawner = None
        while self._queue:
            os.close(self._queue.popleft()[1])

    def _send(self, head: bytes, bootstrap: int) -> None:
        self._queue.append((head, bootstrap))
        if len(self._queue) == 1 and self._sock is not None:
            self._flush()

    def _flush(self) -> None:
        while self._queue and self._sock is not None:
            head, bootstrap = self._queue[0]
            try:
                socket.send_fds(self._sock, [head], [bootstrap])
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
                return
            except OSError:
                self._spawner_gone()
                return
            os.close(bootstrap)
            self._queue.popleft()
        if self._sock is not None:
            self._loop.remove_writer(self._sock)

    def _receive(self) -> None:
        assert self._sock is not None
        for _ in range(64):
            try:
                data, fds, _, _ = socket.recv_fds(self._sock, 4096, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._spawner_gone()
                return
            self._told(json.loads(data), fds)

    def _told(self, message: dict[str, Any], fds: list[int]) -> None:
        self._failures = 0
        live = self._live.get(message["token"])
        if live is None:
            for fd in fds:
                os.close(fd)
        elif fds:
            live.pidfd = fds[0]
            self._watch(live)
        elif "gone" in message:
            self._gone(live, message)
        else:
            self._spawn(self._resolve(live, message["error"]))

    def _spawner_gone(self) -> None:
        """Its shims go on without it; what it had not answered may or may not have begun, and is looked up."""
        if self._closing or self._sock is None:
            return
        log.error("the spawner died", action="spawner_died", pid=self.spawner_pid)
        self._failures += 1
        self._drop_spawner()
        for live in self._live.values():
            live.ours = False
        # What is launched from now on waits in the queue for the next spawner.
        unanswered = [live for live in self._live.values() if live.pidfd < 0]
        self._spawn(self._replace_spawner(unanswered))

    async def _replace_spawner(self, unanswered: list[_Live]) -> None:
        for live in unanswered:
            error = "the spawner dies again and again" if self._failures >= SPAWNER_TRIES else ""
            self._spawn(self._resolve(live, error))
        for live in list(self._live.values()):
            if live.exited:
                self._lost(live, "unknown")
        while self._sock is None:
            if self._failures >= SPAWNER_TRIES:
                await asyncio.sleep(SPAWNER_PAUSE)
            try:
                self._start_spawner()
            except OSError as error:
                self._failures += 1
                log.error("cannot start the spawner", action="spawner_failed", error=str(error))
        self._flush()

    async def _resolve(self, live: _Live, error: str) -> None:
        """Finds out what became of an attempt whose shim was never announced."""
        found = await self._look_until_known(live.attempt)
        if isinstance(found, int):
            if live.pidfd >= 0 or live.attempt.token not in self._live:
                os.close(found)
                return
            live.pidfd = found
            live.ours = False
            self._watch(live)
        elif isinstance(found, AttemptVoided) and error:
            reason = f"cannot start the step's supervisor: {error}"
            self._finish(live, not_started(live.attempt, reason, self._clock.now()))
        else:
            self._finish(live, found)

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

    def _exited(self, live: _Live) -> None:
        self._loop.remove_reader(live.pidfd)
        live.exited = True
        record = None
        with contextlib.suppress(OSError), open(self._files.log(live.attempt), "rb", 0) as file:
            record = frames.read_end(file.fileno())
        if record is not None:
            self._finish(live, records.ended(live.attempt, record))
        elif live.ours and self._sock is not None:
            # The spawner first ends what the shim left, and then says so.
            if live.timer is not None:
                live.timer.cancel()
            live.timer = self._loop.call_later(ORPHANS_WITHIN, self._lost, live, "unknown")
        else:
            self._lost(live, "unknown")

    def _gone(self, live: _Live, message: dict[str, Any]) -> None:
        """The spawner reaped a shim that failed, and ended what it left."""
        if not live.exited:
            self._exited(live)
        if live.attempt.token not in self._live:
            return
        if message["left"]:
            self._lost(live, f"{message['left']} could not be ended")
        else:
            self._lost(live, "ended" if message["orphans"] else "none")

    def _lost(self, live: _Live, orphans: str) -> None:
        """A shim ended without a record: if it never took its claim, the step certainly did not run."""
        self._spawn(self._lost_or_void(live, orphans))

    async def _lost_or_void(self, live: _Live, orphans: str) -> None:
        found = await self._look_until_known(live.attempt)
        if isinstance(found, AttemptVoided):
            reason = (
                f"cannot start the step's supervisor: it failed at once, see {self._spawner_log}"
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
            self._report(live.attempt.run_id, event)

    def _let_go(self, live: _Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
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
