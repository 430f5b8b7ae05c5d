"""Run notifier: wakes the watchers of a run when it changes. They read the changes from the store at their own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

PACE = 0.05
"""Seconds between two looks of a watcher while a run changes quickly; changes in between are read together."""


class RunWatch:
    """One watcher. Clear `changed` before reading, not after."""

    __slots__ = ("changed", "ended")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()

    async def wait(self, within: float | None = None) -> None:
        """Waits for a change or for `within` seconds, and at least for `PACE` unless the run has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACE):
                await self.ended.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.changed.wait()


class RunNotifier:
    """Costs nothing for runs without watchers, and nothing per change for slow watchers."""

    def __init__(self) -> None:
        self._watches: dict[str, set[RunWatch]] = {}
        self._of_all: set[RunWatch] = set()
        self.closed = False

    def notify(self, run_id: str, *, ended: bool = False) -> None:
        for watch in self._of_all:
            watch.changed.set()
        for watch in self._watches.get(run_id, ()):
            watch.changed.set()
            if ended:
                watch.ended.set()

    def close(self) -> None:
        """Wakes all watchers for the last time."""
        self.closed = True
        for run_id in self._watches:
            self.notify(run_id, ended=True)
        for watch in self._of_all:
            watch.changed.set()
            watch.ended.set()

    @contextlib.contextmanager
    def watching(self, run_id: str) -> Iterator[RunWatch]:
        watch = RunWatch()
        if self.closed:
            watch.changed.set()
            watch.ended.set()
        watches = self._watches.setdefault(run_id, set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches:
                self._watches.pop(run_id, None)

    @contextlib.contextmanager
    def watching_all(self) -> Iterator[RunWatch]:
        """As `watching`, for changes and creations of all runs."""
        watch = RunWatch()
        if self.closed:
            watch.changed.set()
            watch.ended.set()
        self._of_all.add(watch)
        try:
            yield watch
        finally:
            self._of_all.discard(watch)
