"""Times until which a step waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban.definition import wait_end


@pytest.mark.parametrize(
    ("text", "zone", "since", "expected"),
    [
        ("2026-12-01T09:30+09:00", "UTC", "2026-11-01T00:00", "2026-12-01T00:30"),
        ("2026-12-01 09:30:15Z", "Asia/Tokyo", "2026-11-01T00:00", "2026-12-01T09:30:15"),
        ("2026-12-01T09:30", "Asia/Tokyo", "2026-11-01T00:00", "2026-12-01T00:30"),
        ("2020-01-01 00:00", "UTC", "2026-11-01T00:00", "2020-01-01T00:00"),
        # The clock skips this hour, and shows the other one twice.
        ("2026-03-29 02:30", "Europe/Berlin", "2026-01-01T00:00", "2026-03-29T01:30"),
        ("2026-10-25 02:30", "Europe/Berlin", "2026-01-01T00:00", "2026-10-25T00:30"),
        ("09:30", "UTC", "2026-11-01T09:29:59", "2026-11-01T09:30"),
        ("09:30", "UTC", "2026-11-01T09:30", "2026-11-02T09:30"),
        (" 9:30:05 ", "UTC", "2026-11-01T09:30", "2026-11-01T09:30:05"),
        ("09:30", "Asia/Tokyo", "2026-11-01T12:00", "2026-11-02T00:30"),
        ("00:00", "Asia/Tokyo", "2026-12-31T14:59", "2026-12-31T15:00"),
        ("02:30", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T01:30"),
        ("02:30", "Europe/Berlin", "2026-10-25T00:00", "2026-10-25T00:30"),
        ("02:30", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
    ],
)
def test_when_a_wait_ends(text: str, zone: str, since: str, expected: str) -> None:
    began = datetime.fromisoformat(since).replace(tzinfo=UTC)
    assert wait_end(text, zone, began) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected a time, found ""'),
        ("24:00", 'expected a time, found "24:00": write a time of day such as 09:30'),
        ("2026-12-01", "expected a time"),
        ("2026-13-01 10:00", "is not a valid time"),
        ("1970-01-01T00:00Z", "expected a time from 1971"),
        ("9999-12-31 23:59", "expected a time from 1971"),
    ],
)
def test_what_is_no_time(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wait_end(text, "UTC", datetime(2026, 11, 1, tzinfo=UTC))


def test_an_unknown_time_zone() -> None:
    with pytest.raises(ValueError, match='cannot read the time zone "Nowhere/At"'):
        wait_end("09:30", "Nowhere/At", datetime(2026, 11, 1, tzinfo=UTC))
