"""Since when the daemon is running, by the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime

from doubles.clock import Clock
from toband.engine.schedules.uptime import Uptime

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def looked() -> tuple[Clock, Uptime]:
    clock = Clock(NOON)
    presence = Uptime(clock, lambda: None)
    presence.look()
    return clock, presence


def test_who_looks_all_the_time_is_there_since_the_first_look() -> None:
    clock, presence = looked()
    jumps = presence.jumps
    for _ in range(20):
        clock.advance(4)
        assert presence.look() == clock.at
    assert (presence.since, presence.jumps) == (NOON, jumps)


def test_time_that_is_gone_is_an_absence() -> None:
    clock, presence = looked()
    jumps = presence.jumps
    back = clock.advance(6)
    presence.look()
    assert (presence.since, presence.jumps) == (back, jumps + 1)


def test_a_clock_that_is_set_back_shows_times_at_which_somebody_is_there() -> None:
    clock, presence = looked()
    clock.advance(4)
    presence.look()
    jumps = presence.jumps
    earlier = clock.advance(-3600)
    presence.look()
    assert (presence.since, presence.jumps) == (earlier, jumps + 1)
    clock.advance(-0.01)
    presence.look()
    assert presence.jumps == jumps + 1


def test_who_could_not_decide_was_not_there() -> None:
    clock, presence = looked()
    presence.leave()
    again = clock.advance(1)
    presence.look()
    assert presence.since == again
