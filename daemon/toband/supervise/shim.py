"""The shim: one per attempt. It owns a step's process tree, pipes, timeout and log, and outlives the daemon.

The order of what it does is the launch protocol: claim (at most one shim ever wins an attempt), start, watch, end what
is left, prove the tree empty, write the end record, make it durable, exit. Its exit is the announcement.

Standard library only, and as little of it as possible: the spawner forks this in about a millisecond.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX shim needs fork")

import errno
import json
import os
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from toband import failpoints
from toband.supervise import frames, tree
from toband.supervise.attempt_file import AttemptFile, claim, now_us

EXIT_DONE = 0
EXIT_NOT_MINE = 3
EXIT_BROKEN = 4

KILL_PATIENCE = 30.0
"""How long a KILLed tree may take to vanish before it is given up as unkillable."""
REHEARSE_AFTER = 2
"""Milliseconds: a shim that is used at once has no time to prepare."""
READ_SIZE = 256 * 1024
_PIPE_SIZE = 256 * 1024
_F_SETPIPE_SZ = 1031
_LONGEST_WAIT = 3600.0
# A step starts with every signal as it should be, whatever was ignored where the daemon was started.
_ALL_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_SIDE_FILE_LIMIT = 1024 * 1024

got: set[int] = set()
"""Signals that arrived and were not looked at yet."""


def note_signal(signum: int, _frame: object) -> None:
    got.add(signum)


class Shim:
    """One attempt, from its claim to its end record."""

    def __init__(self, boot: dict[str, Any], file: AttemptFile, wake: int) -> None:
        self._boot = boot
        self._file = file
        self._wake = wake
        self._poll = select.poll()
        self._poll.register(wake, select.POLLIN)
        self._streams: dict[int, int] = {}
        self._main = 0
        self._status: int | None = None
        self._empty = False
        self._cause = "exited"
        self._signals: list[str] = []
        self._told: set[tuple[int, int]] = set()
        self._all_told = False
        self._leftovers = 0
        self._first_signal = 0.0
        self._took = 0.0
        self._started_at = 0

    def run(self) -> None:
        """Raises OSError only when not even the end record could be written."""
        began = time.monotonic()
        error = self._start()
        if error:
            self._file.finish(self._record(error=error))
            return
        timeout = self._boot.get("timeout")
        deadline = None if timeout is None else began + timeout
        kill_at: float | None = None
        while not self._empty:
            self._wait(kill_at if kill_at is not None else deadline)
            self._empty = tree.reap(self._ended)
            if self._empty:
                break
            now = time.monotonic()
            if kill_at is not None:
                if now >= kill_at:
                    self._kill()
                    break
                if self._status is not None and not self._all_told:
                    self._tell_to_end()
            elif self._status is not None:
                self._leftovers = len(tree.descendants())
                kill_at = self._terminate(now)
            elif signal.SIGTERM in got:
                self._cause = "cancel"
                kill_at = self._terminate(now)
            elif deadline is not None and now >= deadline:
                self._cause = self._boot.get("timeout_kind", "timeout")
                kill_at = self._terminate(now)
        if self._first_signal:
            self._took = time.monotonic() - self._first_signal
        self._drain()
        self._file.finish(self._record())

    def rehearse(self) -> None:
        """Everything but a step, into a file that nobody keeps."""
        self._file.started({"pid": 0, "at": now_us()})
        self._wait(0.0)
        tree.reap(self._ended)
        self._drain()
        self._file.finish(self._record())

    def _start(self) -> str:
        """Starts the step; the reason if it cannot be started."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self._main = _spawn(self._boot, out_write, err_write)
        except (OSError, ValueError) as error:
            os.close(out_read)
            os.close(err_read)
            return _cannot_start(self._boot, error)
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

    def _wait(self, until: float | None) -> None:
        # Capped: the system cannot wait longer than 24 days at a time, and whoever calls looks again.
        left = None if until is None else min(_LONGEST_WAIT, max(0.0, until - time.monotonic()))
        timeout = None if left is None else left * 1000 + 1
        for fd, _ in self._poll.poll(timeout):
            if fd == self._wake:
                os.read(self._wake, 4096)
            else:
                self._read(fd)

    def _read(self, fd: int) -> int:
        """Takes what a pipe holds into the log; how much it was. 0: nothing more for now, or at all."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self._poll.unregister(fd)
            os.close(fd)
            del self._streams[fd]
            return 0
        if len(data) == 65536 and not self._boot.get("wide"):
            self._widen()
        self._file.append(self._streams[fd], data)
        return len(data)

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

    def _terminate(self, now: float) -> float:
        self._first_signal = now
        self._signals.append("TERM")
        self._tell_to_end()
        return now + float(self._boot.get("grace", 10.0))

    def _tell_to_end(self) -> None:
        """TERM to everybody who did not get it yet.

        Once when the tree is to end, and once more when its main process has exited: what that one started while it was
        told, or because it was, is left now.
        """
        self._all_told = self._status is not None
        for target in tree.descendants():
            if (target.pid, target.start) not in self._told:
                self._told.add((target.pid, target.start))
                tree.send(target, signal.SIGTERM)

    def _kill(self) -> None:
        self._signals.append("KILL")
        self._empty = tree.kill_all(self._ended, KILL_PATIENCE)

    def _drain(self) -> None:
        """Takes what is left in the pipes, and waits for nobody: somebody else may hold them open."""
        for fd in list(self._streams):
            most = 16 * _PIPE_SIZE
            while most > 0 and fd in self._streams:
                size = self._read(fd)
                if size == 0:
                    break
                most -= size

    def _record(self, error: str = "") -> dict[str, Any]:
        status = self._status
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        record: dict[str, Any] = {
            "seal": self._boot["seal"],
            "cause": "nostart" if error else self._cause,
            "error": error,
            "pid": self._main,
            "started_at": self._started_at or now_us(),
            "finished_at": now_us(),
            "exit_code": os.WEXITSTATUS(status)
            if status is not None and os.WIFEXITED(status)
            else None,
            "signal": os.WTERMSIG(status)
            if status is not None and os.WIFSIGNALED(status)
            else None,
            "signals": self._signals,
            "leftovers": self._leftovers,
            "survivors": 0 if self._empty or error else len(tree.descendants()),
            "proved_empty": self._empty,
            "took": self._took,
            "stdout_bytes": self._file.written[frames.STDOUT],
            "stderr_bytes": self._file.written[frames.STDERR],
            "dropped": self._file.dropped,
            "user_time": usage.ru_utime,
            "system_time": usage.ru_stime,
            "max_rss": _max_rss(usage),
        }
        for key in ("output", "result"):
            text = _side_file(self._boot.get(key))
            if text is not None:
                record[key] = text
        return record


def _max_rss(usage: Any) -> int:
    """Of the step's processes. 0: none grew beyond this process, whose pages a child counts until it execs."""
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = int(usage.ru_maxrss)
    return largest * 1024 if largest > mine else 0


def _spawn(boot: dict[str, Any], out: int, err: int) -> int:
    """Starts the step in a session of its own; its pid. Raises OSError.

    Python's own descriptors are all close-on-exec, so that nothing but these three is passed on. posix_spawn rather
    than subprocess: it copies no memory, and the spawner stays small enough to be forked quickly.
    """
    argv, env, cwd = boot["argv"], boot["env"], boot.get("cwd")
    if cwd:
        os.chdir(cwd)
    try:
        return os.posix_spawn(
            _found(argv[0], env),
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, err, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_ALL_SIGNALS,
        )
    finally:
        os.chdir("/")


def _found(program: str, env: dict[str, str]) -> str:
    """Where the program is, by the PATH that the step is given. Raises OSError as exec would."""
    if "/" in program:
        return program
    denied = False
    for directory in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory or ".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        denied = denied or os.path.exists(path)
    code = errno.EACCES if denied else errno.ENOENT
    raise OSError(code, os.strerror(code), program)


def _cannot_start(boot: dict[str, Any], error: Exception) -> str:
    program, cwd = boot["argv"][0], boot.get("cwd")
    if isinstance(error, OSError):
        if cwd and error.filename == cwd:
            return f"cannot start {program}: cannot enter the workspace {cwd}: {error.strerror}"
        return f"cannot start {program}: {error.strerror}"
    return f"cannot start {program}: {error}"


def _side_file(path: str | None) -> str | None:
    """What the step wrote into a file of ours; None if it wrote none, or more than it may."""
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
    return data.decode(errors="replace") if len(data) <= _SIDE_FILE_LIMIT else None


def main(sock: socket.socket, boot_id: str) -> NoReturn:
    """Runs in a fresh fork of the spawner: waits parked for its one bootstrap message, which nobody else reads."""
    code = EXIT_BROKEN
    try:
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        tree.become_subreaper()
        me = os.getpid()
        seen = tree.stat_of(me)
        facts = {
            "format": frames.FORMAT,
            "pid": me,
            "start": seen[1] if seen else 0,
            "boot_id": boot_id,
            "seal": os.urandom(8).hex(),
        }
        boot = _parked(sock, wake, facts)
        if boot is None:
            os._exit(EXIT_NOT_MINE if got else EXIT_DONE)
        boot["seal"] = facts["seal"]
        facts |= {"attempt": boot["attempt"], "token": boot["token"]}
        failpoints.hit("shim.before_claim")
        fd = claim(boot["dir"], boot["file"], facts)
        if fd is None:
            os._exit(EXIT_NOT_MINE)
        failpoints.hit("shim.claimed")
        Shim(boot, AttemptFile(fd), wake).run()
        # All is on disk. Closing this tells a daemon that still listens, sooner than the end of this process can.
        sock.close()
        code = EXIT_DONE
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _parked(sock: socket.socket, wake: int, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The bootstrap message; None if the daemon went away, or somebody ended this process, before there was one."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(wake, select.POLLIN)
    if not poll.poll(REHEARSE_AFTER) and not failpoints.armed():
        _rehearse(facts)
    while True:
        poll.poll()
        # A daemon sends the message first, and only then perhaps a signal: look for it once more after that.
        told = signal.SIGTERM in got
        if select.select([sock], [], [], 0)[0]:
            break
        if told:
            return None
        os.read(wake, 4096)
    try:
        _, fds, _, _ = socket.recv_fds(sock, 16, 1)
    except ConnectionError:
        return None
    if not fds:
        return None
    try:
        message = frames.pread(fds[0], os.fstat(fds[0]).st_size, 0)
    finally:
        os.close(fds[0])
    boot: dict[str, Any] = json.loads(message)
    return boot


def _rehearse(facts: dict[str, Any]) -> None:
    """Touches, while nobody waits, the memory that an attempt will use: after a fork each first touch costs a copy."""
    frames.encode_json(frames.CLAIM, now_us(), facts)
    json.loads('{"argv": ["a"], "env": {"PATH": "/bin"}, "timeout": null, "grace": 10.0}')
    reader, writer = os.pipe()
    scratch = os.memfd_create("toban-rehearsal")
    rehearsal = Shim({"argv": ["a"], "env": {}, "seal": ""}, AttemptFile(scratch), reader)
    rehearsal.rehearse()
    for fd in (scratch, reader, writer):
        os.close(fd)
