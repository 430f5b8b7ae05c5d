"""Telling those who wait that a run has changed. They read what changed from the store, at their own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

PACE = 0.05
"""A watcher looks this often at most while a run moves quickly: what came meanwhile is read at once."""


class RunWatch:
    """One waiter. Clear `changed` before looking, not after."""

    __slots__ = ("changed", "ended")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()

    async def wait(self, within: float | None = None) -> None:
        """Until something has changed, or the time is over; not before the pace allows, unless the run has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACE):
                await self.ended.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.changed.wait()


class RunNotifier:
    """Wakes waiters per run; costs nothing for runs that nobody watches, and nothing per change for slow readers."""

    def __init__(self) -> None:
        self._watches: dict[str, set[RunWatch]] = {}
        self.closed = False

    def notify(self, run_id: str, *, ended: bool = False) -> None:
        for watch in self._watches.get(run_id, ()):
            watch.changed.set()
            if ended:
                watch.ended.set()

    def close(self) -> None:
        """Wakes everybody for the last time."""
        self.closed = True
        for run_id in self._watches:
            self.notify(run_id, ended=True)

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
