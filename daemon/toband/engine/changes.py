"""Telling those who wait that a run has changed. They read what changed from the store, at their own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """Wakes waiters per run; costs nothing for runs that nobody watches, and nothing per change for slow readers."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    def notify(self, run_id: str) -> None:
        for event in self._waiting.get(run_id, ()):
            event.set()

    def close(self) -> None:
        """Wakes everybody for the last time."""
        self._closed = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def watching(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change of the run; clear it before looking, not after."""
        event = asyncio.Event()
        if self._closed:
            event.set()
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(run_id, None)
