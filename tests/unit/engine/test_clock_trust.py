"""A clock that jumps is not believed for a day; one that goes on is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from doubles.clock import Clock
from toband.engine.retention.clock_trust import ClockTrust

DAY = timedelta(days=1)


class Passing:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def go_on(clock: Clock, passing: Passing, time: timedelta, *, jump: timedelta = timedelta(0)) -> None:
    clock.at += time + jump
    passing.seconds += time.total_seconds()


def test_time_that_passes_is_no_jump() -> None:
    clock, passing = Clock(), Passing()
    trust = ClockTrust(clock, passing)
    assert trust.look(None)
    for days in (0.1, 1, 30, 400):
        go_on(clock, passing, days * DAY, jump=timedelta(hours=1))
        assert trust.look(clock.at - 300 * DAY)


@pytest.mark.parametrize("jump", [7 * DAY, 365 * DAY, -365 * DAY])
def test_a_jump_is_believed_after_a_day(jump: timedelta) -> None:
    clock, passing = Clock(), Passing()
    trust = ClockTrust(clock, passing)
    assert trust.look(clock.at)
    go_on(clock, passing, timedelta(minutes=5), jump=jump)
    assert not trust.look(clock.at)
    go_on(clock, passing, timedelta(hours=23))
    assert not trust.look(clock.at)
    go_on(clock, passing, timedelta(hours=2))
    assert trust.look(clock.at)


def test_a_clock_that_is_set_right_is_doubted_for_a_day_more() -> None:
    clock, passing = Clock(), Passing()
    trust = ClockTrust(clock, passing)
    trust.look(None)
    go_on(clock, passing, timedelta(hours=1), jump=365 * DAY)
    assert not trust.look(None)
    go_on(clock, passing, timedelta(hours=20), jump=-365 * DAY)
    assert not trust.look(None)
    go_on(clock, passing, timedelta(hours=20))
    assert not trust.look(None)


def test_a_first_look_compares_with_the_newest_run() -> None:
    clock, passing = Clock(), Passing()
    assert ClockTrust(clock, passing).look(clock.at - DAY)
    assert not ClockTrust(clock, passing).look(clock.at - 3 * DAY)
