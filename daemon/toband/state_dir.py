"""The state directory: who owns it, and how others find the daemon that does."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from toband import stored_json

_TRIES = 500


class StateDirError(Exception):
    """The directory cannot be used; the text says why."""


class NoticedBoot:
    """`toband.ports.Boot`, in a file."""

    def __init__(self, path: str, boot_id: str, at: datetime, *, done: bool) -> None:
        self._path = path
        self._boot_id = boot_id
        self.at = at
        self.done = done

    def finish(self) -> None:
        self.done = True
        self.keep()

    def keep(self) -> None:
        """A disk that takes nothing keeps nobody from being served."""
        facts = {"boot_id": self._boot_id, "at": self.at.isoformat(), "done": self.done}
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w", encoding="utf-8") as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())
            _replace(f"{self._path}.new", self._path)


class StateDir:
    """Held by one daemon at a time. The lock is the kernel's: a dead daemon holds nothing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def acquire(self) -> None:
        """Raises StateDirError, naming the pid of the daemon that has it."""
        try:
            for path in (self.path, self.join("runs")):
                os.makedirs(path, mode=0o750 if path == self.path else 0o700, exist_ok=True)
            lock = os.open(self.join("toband.lock"), os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise StateDirError(
                f"cannot use the state directory {self.path}: {error.strerror} ({error.filename})"
            ) from error
        if not _try_lock(lock):
            owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise StateDirError(f"cannot use the state directory {self.path}: another toband (pid {owner}) has it")
        self._lock = lock
        # The lock is held whatever the file says: a full disk only keeps others from learning whose it is. Written over
        # what is there, so that the block it has already does.
        with contextlib.suppress(OSError):
            os.lseek(lock, 0, os.SEEK_SET)
            os.ftruncate(lock, os.write(lock, f"{os.getpid()}\n".encode()))

    def announce(self, listen: Sequence[str], started_at: datetime, version: str) -> None:
        """Writes toband.json, which says where this daemon is served. Raises OSError."""
        facts = {
            "pid": os.getpid(),
            "listen": list(listen),
            "started_at": started_at.isoformat(),
            "version": version,
        }
        own = self.join("toband.json.new")
        with open(own, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        _replace(own, self.join("toband.json"))

    def write_durably(self, name: str, text: Callable[[os.stat_result], str]) -> None:
        """Replaces a file, whole or not at all; `text` is given what the new file is. Raises OSError."""
        path = self.join(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        with open(f"{path}.new", "x", encoding="utf-8") as file:
            file.write(text(os.fstat(file.fileno())))
            file.flush()
            os.fsync(file.fileno())
        _replace(f"{path}.new", path)
        if sys.platform != "win32":
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def provide_command(self) -> str:
        """A directory with a `toban` in it that is this installation's, wherever that is. Raises OSError."""
        directory = self.join("bin")
        os.makedirs(directory, mode=0o755, exist_ok=True)
        # Nothing of the directory or the settings that a step has for itself gets into its interpreter.
        options = "-E -P -X utf8 -m toban.cli"
        if sys.platform == "win32":
            name, text = "toban.cmd", f'@"{sys.executable}" {options} %*\n'
        else:
            name, text = "toban", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options} "$@"\n'
        path = os.path.join(directory, name)
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            if file.read() == text:
                return directory
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        with open(f"{path}.new", "w", encoding="utf-8", opener=_executable) as file:
            file.write(text)
        _replace(f"{path}.new", path)
        return directory

    def boot(self, boot_id: str, now: datetime) -> NoticedBoot:
        """The boot that the machine is in; noticed now, or by a daemon before this one."""
        path = self.join("boot.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as file:
                known = stored_json.parse_object(file.read())
            at = datetime.fromisoformat(known["at"])
            # A time without its zone is none that was written here, and cannot be compared with those that were.
            if known["boot_id"] == boot_id and at.tzinfo is not None:
                return NoticedBoot(path, boot_id, at, done=bool(known.get("done")))
        noticed = NoticedBoot(path, boot_id, now, done=False)
        noticed.keep()
        return noticed

    def release(self) -> None:
        """Does nothing if it is somebody else's."""
        if self._lock >= 0:
            # A disk that fails must not turn a clean stop into a failure.
            with contextlib.suppress(OSError):
                os.unlink(self.join("toband.json"))
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o755)


def _replace(new: str, path: str) -> None:
    """Raises OSError."""
    tries = _TRIES if sys.platform == "win32" else 0
    for _ in range(tries):
        # Nobody can replace a file there while somebody reads it.
        with contextlib.suppress(PermissionError):
            return os.replace(new, path)
        time.sleep(0.01)
    return os.replace(new, path)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            # Far behind the pid, so that others can still read it.
            os.lseek(fd, 1 << 20, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            os.lseek(fd, 0, os.SEEK_SET)
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        return True
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
