"""The shim on Windows: one process per attempt. It owns the step's job, pipes, timeout and log; it outlives the daemon.

The order of its actions is the launch protocol: claim (at most one shim ever wins an attempt), start, watch, end the
remaining processes, prove the job empty, write the end record, make it durable, exit. Its exit is the announcement.

The step's processes are in a Job Object. This process has the only handle, and the job ends with that handle: nothing
survives the shim, however it ends. Nothing can leave the job.

Standard library only.
"""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this is the shim for Windows")

import _winapi
import contextlib
import json
import msvcrt
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from toband import failpoints
from toband.backoff import Backoff
from toband.supervise.shim import env_files, frames, secret_files
from toband.supervise.shim.step_masks import StepMasks, masker_of
from toband.supervise.shim.windows import win32
from toband.supervise.shim.windows.attempt_file import AttemptFile, claim, now_us

EXIT_DONE = 0
EXIT_NOT_MINE = 3
EXIT_BROKEN = 4

KILL_PATIENCE = 30.0
"""Seconds that a terminated job may take to become empty before the shim gives up."""
RECORD_PATIENCE = 600.0
"""Seconds for which writing the end record is retried before it is given up as lost."""
RECORD_PAUSE = 1.0
SETTLE = 0.05
"""Seconds in which processes that end together with the main one do not count as leftovers."""
DRAIN = 1.0
"""Seconds to read a pipe that an outside process has open, after its last byte."""
READ_SIZE = 256 * 1024
_LONGEST_WAIT = 3600.0
_CREATE_SUSPENDED = 0x4
_SIDE_FILE_LIMIT = 1024 * 1024
_EXTENSIONS = ".COM;.EXE;.BAT;.CMD"
_BATCH = (".bat", ".cmd")
# Characters that cmd.exe, which runs batch files, would not take as text.
_SPECIAL_TO_CMD = frozenset('"&|<>^%!\r\n')


class Shim:
    """One attempt, from its claim to its end record."""

    def __init__(self, boot: dict[str, Any], file: AttemptFile, masks: StepMasks | None = None) -> None:
        self._boot = boot
        self._masks = masks
        self._file = file
        self._job: win32.JobObject | None = None
        self._process = 0
        self._pid = 0
        self._exit_code: int | None = None
        self._readers: list[threading.Thread] = []
        self._read = 0
        self._cause = "exited"
        self._signals: list[str] = []
        self._leftovers = 0
        self._survivors = 0
        self._empty = False
        self._took = 0.0
        self._started_at = 0
        self._heard_at = 0.0

    def run(self, cancel: int) -> None:
        """Raises OSError only when not even the end record could be written."""
        began = time.monotonic()
        error = self._start()
        if error:
            self._finish(self._record(error=error))
            return
        timeout = self._boot.get("timeout")
        # The timeout of an attempt begins with its process, however long its creation took; that of the run, or of a
        # loop, began before.
        if self._boot.get("timeout_kind", "timeout") == "timeout":
            began = time.monotonic()
        self._heard_at = time.monotonic()
        deadline = None if timeout is None else began + timeout
        which = self._watch(cancel, deadline)
        if which != 0 and not win32.lives(self._process):
            which = 0  # it exited before it was asked to
        if which is None:
            late = deadline is not None and time.monotonic() >= deadline
            self._cause = self._boot.get("timeout_kind", "timeout") if late else "idle_timeout"
        elif which == 1:
            self._cause = "cancel"
        if which == 0:
            self._exit_code = win32.exit_code(self._process)
            if not self._empty_within(SETTLE):
                self._leftovers = self._active()
        if not self._empty:
            self._end_tree()
        self._drain()
        self._finish(self._record())

    def _finish(self, record: dict[str, Any]) -> None:
        """Retries a failing disk: it may recover, and no other process can write the record. Raises OSError."""
        if self._empty or not self._process:
            secret_files.remove(self._boot)
        until = time.monotonic() + RECORD_PATIENCE
        while True:
            try:
                self._file.finish(record)
                return
            except OSError:
                if time.monotonic() >= until:
                    raise
            time.sleep(RECORD_PAUSE)

    def _start(self) -> str:
        """Starts the step in its own job; returns the reason if it cannot be started."""
        boot = self._boot
        try:
            self._job = win32.JobObject(**boot.get("limits", {}))
            out_read, out_write = _winapi.CreatePipe(None, READ_SIZE)
            err_read, err_write = _winapi.CreatePipe(None, READ_SIZE)
            secret_files.place(boot)
            given, feed = _standard_input(boot.get("stdin"))
            try:
                self._process, thread, self._pid = _create(boot, given, out_write, err_write)
            finally:
                for handle in (given, out_write, err_write):
                    _winapi.CloseHandle(handle)
            try:
                self._job.assign(self._process)
                win32.resume(thread)
            except OSError:
                win32.terminate(self._process)
                raise
            finally:
                _winapi.CloseHandle(thread)
        except (OSError, ValueError) as error:
            return _cannot_start(boot, error)
        failpoints.hit("shim.started")
        if feed is not None:
            # In a thread: a step that does not read it must not block the shim.
            threading.Thread(target=feed, daemon=True).start()
        self._started_at = now_us()
        self._file.started({"pid": self._pid, "at": self._started_at})
        for handle, kind in ((out_read, frames.STDOUT), (err_read, frames.STDERR)):
            reader = threading.Thread(target=self._copy, args=(handle, kind), daemon=True)
            reader.start()
            self._readers.append(reader)
        return ""

    def _watch(self, cancel: int, deadline: float | None) -> int | None:
        """0: the main process has ended. 1: the attempt must end. None: its timeout or idle timeout has passed."""
        idle = self._boot.get("idle_timeout")
        while True:
            until = deadline
            if idle is not None:
                silent = self._heard_at + idle
                until = silent if until is None else min(until, silent)
            # Capped: the system cannot wait longer than 49 days at a time.
            left = None if until is None else min(_LONGEST_WAIT, max(0.0, until - time.monotonic()))
            which = win32.wait([self._process, cancel], left)
            now = time.monotonic()
            late = deadline is not None and now >= deadline
            if which is not None or late or (idle is not None and now >= self._heard_at + idle):
                return which

    def _copy(self, handle: int, kind: int) -> None:
        fd = msvcrt.open_osfhandle(handle, os.O_RDONLY | os.O_BINARY)
        while True:
            try:
                data = os.read(fd, READ_SIZE)
            except OSError:
                data = b""
            if not data:
                break
            if self._masks is None:
                self._file.append(kind, data)
            elif masked := self._masks.feed(kind, data):
                self._file.append(kind, masked)
            self._read += len(data)
            self._heard_at = time.monotonic()
        if self._masks is not None and (rest := self._masks.end(kind)):
            self._file.append(kind, rest)

    def _end_tree(self) -> None:
        """Sends CTRL_BREAK, which only programs with this console receive; after the grace the job is terminated."""
        began = time.monotonic()
        if win32.send_break(self._pid):
            self._signals.append("CTRL_BREAK")
            self._empty_within(float(self._boot.get("grace", 10.0)))
        if self._exit_code is None and not win32.lives(self._process):
            self._exit_code = win32.exit_code(self._process)
        if not self._empty:
            assert self._job is not None
            self._signals.append("JOB")
            self._job.terminate()
            if not self._empty_within(KILL_PATIENCE):
                self._survivors = self._active()
        self._took = time.monotonic() - began

    def _active(self) -> int:
        assert self._job is not None
        return self._job.active()

    def _empty_within(self, seconds: float) -> bool:
        """Whether the system reports, in that time, that no process is left."""
        until = time.monotonic() + seconds
        backoff = Backoff(0.001, 0.02)
        while not (empty := self._active() == 0) and time.monotonic() < until:
            time.sleep(min(backoff.pause(), max(0.0, until - time.monotonic())))
        self._empty = empty
        return empty

    def _drain(self) -> None:
        """Reads the rest of the pipes; a pipe that an outside process has open is given up when it falls silent."""
        for reader in self._readers:
            before = -1
            while reader.is_alive() and before != self._read:
                before = self._read
                reader.join(DRAIN)

    def _record(self, error: str = "") -> dict[str, Any]:
        user, system = self._job.times() if self._job is not None and not error else (0.0, 0.0)
        record: dict[str, Any] = {
            "seal": self._boot["seal"],
            "cause": "nostart" if error else self._cause,
            "error": error,
            "pid": 0 if error else self._pid,
            "started_at": self._started_at or now_us(),
            "finished_at": now_us(),
            "exit_code": self._exit_code,
            "signal": None,
            "signals": self._signals,
            "leftovers": self._leftovers,
            "survivors": self._survivors,
            "proved_empty": self._empty,
            "took": self._took,
            "stdout_bytes": self._file.written[frames.STDOUT],
            "stderr_bytes": self._file.written[frames.STDERR],
            "dropped": self._file.dropped,
            "user_time": user,
            "system_time": system,
            "max_rss": 0 if error else win32.peak_memory(self._process),
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


def _standard_input(text: str | None) -> tuple[int, Callable[[], None] | None]:
    """A handle that the step reads, and a function that writes the text to it. Raises OSError."""
    if not text:
        own = _winapi.GetCurrentProcess()
        with open(os.devnull, "rb") as nothing:
            handle = msvcrt.get_osfhandle(nothing.fileno())
            copy = _winapi.DuplicateHandle(own, handle, own, 0, False, _winapi.DUPLICATE_SAME_ACCESS)
        return copy, None
    read, write = _winapi.CreatePipe(None, READ_SIZE)
    fd = msvcrt.open_osfhandle(write, os.O_WRONLY | os.O_BINARY)
    left = memoryview(text.encode(errors="surrogateescape"))

    def feed() -> None:
        nonlocal left
        # It fails when no reader is left.
        with contextlib.suppress(OSError), open(fd, "wb", buffering=0) as pipe:
            while left:
                left = left[pipe.write(left) :]

    return read, feed


def _create(boot: dict[str, Any], given: int, out: int, err: int) -> tuple[int, int, int]:
    """Creates the step's process, suspended; returns its handle, its thread's handle, and its pid. Raises OSError.

    It inherits these three descriptors and nothing else, whatever this process has inherited itself.
    """
    env = _environment(env_files.environment(boot, guarded=False))
    cwd = os.path.normpath(boot["cwd"]) if boot.get("cwd") else None
    if cwd is not None and not os.path.isdir(cwd):
        raise NotADirectoryError(0, "there is no such directory", cwd)
    program = _found(boot["argv"][0], env, cwd)
    handles = [given, out, err]
    for handle in handles:
        os.set_handle_inheritable(handle, True)
    how = subprocess.STARTUPINFO(
        dwFlags=_winapi.STARTF_USESTDHANDLES,
        hStdInput=given,
        hStdOutput=out,
        hStdError=err,
        lpAttributeList={"handle_list": handles},
    )
    flags = _CREATE_SUSPENDED | subprocess.CREATE_NEW_PROCESS_GROUP
    process, thread, pid, _ = _winapi.CreateProcess(
        program, _command_line(program, boot["argv"]), None, None, True, flags, env, cwd, how
    )
    return process, thread, pid


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Windows treats `Path` and `PATH` as the same name; of two, the later counts."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in given.items():
        found[name.upper()] = (name, value)
    return dict(found.values())


def _found(program: str, env: Mapping[str, str], cwd: str | None) -> str:
    """The path of the program, found by the step's PATH, and never by this process's directory. Raises OSError."""
    known = {name.upper(): value for name, value in env.items()}
    if os.path.dirname(program) or os.path.splitdrive(program)[0]:
        places = [os.path.join(cwd or "", program)]
    else:
        root = known.get("SYSTEMROOT", os.environ.get("SYSTEMROOT", r"C:\Windows"))
        path = known.get("PATH", rf"{root}\System32;{root}")
        places = [os.path.join(each.strip('"'), program) for each in path.split(";") if each]
    extensions = [each for each in known.get("PATHEXT", _EXTENSIONS).split(";") if each]
    has_one = os.path.splitext(program)[1].lower() in (each.lower() for each in extensions)
    for place in places:
        for extension in ("", *extensions) if has_one else (*extensions, ""):
            path = os.path.normpath(place + extension)
            if os.path.isfile(path):
                return os.path.abspath(path)
    raise FileNotFoundError(2, "No such file or directory", program)


def _command_line(program: str, argv: Sequence[str]) -> str:
    """Every program parses its own command line. Most follow the rules of Microsoft's C library; cmd does not.

    Raises ValueError for arguments that cannot be passed to a batch file safely.
    """
    if len(argv) == 5 and [each.lower() for each in argv[:4]] == ["cmd.exe", "/d", "/s", "/c"]:
        return f'cmd.exe /d /s /c "{argv[4]}"'
    if program.lower().endswith(_BATCH):
        for argument in argv[1:]:
            if found := _SPECIAL_TO_CMD.intersection(argument):
                raise ValueError(
                    f"it is a batch file, and cmd would not take the {min(found)!r} in {argument!r} as text; "
                    "use a cmd step"
                )
    return subprocess.list2cmdline(argv)


def _cannot_start(boot: dict[str, Any], error: Exception) -> str:
    program, cwd = boot["argv"][0], boot.get("cwd")
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if isinstance(error, NotADirectoryError):
            return f"cannot start {program}: cannot enter the workspace {cwd}: {reason}"
        return f"cannot start {program}: {reason}"
    return f"cannot start {program}: {error}"


def _side_file(path: str | None) -> str | None:
    """The contents of a file that the step wrote; None if it wrote none. Raises ValueError if it is too large."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            data = file.read(_SIDE_FILE_LIMIT + 1)
    except OSError:
        return None
    if len(data) > _SIDE_FILE_LIMIT:
        raise ValueError(f"it has more than {_SIDE_FILE_LIMIT:,} bytes; write a file and pass its path")
    # Written by `>>` of Windows PowerShell.
    if data.startswith(b"\xff\xfe"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def main() -> NoReturn:
    """Reads its one bootstrap message from its standard input, until the end. An incomplete message is ignored."""
    code = EXIT_BROKEN
    try:
        try:
            boot: dict[str, Any] = json.loads(sys.stdin.buffer.read())
        except ValueError:
            os._exit(EXIT_NOT_MINE)
        cancel = win32.cancel_event(boot["token"])
        facts = {
            "format": frames.FORMAT,
            "pid": os.getpid(),
            "start": win32.created(_winapi.GetCurrentProcess()),
            "boot_id": boot["boot_id"],
            "seal": os.urandom(8).hex(),
            "attempt": boot["attempt"],
            "token": boot["token"],
            "command": boot.get("command", ""),
        }
        masker = masker_of(boot)
        if masker is not None:
            facts["command"] = masker.mask_text(facts["command"])
        boot["seal"] = facts["seal"]
        failpoints.hit("shim.before_claim")
        fd = claim(boot["dir"], boot["file"], facts, boot.get("second", ""))
        if fd is None:
            os._exit(EXIT_NOT_MINE)
        failpoints.hit("shim.claimed")
        secret_files.take_material(boot)
        file = AttemptFile(fd, boot.get("log_limit"), boot.get("logs_full", ""))
        Shim(boot, file, None if masker is None else StepMasks(masker)).run(cancel)
        code = EXIT_DONE
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        # Not an orderly exit: that would wait for threads that still read a pipe.
        os._exit(code)


if __name__ == "__main__":
    main()
