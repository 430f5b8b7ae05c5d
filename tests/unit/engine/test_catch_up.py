"""Who catches up takes turns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from toband.engine.schedules.catch_up import CatchUpTurns

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_so_many_in_a_second_and_the_others_in_their_order() -> None:
    turns = CatchUpTurns(2)
    assert [turns.take(NOON) for _ in range(5)] == [
        NOON,
        NOON,
        NOON + SECOND,
        NOON + SECOND,
        NOON + 2 * SECOND,
    ]


def test_one_is_free_as_long_as_nobody_waits_for_it() -> None:
    turns = CatchUpTurns(2)
    assert turns.free(NOON)
    for _ in range(3):
        turns.take(NOON)
    assert not turns.free(NOON)
    assert turns.free(NOON + SECOND)
    turns.take(NOON + SECOND)
    assert not turns.free(NOON + SECOND)
    assert turns.free(NOON + 2 * SECOND)
