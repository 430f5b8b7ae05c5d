"""Inspections of the doctor: files of runs, their permissions, the clock; the processes are in `stray_processes`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import toband
from toband.domain.attempt_model import Attempt
from toband.ports import (
    AttemptSeen,
    ClockReading,
    RunDirectory,
    StepIsolation,
    StepProcess,
    WrongPath,
)
from toband.supervise.artifacts import value_files
from toband.supervise.files.run_files import RunFiles
from toband.supervise.host import stray_processes
from toband.supervise.host.disk import PROBE
from toband.supervise.host.stray_processes import StrayProcesses, start_of
from toband.supervise.launch import end_record
from toband.supervise.launch.end_record import RecordError
from toband.supervise.logs.compressed_log import NEW_SUFFIX, SUFFIX
from toband.supervise.shim import frames

if sys.platform == "win32":
    from toband.supervise.shim.windows import win32
else:
    import fcntl

_PROBE_WITHIN = 20.0
_LOG = ".log"
_TIME_ERROR = 5

# Bits that must not be set. Where steps run as other users, access lists let these users pass through directories, and
# the mode then shows the widest entry of the list as the group's bits.
_STATE_DIR_WRONG = 0o026
_RUNS_WRONG = 0o066
_RUN_WRONG = 0o006
_DATABASE_WRONG = 0o077
_ANY = 0o777


class HostInspection:
    """Implements `ports.Premises`."""

    def __init__(
        self,
        *,
        state_dir: str,
        files: RunFiles,
        database_file: str,
        sockets: Mapping[str, int],
        spawner: Callable[[], int | None],
        cgroup: Callable[[], str],
        step_user: str = "",
    ) -> None:
        """`sockets` are paths, each with the mode that the configuration gives it."""
        self._state_dir = state_dir
        self._files = files
        self._database_file = database_file
        self._sockets = sockets
        self._spawner = spawner
        self._cgroup = cgroup
        self._step_user = step_user
        self._strays = StrayProcesses(files.root, step_user=step_user, spawner=spawner)
        self._began = time.time(), _uptime()

    # -- files of runs

    def seen(self, attempt: Attempt) -> AttemptSeen:
        path = self._files.log(attempt)
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            if os.path.exists(path + SUFFIX):
                return AttemptSeen.ENDED
            try:
                fd = os.open(self._files.claim(attempt), flags)
            except FileNotFoundError:
                return AttemptSeen.ABSENT
        try:
            return _seen(attempt, fd)
        except RecordError:
            return AttemptSeen.DAMAGED
        finally:
            os.close(fd)

    def log_name(self, attempt: Attempt) -> str:
        return self._files.log_name(attempt)

    def run_directories(self) -> Sequence[RunDirectory]:
        found = []
        with os.scandir(self._files.root) as entries:
            names = [entry.name for entry in entries if _of_a_run(entry)]
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # retention may be faster
                found.append(self._run_directory(name))
        return found

    def _run_directory(self, name: str) -> RunDirectory:
        newest = os.stat(self._files.run(name)).st_mtime
        logs, alive = set(), set()
        attempts = self._files.attempts(name)
        for entry in _entries(attempts):
            newest = max(newest, entry.stat().st_mtime)
            log = entry.name.removesuffix(SUFFIX)
            if not log.endswith(_LOG) or log.startswith("."):
                continue
            logs.add(log)
            if log == entry.name and _path_locked(entry.path):
                alive.add(log)
        age = time.time() - newest
        return RunDirectory(name=name, age=age, logs=frozenset(logs), alive=frozenset(alive))

    def temporary_files(self, older: float, skip: Collection[str]) -> Sequence[str]:
        limit = time.time() - older
        own = (PROBE, "toband.json.new")
        found = [
            entry.path
            for entry in _entries(self._state_dir)
            if entry.name in own and entry.stat(follow_symlinks=False).st_mtime < limit
        ]
        for run in _entries(self._files.root):
            if run.name in skip or not _of_a_run(run):
                continue
            for entry in (*_entries(run.path), *_entries(self._files.attempts(run.name))):
                if _half_made(entry) and entry.stat(follow_symlinks=False).st_mtime < limit:
                    found.append(entry.path)
        return found

    def remove_file(self, path: str) -> None:
        os.unlink(path)

    # -- permissions

    def wrong_paths(self) -> Sequence[WrongPath]:
        if sys.platform == "win32":
            return []
        expected = [(self._state_dir, _STATE_DIR_WRONG), (self._files.root, _RUNS_WRONG)]
        if self._database_file:
            expected += [(self._database_file + end, _DATABASE_WRONG) for end in ("", "-wal", "-shm")]
        expected += [(path, _ANY & ~mode) for path, mode in self._sockets.items()]
        for run in _entries(self._files.root):
            if _of_a_run(run):
                expected += [(run.path, _RUN_WRONG), (self._files.attempts(run.name), _RUN_WRONG)]
        return [wrong for path, bits in expected for wrong in _wrong(path, bits)]

    def repair(self, wrong: WrongPath) -> None:
        if wrong.mode is not None:
            os.chmod(wrong.path, wrong.mode)

    # -- processes

    def step_processes(self) -> Sequence[StepProcess]:
        return self._strays.find()

    def end(self, processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
        return stray_processes.end(processes)

    # -- the rest

    def clock(self) -> ClockReading:
        wall, up = self._began
        jumped = (time.time() - wall) - (_uptime() - up)
        return ClockReading(jumped=jumped, synchronised=_synchronised())

    def spawner(self) -> int | None:
        pid = self._spawner()
        return pid if not pid or start_of(pid) is not None else 0

    def cgroup(self) -> str:
        return self._cgroup()

    def step_isolation(self) -> StepIsolation:
        own = _own_user()
        return StepIsolation(
            daemon_user=own,
            step_user=self._step_user or own,
            links_protected=_links_protected(),
            no_files=_no_files(),
            no_network=_no_network(),
        )


def _seen(attempt: Attempt, fd: int) -> AttemptSeen:
    """The state of an attempt in its open file. Raises RecordError."""
    facts = frames.read_claim(fd)
    claim = None if facts is None else end_record.claim_of(attempt, facts)
    if claim is not None and claim.void:
        return AttemptSeen.VOID
    if _locked(fd):
        return AttemptSeen.LIVES
    if claim is None:
        return AttemptSeen.DAMAGED
    record = frames.read_end(fd)
    if record is None:
        return AttemptSeen.DEAD
    end_record.end_of(attempt, record)
    return AttemptSeen.ENDED


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    """None if the directory is missing, or may not be read."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        yield from entries


def _of_a_run(entry: os.DirEntry[str]) -> bool:
    """Names with a leading dot belong to the daemon."""
    return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")


def _half_made(entry: os.DirEntry[str]) -> bool:
    """Created under a temporary name, to be linked or renamed when it is complete."""
    name = entry.name
    claim = name.startswith(".") and f"{_LOG}." in name
    return claim or name in ("params.json.new", "event.json.new") or name.endswith((NEW_SUFFIX, value_files.NEW_SUFFIX))


def _path_locked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return _locked(fd)
    finally:
        os.close(fd)


def _wrong(path: str, bits: int) -> Iterator[WrongPath]:
    try:
        found = os.lstat(path)
    except OSError:
        return
    mode = stat.S_IMODE(found.st_mode)
    if sys.platform == "win32":
        return
    own = os.geteuid()
    if found.st_uid != own:
        yield WrongPath(path=path, problem=f"belongs to user {found.st_uid}, not {own}", mode=None)
    elif mode & bits:
        yield WrongPath(path=path, problem=f"has mode {mode:04o}, others can get at it", mode=mode & ~bits)


if sys.platform == "win32":

    def _own_user() -> str:
        import getpass

        return getpass.getuser()

    def _links_protected() -> bool:
        return True

    def _no_files() -> str:
        return "Windows has no sandbox for steps"

    _no_network = _no_files

    def _locked(fd: int) -> bool:
        if not win32.try_lock(fd):
            return True
        win32.unlock(fd)
        return False

    def _uptime() -> float:
        return time.monotonic()

    def _synchronised() -> bool | None:
        return None

else:
    import pwd
    import subprocess

    from toband.supervise.shim import confinement, trusted_path

    def _own_user() -> str:
        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            return str(os.geteuid())

    def _links_protected() -> bool:
        return trusted_path.links_protected()

    def _no_files() -> str:
        return confinement.problem_of_files()

    def _no_network() -> str:
        """Tried in another process: this one has threads, and would lose its own network."""
        packages = os.path.dirname(os.path.dirname(os.path.abspath(toband.__file__)))
        program = (
            f"import sys; sys.path.append({packages!r}); from toband.supervise.shim import confinement; "
            "print(confinement.problem_of_network(), end='')"
        )
        try:
            command = [sys.executable, "-I", "-S", "-c", program]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_WITHIN, env={})
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cannot find out: {error}"
        return done.stdout if done.returncode == 0 else "cannot find out"

    def _locked(fd: int) -> bool:
        """Whether a live supervisor has the claim's lock."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False

    def _uptime() -> float:
        """Includes the time that the machine slept, like the wall clock."""
        boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(boot)

    def _synchronised() -> bool | None:
        """Whether a time service synchronises the kernel's clock."""
        try:
            # A zeroed struct timex only reads; it is smaller than this everywhere.
            state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
        except (OSError, AttributeError):
            return None
        return None if state < 0 else bool(state != _TIME_ERROR)
