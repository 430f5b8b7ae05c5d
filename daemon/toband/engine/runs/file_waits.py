"""Steps that wait for a file: one task looks at all of these files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from toband.engine.health.internal_errors import unexpected
from toband.engine.runs.wait_clock import Key
from toband.ports import AwaitedFiles, Clock, FileMark

LOOK_EVERY: Final = 0.5
"""Seconds between two looks."""
SHARE: Final = 20
"""A look at very many files, or at slow ones, is followed by a pause that is this many times longer."""


@dataclass(slots=True)
class _File:
    path: str
    settle: float
    content: tuple[int, ...] | None = None
    since: float = 0.0
    """When it was first seen with that content."""

    def is_complete(self, found: FileMark | None, now: float, wall: float) -> bool:
        """`now` is the monotonic time of the look, `wall` the time of the wall clock."""
        if found is None:
            self.content = None
            return False
        if found.content != self.content:
            self.content, self.since = found.content, now
        return now - self.since >= self.settle or wall - found.changed_at >= self.settle


class FileWaits:
    """Belongs to the event loop. Without waiting steps there is no task."""

    def __init__(
        self,
        files: AwaitedFiles,
        clock: Clock,
        came: Callable[[Key], None],
        start: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._look = files.look
        self._clock = clock
        self._came = came
        self._start = start
        self._waiting: dict[Key, _File] = {}
        self._looking = False

    def add(self, key: Key, path: str, settle: float) -> None:
        self._waiting[key] = _File(path, settle)
        if not self._looking:
            self._looking = True
            self._start(self._work())

    def forget(self, keys: Callable[[Key], bool]) -> None:
        for key in [key for key in self._waiting if keys(key)]:
            del self._waiting[key]

    async def _work(self) -> None:
        try:
            while self._waiting:
                began = time.monotonic()
                try:
                    await self._turn()
                except Exception as error:
                    unexpected("cannot look at the files that steps wait for", error)
                await asyncio.sleep(max(LOOK_EVERY, SHARE * (time.monotonic() - began)))
        finally:
            self._looking = False

    async def _turn(self) -> None:
        found = await self._look({file.path for file in self._waiting.values()})
        now, wall = time.monotonic(), self._clock.now().timestamp()
        for key, file in list(self._waiting.items()):
            # A file that was added during the look has not been looked at.
            if file.is_complete(found.get(file.path), now, wall):
                del self._waiting[key]
                self._came(key)
