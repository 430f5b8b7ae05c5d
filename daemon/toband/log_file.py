"""The daemon's log file: opened again when something moved it, as logrotate does, and rotated by size."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from typing import TextIO

LOOK_EVERY = 1.0
"""Seconds between two looks whether the file is still the one with its name."""


class LogFile:
    """Any thread may write. No error of the disk reaches the caller: a full disk loses log lines.

    `most` bytes start a new file; `keep` older ones stay, as PATH.1 and so on. None: no limit.
    """

    def __init__(self, path: str, *, most: int | None = None, keep: int = 3) -> None:
        """Raises OSError if the file cannot be opened."""
        self._path = path
        self._most = most
        self._keep = keep
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._file = self._open()

    def write(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._look()
            self._file.write(text)
            self._file.flush()

    def _look(self) -> None:
        if self._file.closed:
            self._file = self._open()
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY and not self._full():
            return
        self._looked_at = now
        if self._is_mine():
            if not self._full():
                return
            if sys.platform == "win32":
                # An open file keeps its name there.
                self._file.close()
            # A file that cannot be rotated grows on.
            with contextlib.suppress(OSError):
                self._rotate()
        opened = self._open()
        # What it could not write would be tried again.
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = opened

    def _open(self) -> TextIO:
        return open(self._path, "a", encoding="utf-8")

    def _full(self) -> bool:
        """Never of a device or a pipe."""
        if self._most is None:
            return False
        facts = os.fstat(self._file.fileno())
        return stat.S_ISREG(facts.st_mode) and facts.st_size >= self._most

    def _is_mine(self) -> bool:
        """Whether the open file has its name. Not if it was moved or deleted."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        """PATH becomes PATH.1, PATH.1 becomes PATH.2; the oldest is removed."""
        for number in range(self._keep - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        if self._keep:
            os.replace(self._path, f"{self._path}.1")
        else:
            os.unlink(self._path)
