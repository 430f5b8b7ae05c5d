"""The daemon's side of the launch protocol: hands attempts to the spawner and learns of their ends through pidfds."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX launcher needs a spawner")

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import structlog

from toband import failpoints
from toband.domain.events import AttemptLost, AttemptStarted, AttemptVoided, Event, not_started
from toband.domain.model import Attempt, TreeCause
from toband.ports import Clock, Conditions, HealthStatus, Launch, Report
from toband.supervise import cgroups, frames, limits, records, tree
from toband.supervise.attempt_file import claim
from toband.supervise.cgroups import Cgroups
from toband.supervise.files import RunFiles
from toband.supervise.pool import PAUSE, Pool

STARTED_AFTER = 0.1
"""An attempt that is over sooner is never reported as started: its end says all, and costs one commit less."""
ORPHANS_WITHIN = 10.0
"""How long the spawner may take to end what a killed shim left."""
SHIM_TRIES = 3
LOOK_AGAIN = 1.0
"""Before an attempt is looked up again when the disk would not answer."""
CGROUP_PATIENCE = 5.0
"""How long what a killed shim left in its cgroup may take to be gone."""
SURVIVORS_EVERY = 5.0
SWEEP_EVERY = 60.0
SPAWNER = "spawner"
ATTEMPT_FILES = "attempt_files"
UNKILLABLE = "unkillable"

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS, errno.ENOMEM, errno.ENOBUFS)

log = structlog.get_logger()


class Shim(NamedTuple):
    """A living shim, as its claim names it."""

    pid: int
    pidfd: int


class _Record(NamedTuple):
    """The end record of an attempt."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a shim goes on trying: to end a tree that was KILLed, to have its record written."""

    kill: float = 30.0
    record: float = 600.0


@dataclass(slots=True, eq=False)
class _Live:
    """An attempt that waits for a shim (`message` is what that one is told), or has one (`pidfd` is the shim's)."""

    attempt: Attempt
    message: str | None = None
    """As JSON, all but the timeout."""
    timeout: float | None = None
    deadline: float | None = None
    """The run's, or that of a loop, by the event loop's clock."""
    pid: int = 0
    pidfd: int = -1
    sock: socket.socket | None = None
    ours: bool = True
    exited: bool = False
    timer: asyncio.TimerHandle | None = None


class ProcessLauncher:
    """Implements `ports.Launcher` with a spawner and one shim per attempt."""

    def __init__(
        self,
        files: RunFiles,
        clock: Clock,
        spawner_log: str,
        *,
        conditions: Conditions,
        cgroups: Cgroups | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._conditions = conditions
        self._cgroups = cgroups or Cgroups(reason="switched off")
        self._patience = patience or Patience()
        self._can = limits.of_this_process(self._cgroups)
        self._boot_id = tree.boot_id()
        self._spawner_log = spawner_log
        self._pool = Pool(self, spawner_log)
        self._live: dict[str, _Live] = {}
        self._waiting: deque[_Live] = deque()
        self._voids: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._shims_missing = False
        self._unknown: set[str] = set()
        self._unsynced = False
        self._survivors: dict[tuple[int, int], str] = {}
        self._survivors_timer: asyncio.TimerHandle | None = None

    async def open(self, report: Report) -> None:
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._pool.open()
        if self._cgroups.attempts:
            self._spawn(self._sweep())

    async def close(self) -> None:
        for timer in (self._again, self._survivors_timer):
            if timer is not None:
                timer.cancel()
        self._again = self._survivors_timer = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()
        for live in self._live.values():
            self._let_go(live)
        self._live.clear()
        self._waiting.clear()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    @property
    def spawner_pid(self) -> int:
        return self._pool.spawner_pid

    @property
    def cgroups(self) -> Cgroups:
        """Where attempts get cgroups of their own, or why they get none."""
        return self._cgroups

    async def prepare(self, run_id: str, params: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._files.prepare, run_id, params)

    def running(self) -> int:
        return len(self._live)

    def waiting(self) -> int:
        """How many attempts have no shim yet."""
        return len(self._waiting)

    def live_shims(self) -> Mapping[str, int]:
        """The pid of the shim of every attempt that has one, by the attempt's id."""
        return {
            live.attempt.id: live.pid
            for live in self._live.values()
            if live.pid and not live.exited
        }

    def launch(self, launch: Launch) -> None:
        attempt = launch.attempt
        message: dict[str, Any] = {
            "attempt": attempt.id,
            "token": attempt.token,
            "dir": self._files.attempts(attempt.run_id),
            "file": self._files.log_name(attempt),
            "output": self._files.output(attempt),
            "result": self._files.result(attempt),
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": launch.workspace,
            "stdin": launch.stdin,
            "timeout_kind": launch.timeout_cause,
            "grace": launch.kill_grace,
            "kill_patience": self._patience.kill,
            "record_patience": self._patience.record,
            "log_limit": launch.log_limit,
            "logs_full": self._files.logs_full,
        }
        if launch.user or launch.resources is not None:
            try:
                planned = limits.plan(self._can, launch.resources, launch.user)
            except limits.LimitError as error:
                self._report(attempt.run_id, not_started(attempt, str(error), self._clock.now()))
                return
            if planned is not None:
                message["limits"] = planned.message()
                message["reach"] = self._files.reach(attempt.run_id)
        if self._cgroups.attempts:
            message["cgroup"] = {
                "path": self._cgroups.of(attempt.token),
                "home": self._cgroups.home,
                "namespace": self._cgroups.namespace,
            }
        live = _Live(attempt, message=json.dumps(message), timeout=launch.timeout)
        if launch.timeout is not None and launch.timeout_cause is not TreeCause.TIMEOUT:
            live.deadline = self._loop.time() + launch.timeout
        self._live[attempt.token] = live
        self._waiting.append(live)
        self._hand_over()

    def stop(self, attempt: Attempt) -> None:
        live = self._live.get(attempt.token)
        if live is None:
            return
        if live.message is not None:
            # No shim was told of it: it has not begun, and now never will.
            self._waiting.remove(live)
            self._finish(live, AttemptVoided(step=attempt.step, token=attempt.token))
            return
        if live.pidfd >= 0 and not live.exited:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(live.pidfd, signal.SIGTERM)

    async def recover(self, attempt: Attempt) -> Event | None:
        """Looks at what the disk says: a living shim, an end record, nothing yet, or nothing any more.

        Takes seconds at most, those apart that the disk takes. Raises OSError; it may be asked again then.
        """
        try:
            found = await asyncio.to_thread(self._look, attempt)
        except OSError as error:
            self._cannot_look(attempt, error)
            raise
        self._could_look(attempt)
        if isinstance(found, Shim):
            self._watch(_Live(attempt, pid=found.pid, pidfd=found.pidfd, ours=False))
            return None
        return self._event_of(attempt, found)

    # -- shims

    def _hand_over(self) -> None:
        """Gives waiting attempts to parked shims, and asks for those that are missing."""
        handed_over = False
        while self._waiting and (parked := self._pool.take()) is not None:
            live = self._waiting[0]
            try:
                bootstrap = self._bootstrap(live)
            except OSError as error:
                self._pool.give_back(parked)
                self._try_again(f"cannot make its message: {error.strerror}")
                break
            failpoints.hit("launch.before_send")
            try:
                socket.send_fds(parked.sock, [b"bootstrap"], [bootstrap])
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._pool.give_back(parked)
                    self._try_again(f"cannot pass on its message: {error.strerror}")
                    break
                # It was ended while it was parked, and has read nothing.
                parked.discard()
                continue
            finally:
                os.close(bootstrap)
            failpoints.hit("launch.after_send")
            self._waiting.popleft()
            live.message = None
            handed_over = True
            live.pid, live.pidfd, live.sock = parked.pid, parked.pidfd, parked.sock
            live.ours = True
            self._loop.add_reader(live.sock, self._closed, live)
            self._watch(live)
        if handed_over:
            self._shims_are_there()
        self._pool.want(len(self._waiting))

    def _bootstrap(self, live: _Live) -> int:
        """A memory file that only the shim will read. Raises OSError."""
        assert live.message is not None
        timeout = live.timeout
        if live.deadline is not None:
            # It may have waited: a timeout that began before this attempt did not.
            timeout = max(0.0, live.deadline - self._loop.time())
        message = f'{live.message[:-1]}, "timeout": {json.dumps(timeout)}}}'
        failpoints.hit("launch.message")
        fd = os.memfd_create("toban-bootstrap", os.MFD_CLOEXEC)
        try:
            left = memoryview(message.encode())
            while left:
                left = left[os.write(fd, left) :]
        except OSError:
            os.close(fd)
            raise
        return fd

    def _try_again(self, reason: str) -> None:
        self.no_shim(reason)
        if self._again is None:
            self._again = self._loop.call_later(PAUSE, self._hand_over_again)

    def _hand_over_again(self) -> None:
        self._again = None
        if not self._waiting:
            self._shims_are_there()
        self._hand_over()

    def shim_parked(self) -> None:
        if self._again is None:
            self._hand_over()
            self._shims_are_there()

    def _shims_are_there(self) -> None:
        if self._shims_missing and self._again is None and not self._pool.short:
            self._shims_missing = False
            self._conditions.well(SPAWNER)

    def shim_gone(self, pid: int, orphans: int, left: int) -> None:
        """The spawner reaped a shim that failed, and ended what it left."""
        for live in list(self._live.values()):
            if live.ours and live.pid == pid:
                if not live.exited:
                    self._exited(live)
                if live.attempt.token in self._live:
                    known = "ended" if orphans else "none"
                    self._lost(live, f"{left} could not be ended" if left else known)

    def no_shim(self, reason: str) -> None:
        """What waits has certainly not begun, and waits on."""
        self._shims_missing = True
        count = len(self._waiting)
        waiting = f"{count} attempt{'s wait' if count != 1 else ' waits'} for one"
        detail = f"cannot start steps' supervisors, trying again: {reason}; {waiting}"
        self._conditions.trouble(SPAWNER, HealthStatus.DEGRADED, detail)

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
        with contextlib.suppress(OSError):
            self._take_record(live)

    def _take_record(self, live: _Live) -> bool:
        """Whether there is one. Raises OSError if that cannot be known now."""
        record = None
        with (
            contextlib.suppress(FileNotFoundError),
            open(self._files.log(live.attempt), "rb", 0) as file,
        ):
            record = frames.read_end(file.fileno())
        if record is None:
            return False
        self._finish(live, self._event_of(live.attempt, _Record(record)))
        return True

    def _exited(self, live: _Live) -> None:
        self._loop.remove_reader(live.pidfd)
        live.exited = True
        try:
            if self._take_record(live):
                return
        except OSError:
            # No descriptor is left, or the disk does not answer: that passes.
            if live.timer is not None:
                live.timer.cancel()
            live.timer = self._loop.call_later(LOOK_AGAIN, self._exited, live)
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
            found = replace(found, orphans=_known(found.orphans, orphans))
        if not isinstance(found, Shim):
            self._finish(live, self._event_of(live.attempt, found))
        else:
            os.close(found.pidfd)

    def _event_of(self, attempt: Attempt, found: _Record | Event) -> Event:
        """What is to be reported; what a record says of the machine goes to the conditions."""
        if not isinstance(found, _Record):
            return found
        record = found.facts
        if record["survivors"]:
            self._survived(attempt, record)
        if record.get("unsynced"):
            self._unsynced = True
            detail = (
                f"the disk failed to store {self._files.log(attempt)} (fsync failed): look at the disk; "
                "the end is known, but what the step printed may be lost if the power fails"
            )
            self._conditions.trouble(ATTEMPT_FILES, HealthStatus.DEGRADED, detail)
        elif self._unsynced:
            self._unsynced = False
            if not self._unknown:
                self._conditions.well(ATTEMPT_FILES)
        return records.ended(attempt, record)

    # -- processes that do not die

    def _survived(self, attempt: Attempt, record: dict[str, Any]) -> None:
        survivors = records.survivors(record)
        pids = ", ".join(str(pid) for pid, _ in survivors)
        text = (
            f"step {attempt.step} of run {attempt.run_id} left {record['survivors']} processes "
            f"that do not die: pids {pids}"
        )
        self._survivors |= dict.fromkeys(survivors, text)
        self._look_at_survivors()

    def _look_at_survivors(self) -> None:
        for pid, start in list(self._survivors):
            seen = tree.stat_of(pid)
            if seen is None or seen[1] != start or seen[2] in "ZX":
                del self._survivors[pid, start]
        if self._survivors_timer is not None:
            self._survivors_timer.cancel()
            self._survivors_timer = None
        if not self._survivors:
            self._conditions.well(UNKILLABLE)
            return
        detail = "; ".join(sorted(set(self._survivors.values())))
        self._conditions.trouble(UNKILLABLE, HealthStatus.DEGRADED, detail)
        self._survivors_timer = self._loop.call_later(SURVIVORS_EVERY, self._look_at_survivors)

    def _finish(self, live: _Live, event: Event) -> None:
        if self._live.pop(live.attempt.token, None) is not None:
            self._let_go(live)
            if not isinstance(event, AttemptVoided):
                self._voids.pop(live.attempt.id, None)
            self._report(live.attempt.run_id, event)

    def _let_go(self, live: _Live) -> None:
        if live.timer is not None:
            live.timer.cancel()
        if live.sock is not None:
            self._loop.remove_reader(live.sock)
            live.sock.close()
            live.sock = None
        if live.pidfd >= 0:
            self._loop.remove_reader(live.pidfd)
            os.close(live.pidfd)
            live.pidfd = -1

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

    def _read(self, attempt: Attempt, fd: int) -> Shim | _Record | Event | None:
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
                return Shim(facts["pid"], pidfd)
            os.close(pidfd)
            return None
        record = frames.read_end(fd)
        if record is not None:
            return _Record(record)
        # A power cut may leave a claim its name and not its text.
        booted = (facts["boot_id"] if facts is not None else attempt.boot_id) != self._boot_id
        return AttemptLost(
            step=attempt.step,
            token=attempt.token,
            error="the machine went down while it ran"
            if booted
            else "its supervisor ended without a record; whether the step did its work is unknown",
            orphans="none" if booted else self._end_left(attempt, facts),
        )

    def _end_left(self, attempt: Attempt, facts: dict[str, Any] | None) -> str:
        """Ends what is in the cgroup of a dead shim: then it is known that nothing is left. Runs in a thread."""
        path = facts.get("cgroup", "") if facts is not None else ""
        namespace = facts.get("cgroup_ns", "") if facts is not None else ""
        if not path or not self._cgroups.knows(path, namespace, attempt.token):
            return "unknown"
        return cgroups.end(path, CGROUP_PATIENCE)

    async def _sweep(self) -> None:
        """Ends what dead shims left in their cgroups, also of attempts that nobody asks for any more."""
        while True:
            gone, left = await asyncio.to_thread(cgroups.sweep, self._cgroups.attempts)
            if gone or left:
                log.warning("ended cgroups without an owner", action="swept", gone=gone, left=left)
            await asyncio.sleep(SWEEP_EVERY)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _known(by_cgroup: str, by_spawner: str) -> str:
    """What became of a dead shim's processes, by the two who may know."""
    if by_cgroup == "unknown":
        return by_spawner
    return "ended" if by_cgroup == "none" and by_spawner == "ended" else by_cgroup


def _locked(fd: int) -> bool:
    """Whether a living shim holds the claim."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False
