"""The state directory: who owns it, and how others find the daemon that does."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import datetime

_TRIES = 500


class StateDirError(Exception):
    """The directory cannot be used; the text says why."""


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
            raise StateDirError(
                f"cannot use the state directory {self.path}: another toband (pid {owner}) has it"
            )
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

    def booted_at(self, boot_id: str, now: datetime) -> datetime:
        """When this boot of the machine was first noticed here: the same moment for every daemon of that boot."""
        path = self.join("boot.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as file:
                known = json.load(file)
            if known["boot_id"] == boot_id:
                return datetime.fromisoformat(known["at"])
        # A disk that takes nothing keeps nobody from being served.
        with contextlib.suppress(OSError):
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump({"boot_id": boot_id, "at": now.isoformat()}, file)
                file.flush()
                os.fsync(file.fileno())
            _replace(f"{path}.new", path)
        return now

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
