"""Finds a living shim by the attempt file that it has open, after all names of the file were removed."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("open files are looked up in /proc")

import os
import threading
import time

from toband.supervise.shim.process_title import NAME

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
        """The pid of a shim that had the file `path` open at some moment after this call."""
        directory, name = os.path.split(path)
        asked = time.monotonic()
        with self._lock:
            if self._looked_at < asked:
                self._looked_at = time.monotonic()
                self._found = _look()
            # A claim is prepared under a name of its own, which its descriptor keeps: `.NAME.THREAD`.
            prepared = f"{os.path.realpath(directory)}/.{name}."
            return next((pid for own, pid in self._found.items() if own.startswith(prepared)), None)


def _look() -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read()
            if not command.startswith(NAME) and _UNTITLED not in command:
                continue
            for fd in os.listdir(f"/proc/{entry}/fd"):
                target = os.readlink(f"/proc/{entry}/fd/{fd}")
                if target.endswith(_DELETED):
                    found[target.removesuffix(_DELETED)] = int(entry)
        except OSError:
            continue  # it has ended, or is another user's
    return found
