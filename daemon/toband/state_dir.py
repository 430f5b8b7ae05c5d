"""The state directory: its lock, its small files, and how clients find the daemon that owns it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from toband import stored_json

ADMIN_TOKEN = "admin.token"  # noqa: S105 - the name of a file
"""A token of the administrator, as long as the daemon serves; only for whom the file system lets read it."""
RESTORING = "restoring.json"
"""There while a restore fills the directory, and after one that did not finish."""
_TRIES = 500
_MODE = 0o750
"""Of the state directory: the group may connect to the socket."""


class StateDirError(Exception):
    """The directory cannot be used; the message says why."""


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
        """A disk that takes no writes does not prevent serving."""
        facts = {"boot_id": self._boot_id, "at": self.at.isoformat(), "done": self.done}
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w", encoding="utf-8", opener=_private) as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())
            _replace(f"{self._path}.new", self._path)


class NoticedZones:
    """`toband.ports.ZoneNotes`, in a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> Mapping[str, tuple[int, str]]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(self._path, encoding="utf-8") as file:
                known = stored_json.parse_object(file.read())
            return {str(name): (int(year), str(digest)) for name, (year, digest) in known.items()}
        return {}

    def keep(self, known: Mapping[str, tuple[int, str]]) -> None:
        with contextlib.suppress(OSError):
            with open(f"{self._path}.new", "w", encoding="utf-8", opener=_private) as file:
                json.dump(known, file)
            _replace(f"{self._path}.new", self._path)


class StateDir:
    """Owned by one daemon at a time. The kernel releases the lock of a daemon that died."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def acquire(self, *, restoring: bool = False) -> None:
        """Takes the lock. Raises StateDirError with the pid of the daemon that has it.

        Only a restore may use a directory that a restore did not fill to its end.
        """
        try:
            for path in (self.path, self.join("runs")):
                os.makedirs(path, mode=_MODE if path == self.path else 0o700, exist_ok=True)
                if path == self.path:
                    _close_new(path)
            lock = os.open(self.join("toband.lock"), os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise StateDirError(
                f"cannot use the state directory {self.path}: {error.strerror} ({error.filename})"
            ) from error
        if not _try_lock(lock):
            owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise StateDirError(f"cannot use the state directory {self.path}: another toband (pid {owner}) has it")
        if not restoring and os.path.exists(self.join(RESTORING)):
            os.close(lock)
            raise StateDirError(
                f"cannot use the state directory {self.path}: a restore of it did not finish; "
                "run `toban restore` again, which begins anew"
            )
        self._lock = lock
        # The pid is only for messages: on a full disk the lock still works. Overwriting in place needs no new block.
        with contextlib.suppress(OSError):
            os.lseek(lock, 0, os.SEEK_SET)
            os.ftruncate(lock, os.write(lock, f"{os.getpid()}\n".encode()))

    def announce(self, doors: Sequence[tuple[str, str]], started_at: datetime, version: str) -> None:
        """Writes toband.json, where clients find the daemon's addresses, each with its role. Raises OSError."""
        facts = {
            "pid": os.getpid(),
            "listen": [address for address, _ in doors],
            "doors": [{"address": address, "role": role} for address, role in doors],
            "started_at": started_at.isoformat(),
            "version": version,
        }
        own = self.join("toband.json.new")
        with open(own, "w", encoding="utf-8", opener=_readable) as file:
            json.dump(facts, file)
        _replace(own, self.join("toband.json"))

    def write_admin_token(self, text: str) -> None:
        """Writes the file that only this user can read; on Windows administrators too. Raises OSError."""
        path = self.join(ADMIN_TOKEN)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        with open(f"{path}.new", "x", encoding="utf-8", opener=_owner_only) as file:
            if sys.platform == "win32":
                _close_to_others(f"{path}.new")
            file.write(text)
        _replace(f"{path}.new", path)

    def write_durably(self, name: str, text: Callable[[os.stat_result], str]) -> None:
        """Replaces a file atomically and durably; `text` gets the stat of the new file. Raises OSError."""
        path = self.join(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        with open(f"{path}.new", "x", encoding="utf-8", opener=_private) as file:
            file.write(text(os.fstat(file.fileno())))
            file.flush()
            os.fsync(file.fileno())
        _replace(f"{path}.new", path)
        self.sync()

    def sync(self) -> None:
        """Makes the names in the directory durable. Raises OSError."""
        if sys.platform != "win32":
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def provide_command(self) -> str:
        """A directory with a `toban` command that runs this installation's client. Raises OSError."""
        directory = self.join("bin")
        os.makedirs(directory, mode=0o755, exist_ok=True)
        # The step's directory and environment must not change what this interpreter imports.
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

    @property
    def zones(self) -> NoticedZones:
        return NoticedZones(self.join("zones.json"))

    def boot(self, boot_id: str, now: datetime) -> NoticedBoot:
        """The current boot of the machine, first seen now or by an earlier daemon."""
        path = self.join("boot.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as file:
                known = stored_json.parse_object(file.read())
            at = datetime.fromisoformat(known["at"])
            # The daemon always writes a zone; a time without one was not written by it and cannot be compared.
            if known["boot_id"] == boot_id and at.tzinfo is not None:
                return NoticedBoot(path, boot_id, at, done=bool(known.get("done")))
        noticed = NoticedBoot(path, boot_id, now, done=False)
        noticed.keep()
        return noticed

    def release(self) -> None:
        """Releases the lock, if this daemon has it."""
        if self._lock >= 0:
            # A disk that fails must not turn a clean stop into a failure.
            for name in ("toband.json", ADMIN_TOKEN):
                with contextlib.suppress(OSError):
                    os.unlink(self.join(name))
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


def _close_new(path: str) -> None:
    """Gives an empty directory that somebody made for the daemon the mode of one that the daemon makes.

    A directory with entries may have other users; the doctor reports its mode. Raises OSError.
    """
    if sys.platform == "win32":
        return
    facts = os.stat(path)
    if facts.st_mode & 0o777 & ~_MODE and facts.st_uid == os.geteuid() and not os.listdir(path):
        os.chmod(path, facts.st_mode & (0o7000 | _MODE))


def _private(path: str, flags: int) -> int:
    """Not for steps of other users, who may pass through the state directory."""
    return os.open(path, flags, 0o640)


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _close_to_others(path: str) -> None:
    """Leaves the file to its owner, the system and the administrators. Raises OSError."""
    # Well-known ids, because names are translated, and the account of a service has none that icacls knows.
    allowed = ("*S-1-3-4:F", "*S-1-5-18:F", "*S-1-5-32-544:F")
    grants = [part for each in allowed for part in ("/grant:r", each)]
    done = subprocess.run(["icacls", path, "/inheritance:r", *grants], capture_output=True, check=False)
    if done.returncode != 0:
        raise PermissionError(f"cannot close {path} to other users: icacls exited with code {done.returncode}")


def _readable(path: str, flags: int) -> int:
    """Whatever the umask, only the owner writes."""
    return os.open(path, flags, 0o644)


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o755)


def _replace(new: str, path: str) -> None:
    """Raises OSError."""
    tries = _TRIES if sys.platform == "win32" else 0
    for _ in range(tries):
        # Windows refuses to replace a file while it is open for reading.
        with contextlib.suppress(PermissionError):
            return os.replace(new, path)
        time.sleep(0.01)
    return os.replace(new, path)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            # Far behind the pid, so that other processes can still read the pid.
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
