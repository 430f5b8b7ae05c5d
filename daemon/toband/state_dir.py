"""The state directory: who owns it, and how others find the daemon that does."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime


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
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        self._lock = lock

    def announce(self, listen: Sequence[str], started_at: datetime, version: str) -> None:
        """Writes toband.json, which says where this daemon is served."""
        facts = {
            "pid": os.getpid(),
            "listen": list(listen),
            "started_at": started_at.isoformat(),
            "version": version,
        }
        own = self.join("toband.json.new")
        with open(own, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(own, self.join("toband.json"))

    def release(self) -> None:
        """Does nothing if it is somebody else's."""
        if self._lock >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.join("toband.json"))
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


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
