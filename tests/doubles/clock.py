"""Clocks for tests: one set by the test, and the system clock. Both implement `ports.Clock`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """Stands still until the test sets `at` or advances it. Every reading advances it by `step` seconds."""

    def __init__(self, at: datetime = datetime(2026, 2, 1, tzinfo=UTC), *, step: float = 0.0) -> None:
        self.at = at
        self._step = step

    def now(self) -> datetime:
        if self._step:
            self.advance(self._step)
        return self.at

    def advance(self, seconds: float) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)
