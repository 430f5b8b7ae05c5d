"""The second name of every claim, `STATE_DIR/runs/.claims/TOKEN`, until the end of its attempt is in the database.

A step can remove its run's directory, and an administrator a log that grew too large. Under its second name the claim,
the log and the end record are still there, and so is the proof that the attempt began. The name is linked before the
claim is synced, and costs no sync of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection

from toband.supervise.files.run_files import RunFiles, sync_directory

SETTLE_AFTER = 1.0
"""Seconds: names are removed several at a time, in a thread."""


class ClaimNames:
    """Belongs to a running event loop."""

    def __init__(self, files: RunFiles) -> None:
        self._directory = files.claims
        self._settled: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._found: frozenset[str] = frozenset()

    def open(self) -> None:
        """If the disk refuses the directory now, the first claim creates it."""
        with contextlib.suppress(OSError):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            sync_directory(os.path.dirname(self._directory))
            self._found = frozenset(os.listdir(self._directory))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._remove(self._settled)

    def settle(self, token: str) -> None:
        """Its end is in the database: the first name does from now on."""
        self._settled.append(token)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_AFTER, self._flush)

    def settle_others(self, active: Collection[str]) -> None:
        """The same for all that were there at the start, but those of active attempts."""
        for token in self._found.difference(active):
            self.settle(token)
        self._found = frozenset()

    def _flush(self) -> None:
        self._timer = None
        settled, self._settled = self._settled, []
        asyncio.get_running_loop().run_in_executor(None, self._remove, settled)

    def _remove(self, tokens: list[str]) -> None:
        """The next daemon removes names that remain."""
        for token in tokens:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._directory, token))
