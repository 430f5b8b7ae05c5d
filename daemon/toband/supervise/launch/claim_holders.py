"""Finds a living shim after all names of its attempt file were removed.

A shim is not dumpable, so that only a privileged daemon sees what it has open. Everybody sees its short name, which has
the beginning of the attempt's token.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("shims are looked up in /proc")

import os
import threading
import time

from toband.supervise.shim.process_title import NAME, short_name

_DELETED = " (deleted)"
_UNTITLED = b"spawner.main("
"""In the command line of shims that releases before titles left, and of those without a title: the spawner's."""


class Holders:
    """Called in threads. Concurrent callers share one scan of the system."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._found: dict[str, int] = {}

    def of(self, path: str) -> int | None:
        """The pid of a shim that had the claim `path`, `DIRECTORY/STEP.NUMBER.TOKEN.log`, at some moment after this
        call.
        """
        directory, name = os.path.split(path)
        asked = time.monotonic()
        with self._lock:
            if self._looked_at < asked:
                self._looked_at = time.monotonic()
                self._found = _look()
            by_name = self._found.get(short_name(name.split(".")[-2]))
            if by_name is not None:
                return by_name
            # A claim is prepared under a name of its own, which its descriptor keeps: `.NAME.THREAD`.
            prepared = f"{os.path.realpath(directory)}/.{name}."
            return next((pid for own, pid in self._found.items() if own.startswith(prepared)), None)


def _look() -> dict[str, int]:
    """The pids of all shims of this user, by their short names and by the removed files that they have open."""
    found: dict[str, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = _read(entry, "cmdline")
            if not command.startswith(NAME) and _UNTITLED not in command:
                continue
            if _user_of(entry) == os.geteuid():
                found[_read(entry, "comm").strip().decode(errors="replace")] = int(entry)
            for fd in os.listdir(f"/proc/{entry}/fd"):
                target = os.readlink(f"/proc/{entry}/fd/{fd}")
                if target.endswith(_DELETED):
                    found[target.removesuffix(_DELETED)] = int(entry)
        except OSError:
            continue  # it has ended, or is another user's, or not to be looked into
    return found


def _read(pid: str, part: str) -> bytes:
    with open(f"/proc/{pid}/{part}", "rb") as file:
        return file.read()


def _user_of(pid: str) -> int:
    """Not the owner of its files in /proc: those of a process that is not dumpable are root's."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2])
    return -1
