"""Times as bounds of ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import uuid_utils

from toband.domain.run_ids import first_id

MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def test_what_was_made_by_then_sorts_before_it_and_what_comes_later_behind() -> None:
    before = datetime.now(UTC)
    made = str(uuid_utils.uuid7())
    after = datetime.now(UTC)
    # Not every clock of a system is as fine as another.
    assert first_id(before - SECOND) < made < first_id(after + SECOND)


def test_bounds_sort_as_their_times_do() -> None:
    start = datetime(2026, 11, 3, 12, 30, 15, 123456, tzinfo=UTC)
    times = [
        datetime(1970, 1, 1, tzinfo=UTC),
        start,
        start + MILLISECOND,
        start + 900 * MILLISECOND,
    ]
    bounds = [first_id(at) for at in times]
    assert bounds == sorted(set(bounds))
    # Whoever was made in that millisecond may have ended in it.
    assert first_id(start) == first_id(start.replace(microsecond=123999))


def test_before_all_ids() -> None:
    assert first_id(datetime(1969, 1, 1, tzinfo=UTC)) < "00000000-0000"
