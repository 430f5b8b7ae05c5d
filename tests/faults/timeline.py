"""The times of all actions on a daemon, and what its wall clock showed then."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

LOOK_AGAIN = 30.0
"""Seconds within which the daemon notices that its clock was set."""
LATE = 6.0
"""Seconds within which it decides about a due time, or about all that passed while it was away."""
NEAR = 0.5
"""Seconds by which a note may differ from the moment itself."""

Stretch = tuple[float, float, float, float]
"""When something was asked for and when it was done, and the same of its end."""


class Dial(Protocol):
    def set(self, offset: float) -> None: ...


class Timeline:
    """Times are seconds of the right clock; `shown` ones are those of the clock that jumps."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self.offsets: list[tuple[float, float]] = [(0.0, 0.0)]
        """Since when which one holds."""
        self.away: list[tuple[float, float]] = []
        """From when until when the daemon was down or stopped; one that is started is back when it serves."""
        self.gone: list[tuple[float, float]] = []
        """The same, but one that is started may decide things from its first moment on."""
        self.woken: list[float] = []
        """When it was made to look at its clock."""
        self.drained: list[Stretch] = []
        """When no schedule was to start anything."""
        self.boots: list[tuple[float, float]] = []
        """Of each boot of the machine: when a daemon was started first, and when one served first."""
        self.cut: list[float] = []
        """When the machine went down, with all that ran on it."""
        self.stalls: list[tuple[float, float]] = []
        """When the machine held everybody up: the daemon was there, and could not do much."""
        self._slowest = 0.0
        """Seconds that a jump took at most: until it was done the clock may have shown the time before it."""

    @property
    def offset(self) -> float:
        return self.offsets[-1][1]

    def begin(self, offset: float) -> None:
        """Before anything else: what the clock shows until it jumps."""
        self.offsets[:] = [(0.0, offset)]
        self._dial.set(offset)

    def jump(self, offset: float) -> None:
        now = time.time()
        self.offsets.append((now, offset))
        self._dial.set(offset)
        self._slowest = max(self._slowest, time.time() - now)

    def leave(self) -> None:
        """The daemon is about to go."""
        self.away.append((time.time(), math.inf))

    def left(self) -> None:
        """It is gone."""
        self.gone.append((time.time(), math.inf))

    def back(self, since: float, *, started: bool = True) -> None:
        """The daemon serves again; it was started at `since`, and then it has looked at its clock.

        One that was only stopped sleeps on until its alarm, whatever the wall clock shows.
        """
        now = time.time()
        self.away[-1] = (self.away[-1][0], now)
        self.gone[-1] = (self.gone[-1][0], since)
        if started:
            self.woken.append(now)

    def wake(self) -> None:
        self.woken.append(time.time())

    # -- afterwards

    def __str__(self) -> str:
        return "\n".join(
            f"{name} {getattr(self, name)}" for name in ("offsets", "away", "woken", "drained", "boots", "stalls")
        )

    def shown(self, at: float) -> float:
        return at + next(offset for since, offset in reversed(self.offsets) if since <= at)

    def segments(self) -> Iterator[tuple[float, float, float]]:
        """Since when, until when, which offset."""
        ends = [since for since, _ in self.offsets[1:]]
        for (since, offset), until in zip(self.offsets, [*ends, math.inf], strict=True):
            yield since, until, offset

    def moments(self, shown: float) -> list[float]:
        """All moments at which the clock may have shown that."""
        return [
            shown - offset
            for since, until, offset in self.segments()
            if since - NEAR <= shown - offset <= until + self._slowest + NEAR
        ]

    def reached(self, shown: float, since: float) -> float | None:
        """The first moment from `since` on at which the clock showed that or more."""
        for begin, end, offset in self.segments():
            at = max(begin, since, shown - offset)
            if at < end:
                return at
        return None

    def highest(self, since: float, until: float) -> float:
        """The latest time that it showed between them."""
        return max(
            min(end + self._slowest, until) + offset
            for begin, end, offset in self.segments()
            if begin <= until and end >= since
        )

    def was_away(self, at: float) -> bool:
        return any(begin + NEAR < at < end - NEAR for begin, end in self.gone)

    def broken(self, since: float, until: float) -> bool:
        """Whether the daemon may have been away between them, or its clock was set."""
        return any(begin <= until + NEAR and end >= since - NEAR for begin, end in (*self.away, *self.stalls)) or any(
            since - NEAR - self._slowest <= at <= until + NEAR for at, _ in self.offsets
        )

    def decided_by(self, shown: float, since: float) -> float:
        """Until when the daemon must have seen that this was due. Never, if it had not enough time for it.

        While its clock is set back, it need not.
        """
        busy = [*self.away, *self.stalls, *self._unnoticed()]
        for begin, end, offset in self.segments():
            at = max(begin, since, shown - offset)
            if at < end and (latest := _within(at, busy)) <= end:
                return latest
        return math.inf

    def noticed_by(self, at: float) -> float:
        """Until when the daemon must have seen what happened at that moment, whatever its clock shows."""
        return _within(at, [*self.away, *self.stalls])

    def held_up(self, since: float, until: float) -> float:
        """Seconds between them in which the whole machine stood still."""
        return sum(end - begin for begin, end in self.stalls if begin <= until and end >= since)

    def _unnoticed(self) -> Iterator[tuple[float, float]]:
        for since, _ in self.offsets[1:]:
            woken = min((at for at in self.woken if at >= since), default=math.inf)
            yield since, min(woken, since + LOOK_AGAIN)


def _within(at: float, busy: Iterable[tuple[float, float]]) -> float:
    latest = at + LATE
    for begin, end in sorted(busy):
        if begin <= latest and end >= at:
            latest = max(latest, end + LATE)
    return latest


def maybe_in(stretches: Sequence[Stretch], at: float) -> bool:
    """Whether a decision of that moment may have met it: the decision reads the clock a moment earlier."""
    return any(asked - LATE <= at <= end_done + NEAR for asked, _, _, end_done in stretches)


def surely_in(stretches: Sequence[Stretch], at: float) -> bool:
    return any(done + NEAR < at < end_asked - LATE for _, done, end_asked, _ in stretches)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
