"""A virtual clock: an event loop whose time advances to the next timer whenever nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

from toband.store.sql.writer import Writer

STUCK = 120.0
"""Real seconds without any event while a thread works, after which the soak fails."""
_LEAST = 1e-6


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time stands still while threads work for it, so that no timer overtakes the database."""

    def __init__(self) -> None:
        self._passed = 0.0
        self.busy = 0
        super().__init__(_Selector(self))
        # At this size of time, the default is below the precision of a float.
        self._clock_resolution = _LEAST

    def time(self) -> float:
        return self._passed

    def pass_time(self, seconds: float) -> None:
        self._passed += max(seconds, _LEAST)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self.busy += 1
        future.add_done_callback(self._done)
        return future

    def _done(self, _future: object) -> None:
        self.busy -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of_loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self._of_loop.busy or timeout is None:
            events = super().select(STUCK)
            assert events, f"{self._of_loop.busy} operations of threads have not ended within {STUCK:g} seconds"
            return events
        events = super().select(0)
        if not events:
            self._of_loop.pass_time(timeout)
        return events


class VirtualClock:
    """Implements `ports.Clock`."""

    def __init__(self, loop: VirtualLoop, start: datetime) -> None:
        self._loop = loop
        self.start = start

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self._loop.time())

    def jump(self, by: timedelta) -> None:
        """The clock is set, or the machine slept: no timer notices."""
        self.start += by


class VirtualAlarm:
    """Implements `ports.AlarmClock`."""

    def __init__(self, loop: VirtualLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self._clock = clock
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def set(self, at: datetime | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and self._ring is not None:
            left = (at - self._clock.now()).total_seconds()
            self._timer = self._loop.call_later(max(0.0, left), self._ring)

    def close(self) -> None:
        self._ring = None
        self.set(None)


class VirtualIds:
    """Stands in for the module `uuid_utils`: ids of version 7, ordered by the virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._count = 0

    def uuid7(self) -> UUID:
        self._count += 1
        millis = int(self._clock.now().timestamp() * 1000)
        return UUID(int=(millis << 80) | (7 << 76) | (2 << 62) | self._count)


@contextmanager
def waiting_for_commits(loop: VirtualLoop) -> Iterator[None]:
    """Time stands still while the writer of the store has work."""
    do = Writer.do

    async def counted(self: Writer, operation: Any) -> Any:
        loop.busy += 1
        try:
            return await do(self, operation)
        finally:
            loop.busy -= 1

    with patch.object(Writer, "do", counted):
        yield
