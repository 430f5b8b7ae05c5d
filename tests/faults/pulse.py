"""Records when the machine stalled, so that no process is blamed for it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_PAUSE = 0.1
HELD_UP = 1.0
"""Seconds that a pause and a few bytes on the disk take at most, unless something is wrong with the machine."""


class Pulse:
    """One thread. What it notes, in `stalls`, is from when until when nothing went on."""

    def __init__(self, directory: Path, stalls: list[tuple[float, float]]) -> None:
        self._path = directory / "pulse"
        self._stalls = stalls
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It may have been started or not."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        with self._path.open("wb", 0) as file:
            while not self._stop.is_set():
                began = time.time()
                os.pwrite(file.fileno(), b"x", 0)
                os.fsync(file.fileno())
                self._stop.wait(_PAUSE)
                ended = time.time()
                if ended - began > HELD_UP:
                    self._stalls.append((began, ended))
