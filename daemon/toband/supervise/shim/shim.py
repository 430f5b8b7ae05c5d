"""The shim: one per attempt. It owns a step's process tree, pipes, timeout and log, and outlives the daemon.

The order of what it does is the launch protocol: claim (at most one shim ever wins an attempt), start, watch, end what
is left, prove the tree empty, write the end record, make it durable, exit. Its exit is the announcement.

Standard library only, and as little of it as possible: the spawner forks this in about a millisecond.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX shim needs fork")

import os
import resource
import select
import signal
import time
from typing import Any

from toband import failpoints
from toband.supervise.shim import cgroups, exec_step, frames, private_tmp, process_tree, secret_files
from toband.supervise.shim.attempt_file import AttemptFile, now_us
from toband.supervise.shim.output_limit import amount
from toband.supervise.shim.step_child import StartError
from toband.supervise.shim.step_masks import StepMasks

KILL_PATIENCE = 30.0
"""Seconds that a KILLed tree may take to end before it counts as unkillable."""
RECORD_PATIENCE = 600.0
"""Seconds of retrying to write the end record before the attempt is given up as lost."""
RECORD_PAUSE = 1.0
WATCH_EVERY = 0.25
"""Seconds between memory measurements of a tree whose limit no cgroup enforces."""
START_PATIENCE = 30.0
"""Seconds of retrying to start the step while the system lacks a resource."""
START_PAUSE = 1.0
NEARLY = 0.9
"""Share of the memory limit above which a failed process counts as out of memory."""
READ_SIZE = 256 * 1024
_PIPE_SIZE = 256 * 1024
_F_SETPIPE_SZ = 1031
_LONGEST_WAIT = 3600.0
_SIDE_FILE_LIMIT = 1024 * 1024
_SURVIVORS_NAMED = 20
_WAY_OUT = 0.2
"""Seconds to wait for an exiting process before signalling it."""

got: set[int] = set()
"""Signals that arrived and are not handled yet."""


def note_signal(signum: int, _frame: object) -> None:
    got.add(signum)


class Shim:
    """One attempt, from its claim to its end record."""

    def __init__(self, boot: dict[str, Any], file: AttemptFile, wake: int, masks: StepMasks | None = None) -> None:
        self._boot = boot
        self._masks = masks
        self._file = file
        self._wake = wake
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._streams: dict[int, int] = {}
        self._limits: dict[str, Any] = boot.get("limits") or {}
        self._cgroup: str = boot["cgroup"]["path"] if boot.get("cgroup") else ""
        self._outside = True
        self._cgroup_gone = False
        self._main = 0
        self._status: int | None = None
        self._killed_by_others = False
        self._dies_of_term = False
        self._limit = ""
        self._error = ""
        self._empty = False
        self._cause = "exited"
        self._signals: list[str] = []
        self._told: set[tuple[int, int]] = set()
        self._all_told = False
        self._leftovers = 0
        self._first_signal = 0.0
        self._took = 0.0
        self._started_at = 0
        self._heard_at = 0.0

    def run(self) -> None:
        """Raises OSError only when not even the end record could be written."""
        began = time.monotonic()
        error = self._boot.get("refused", "") or self._start()
        if error:
            self._leave_cgroup()
            self._finish(self._record(not_started=error))
            return
        timeout = self._boot.get("timeout")
        # The time of one attempt begins with its process, however long that took to make; that of the run, or of a
        # loop, has begun before.
        if self._boot.get("timeout_kind", "timeout") == "timeout":
            began = time.monotonic()
        deadline = None if timeout is None else began + timeout
        idle = self._boot.get("idle_timeout")
        self._heard_at = time.monotonic()
        memory = self._limits.get("memory")
        look_at = None if memory is None else began
        kill_at: float | None = None
        while not self._empty:
            until = kill_at if kill_at is not None else deadline
            if look_at is not None and kill_at is None:
                until = look_at if until is None else min(until, look_at)
            if idle is not None and kill_at is None:
                silent = self._heard_at + idle
                until = silent if until is None else min(until, silent)
            self._wait(until)
            self._empty = process_tree.reap(self._ended)
            if self._empty:
                break
            now = time.monotonic()
            if kill_at is not None:
                if now >= kill_at:
                    self._kill()
                    break
                if self._status is not None and not self._all_told:
                    self._tell_to_end(process_tree.descendants())
            elif self._status is not None:
                left = process_tree.descendants()
                self._leftovers = len(left)
                kill_at = self._terminate(now, left)
            elif signal.SIGTERM in got:
                kill_at = self._end_main("cancel", now)
            elif deadline is not None and now >= deadline:
                kill_at = self._end_main(self._boot.get("timeout_kind", "timeout"), now)
            elif idle is not None and now >= self._heard_at + idle:
                kill_at = self._end_main("idle_timeout", now)
            elif memory is not None and look_at is not None and now >= look_at:
                look_at = now + WATCH_EVERY
                if not self._main_exited() and self._holds_more_than(memory):
                    # Memory does not wait for a grace, as it would not with the kernel's own limit.
                    self._cause = "limit"
                    self._first_signal = kill_at = now
        self._leave_cgroup()
        if self._first_signal:
            self._took = time.monotonic() - self._first_signal
        if self._by_itself():
            self._cause = "exited"
        self._drain()
        self._explain()
        if self._limit:
            self._file.note(f"limit of {self._limit}")
        self._finish(self._record())

    def rehearse(self) -> None:
        """Runs through the code paths of an attempt without a step, into a scratch file."""
        self._file.started({"pid": 0, "at": now_us()})
        self._wait(0.0)
        process_tree.reap(self._ended)
        self._leave_cgroup()
        self._drain()
        self._explain()
        self._finish(self._record())

    def _finish(self, record: dict[str, Any]) -> None:
        """Retries writing the end record, because only this process can write it. Raises OSError."""
        if self._empty or not self._main:
            secret_files.remove(self._boot)
            private_tmp.remove(self._boot)
        until = time.monotonic() + float(self._boot.get("record_patience", RECORD_PATIENCE))
        while True:
            try:
                self._file.finish(record)
                return
            except OSError:
                if time.monotonic() >= until:
                    raise
            time.sleep(RECORD_PAUSE)

    def _start(self) -> str:
        """Starts the step; the reason if it cannot be started."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self._main, self._outside = self._start_patiently(out_write, err_write)
        except StartError as error:
            os.close(out_read)
            os.close(err_read)
            return str(error)
        finally:
            os.close(out_write)
            os.close(err_write)
        failpoints.hit("shim.started")
        self._started_at = now_us()
        self._file.started({"pid": self._main, "at": self._started_at})
        for fd, kind in ((out_read, frames.STDOUT), (err_read, frames.STDERR)):
            os.set_blocking(fd, False)
            self._streams[fd] = kind
            self._poll.register(fd, select.POLLIN)
        return ""

    def _start_patiently(self, out: int, err: int) -> exec_step.Started:
        """A system that is short of processes or memory for a moment does not fail the step. Raises StartError."""
        until = time.monotonic() + START_PATIENCE
        while True:
            try:
                return exec_step.start(self._boot, out, err)
            except StartError as error:
                now = time.monotonic()
                if not error.passing or now >= until or signal.SIGTERM in got:
                    raise
            self._wait(now + START_PAUSE)

    def _wait(self, until: float | None) -> None:
        # Capped: poll cannot wait longer than 24 days, and the caller checks again.
        left = None if until is None else min(_LONGEST_WAIT, max(0.0, until - time.monotonic()))
        timeout = None if left is None else left * 1000 + 1
        for fd, _ in self._poll.poll(timeout):
            if fd == self._wake:
                os.read(self._wake, 4096)
            else:
                self._read(fd)

    def _read(self, fd: int) -> int:
        """Copies available output from a pipe into the log; returns the number of bytes, 0 if there is none."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self._poll.unregister(fd)
            os.close(fd)
            self._end_masked(self._streams.pop(fd))
            return 0
        if len(data) == 65536 and not self._boot.get("wide"):
            self._widen()
        if self._masks is None:
            self._file.append(self._streams[fd], data)
        elif masked := self._masks.feed(self._streams[fd], data):
            self._file.append(self._streams[fd], masked)
        # After the write: the disk may have taken its time, and the step could not print meanwhile.
        self._heard_at = time.monotonic()
        return len(data)

    def _end_masked(self, kind: int) -> None:
        if self._masks is not None and (rest := self._masks.end(kind)):
            self._file.append(kind, rest)

    def _widen(self) -> None:
        """A step that fills its pipe gets a larger one; a system that will not give it is no error."""
        import fcntl

        self._boot["wide"] = True
        for fd in self._streams:
            try:
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_SIZE)
            except OSError:
                return

    def _ended(self, pid: int, status: int) -> None:
        if pid == self._main and self._status is None:
            self._status = status
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            self._killed_by_others = killed and "KILL" not in self._signals

    def _end_main(self, cause: str, now: float) -> float | None:
        """Starts ending the step. None if its main process exited before it was signalled."""
        # The walk comes first: it takes longer than a step may need to end, and a process that the step starts on
        # its way out could lose a signal that arrives before its handlers are set. That process is signalled later.
        found = process_tree.descendants()
        failpoints.hit("shim.end_main")
        if self._main_exited():
            return None
        self._dies_of_term = process_tree.dies_of(self._main, signal.SIGTERM)
        self._cause = cause
        return self._terminate(now, sorted(found, key=lambda target: target.pid != self._main))

    def _main_exited(self) -> bool:
        """Whether the main process has exited, without reaping it. An exiting process gets a moment."""
        until = time.monotonic() + _WAY_OUT
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            while (found := os.waitid(os.P_PID, self._main, options)) is None:
                if not process_tree.exiting(self._main) or time.monotonic() >= until:
                    break
                time.sleep(0.001)
        except ChildProcessError:
            return True
        return found is not None

    def _by_itself(self) -> bool:
        """Whether the main process exited although TERM would have killed it: then it was over before that came."""
        status = self._status
        return self._dies_of_term and status is not None and os.WIFEXITED(status)

    def _terminate(self, now: float, targets: list[process_tree.Target]) -> float:
        self._first_signal = now
        self._signals.append("TERM")
        self._tell_to_end(targets)
        return now + float(self._boot.get("grace", 10.0))

    def _tell_to_end(self, targets: list[process_tree.Target]) -> None:
        """Sends TERM to every process that has not got it yet.

        Once when the tree is to end, and again when the main process has exited, for what it started meanwhile.
        """
        self._all_told = self._status is not None
        for target in targets:
            if (target.pid, target.start) not in self._told:
                self._told.add((target.pid, target.start))
                process_tree.send(target, signal.SIGTERM)

    def _kill(self) -> None:
        self._signals.append("KILL")
        if self._cgroup and self._outside:
            cgroups.kill(self._cgroup)
        self._empty = process_tree.kill_all(self._ended, self._patience())

    def _patience(self) -> float:
        return float(self._boot.get("kill_patience", KILL_PATIENCE))

    def _holds_more_than(self, memory: int) -> bool:
        held = process_tree.memory(memory)
        if held <= memory:
            return False
        self._limit = f"memory: its processes held {amount(held)} together, the limit is {amount(memory)}"
        return True

    def _leave_cgroup(self) -> None:
        """Records the cgroup's counters, ends and removes the cgroup, and so proves it empty."""
        if not self._cgroup or not self._outside:
            return
        files, words = self._limits.get("cgroup", {}), self._limits.get("words", {})
        if "memory.max" in files:
            counted = cgroups.events(self._cgroup, "memory.events")
            if counted.get("oom_kill") or counted.get("oom_group_kill"):
                self._limit = f"memory: the kernel ended it at the limit of {words.get('memory')}"
                if self._killed_by_others and self._cause == "exited":
                    self._cause = "limit"
        if "pids.max" in files and not self._limit:
            refused = cgroups.events(self._cgroup, "pids.events").get("max", 0)
            if refused:
                self._limit = f"pids: {refused} times it was refused more than {words.get('pids')} processes"
        found = cgroups.end(self._cgroup, self._patience() if self._empty else 0.0)
        self._cgroup_gone = found in ("none", "ended")
        # A process that was moved into the cgroup from outside; it was ended with the rest.
        self._leftovers += found == "ended"
        self._empty = self._empty and self._cgroup_gone

    def _explain(self) -> None:
        """Explains a KILL that this shim did not send, or a failure at a limit, if the cause is known."""
        data = self._limits.get("data")
        if data is not None and not self._limit and self._status:
            # An allocation was refused; only the size of the process shows it.
            peak = _max_rss(resource.getrusage(resource.RUSAGE_CHILDREN))
            if peak >= data * NEARLY:
                self._limit = f"memory: a process of it held {amount(peak)}, and was refused more than {amount(data)}"
        if self._cause == "limit":
            self._error = self._limit
        elif self._killed_by_others and oom_kills() > self._boot.get("oom_kills", 1 << 62):
            self._error = "killed by signal 9; the kernel's out-of-memory killer was at work while it ran"

    def _drain(self) -> None:
        """Copies the rest of the pipes without waiting: other processes may hold them open."""
        for fd in list(self._streams):
            most = 16 * _PIPE_SIZE
            while most > 0 and fd in self._streams:
                size = self._read(fd)
                if size == 0:
                    break
                most -= size
            if fd in self._streams:
                self._end_masked(self._streams[fd])

    def _record(self, not_started: str = "") -> dict[str, Any]:
        status = self._status
        survivors = [] if self._empty or not_started else process_tree.descendants()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        record: dict[str, Any] = {
            "seal": self._boot["seal"],
            "cause": "nostart" if not_started else self._cause,
            "error": not_started or self._error,
            "pid": self._main,
            "started_at": self._started_at or now_us(),
            "finished_at": now_us(),
            "exit_code": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            "signals": self._signals,
            "leftovers": self._leftovers,
            "survivors": len(survivors),
            "survivor_pids": [[each.pid, each.start] for each in survivors[:_SURVIVORS_NAMED]],
            "proved_empty": self._empty,
            "limit": self._limit,
            "cgroup": self._cgroup_gone,
            "took": self._took,
            "stdout_bytes": self._file.written[frames.STDOUT],
            "stderr_bytes": self._file.written[frames.STDERR],
            "dropped": self._file.dropped,
            "user_time": usage.ru_utime,
            "system_time": usage.ru_stime,
            "max_rss": _max_rss(usage),
            "unsynced": False,
        }
        for key in ("output", "result"):
            try:
                text = _side_file(self._boot.get(key))
            except ValueError as error:
                # A step whose values are lost has not succeeded.
                record["error"] = record["error"] or f"cannot keep its {key}: {error}"
                continue
            if text is not None:
                record[key] = text
        if self._masks is not None:
            self._masks.mask_record(record, self._boot)
        return record


def _max_rss(usage: Any) -> int:
    """Of the step's processes. 0: none grew beyond this process, whose pages a child counts until it execs."""
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = int(usage.ru_maxrss)
    return largest * 1024 if largest > mine else 0


def oom_kills() -> int:
    """Number of OOM kills of the kernel since boot; 0 if unknown."""
    try:
        fd = os.open("/proc/vmstat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = frames.pread(fd, 16 * 1024, 0)
        finally:
            os.close(fd)
        return int(text.partition(b"\noom_kill ")[2].partition(b"\n")[0] or 0)
    except (OSError, ValueError):
        return 0


def _side_file(path: str | None) -> str | None:
    """Content of a file that the step wrote for the daemon; None if there is none. Raises ValueError if too large."""
    if not path:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, _SIDE_FILE_LIMIT + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) > _SIDE_FILE_LIMIT:
        raise ValueError(f"it is larger than {_SIDE_FILE_LIMIT:,} bytes; write a file and pass its path")
    return data.decode(errors="replace")
