"""Calendars of business days, and due times that follow them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toban.definition.timing.business_days import (
    MOST_NTH,
    CalendarError,
    calendar_name,
    check_calendar,
    default_calendar,
    load_calendar,
    read_calendar_file,
    with_data,
)
from toban.definition.timing.due import describe, occurrences
from toban.definition.timing.schedule_spec import Due, Schedule

TOKYO = ZoneInfo("Asia/Tokyo")
JP = {"country": "jp"}
# 29 April, 3 to 6 May are holidays of Japan in 2026.
SPRING = datetime(2026, 4, 25, tzinfo=UTC)


def due(count: int, cron: str, business_day: str | int, calendar: Any = JP, zone: ZoneInfo = TOKYO) -> list[str]:
    spec = Schedule(cron=cron, calendar=check_calendar(calendar), business_day=business_day)
    found = islice(occurrences(spec, zone=zone, after=SPRING, stored_at=SPRING), count)
    return [f"{each.at.astimezone(zone):%m-%d %H:%M}" for each in found]


@pytest.mark.parametrize(
    ("cron", "business_day", "expected"),
    [
        ("0 9 * * *", "only", ["04-27 09:00", "04-28 09:00", "04-30 09:00", "05-01 09:00", "05-07 09:00"]),
        ("0 9 * * *", "never", ["04-26 09:00", "04-29 09:00", "05-02 09:00", "05-03 09:00", "05-04 09:00"]),
        ("0 9 * * mon", "only", ["04-27 09:00", "05-11 09:00"]),
        ("0 9 * * mon", "next", ["04-27 09:00", "05-07 09:00", "05-11 09:00"]),
        ("0 9 * * mon", "previous", ["04-27 09:00", "05-01 09:00", "05-11 09:00"]),
        # Days that are moved to the same one are one due time.
        ("0 9,17 2-6 5 *", "next", ["05-07 09:00", "05-07 17:00"]),
        ("0 9,17 2-6 5 *", "previous", ["05-01 09:00", "05-01 17:00"]),
        ("30 18 L * *", "previous", ["04-30 18:30", "05-29 18:30", "06-30 18:30"]),
        ("0 9 1 * *", "next", ["05-01 09:00", "06-01 09:00", "07-01 09:00", "08-03 09:00"]),
        ("0 9 * * *", 1, ["05-01 09:00", "06-01 09:00"]),
        ("0 9 * * *", 2, ["05-07 09:00", "06-02 09:00"]),
        ("0 9 * * *", -1, ["04-30 09:00", "05-29 09:00", "06-30 09:00"]),
        ("0 9 * * *", -2, ["04-28 09:00", "05-28 09:00"]),
        ("*/30 9 * * *", -1, ["04-30 09:00", "04-30 09:30", "05-29 09:00"]),
        ("0 9 1 1 *", "only", []),
        ("0 9 * * *", MOST_NTH, []),
    ],
)
def test_due_times_follow_the_calendar(cron: str, business_day: str | int, expected: list[str]) -> None:
    found = due(max(len(expected), 1), cron, business_day)
    if business_day == MOST_NTH:
        # Months with 23 business days exist, but none of these days is a holiday.
        assert all(each.endswith("09:00") for each in found)
    else:
        assert found[: len(expected)] == expected
        assert bool(found) == bool(expected)


def test_due_times_are_the_same_from_any_moment() -> None:
    """They are computed in pieces: each continues where the one before ended."""
    for business_day in ("only", "next", "previous", "never", 2, -1):
        spec = Schedule(cron="0 9,17 1-6,L * *", calendar=JP, business_day=business_day)
        whole = list(islice(occurrences(spec, zone=TOKYO, after=SPRING, stored_at=SPRING), 40))
        at = SPRING
        pieces: list[Due] = []
        while len(pieces) < 40:
            pieces.append(next(occurrences(spec, zone=TOKYO, after=at, stored_at=SPRING)))
            at = pieces[-1].at
        assert pieces == whole
        assert [each.at for each in whole] == sorted({each.at for each in whole})
        between = whole[3].at + (whole[4].at - whole[3].at) / 2
        assert next(occurrences(spec, zone=TOKYO, after=between, stored_at=SPRING)) == whole[4]


def test_a_clock_change_on_a_business_day() -> None:
    """The hour is skipped on Sunday, 29 March 2026, which this calendar has as a workday."""
    calendar = {"country": "de", "workdays": ["2026-03-29"]}
    spec = Schedule(cron="30 2 * * *", calendar=check_calendar(calendar), business_day="only")
    berlin = ZoneInfo("Europe/Berlin")
    after = datetime(2026, 3, 27, 12, tzinfo=UTC)
    found = [each.at for each in islice(occurrences(spec, zone=berlin, after=after, stored_at=after), 2)]
    assert found == [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("calendar", "day", "is_open"),
    [
        ("jp", "2026-01-01", False),
        ("jp", "2026-01-02", True),
        ("us", "2026-03-31", True),
        ("us-ca", "2026-03-31", False),
        ("JP", "2026-11-03", False),
        ({"weekend": ["fri", "sat"]}, "2026-11-15", True),
        ({"weekend": ["fri", "sat"]}, "2026-11-20", False),
        ({"weekend": []}, "2026-11-15", True),
        ({"country": "jp", "weekend": ["sun"]}, "2026-11-14", True),
        ({"country": "jp", "weekend": ["sun"]}, "2026-11-03", False),
        ({"country": "jp", "holidays": ["2026-12-29"]}, "2026-12-29", False),
        ({"country": "jp", "workdays": ["2026-01-01"]}, "2026-01-01", True),
        ({"holidays": ["2026-12-29"]}, "2026-12-28", True),
        ({"holidays": [date(2026, 12, 29)]}, "2026-12-29", False),
        ({"holidays": ["2026-12-29"]}, "2026-12-27", False),
    ],
)
def test_which_days_are_business_days(calendar: Any, day: str, is_open: bool) -> None:
    assert load_calendar(check_calendar(calendar)).is_open(date.fromisoformat(day)) == is_open


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("xx", 'unknown country "xx": write a code of ISO 3166'),
        ("us-zz", '"us" has no part "zz" with holidays of its own'),
        (5, "expected the code of a country such as jp"),
        ({}, "the calendar is empty"),
        ({"file": "relative"}, "expected the absolute path of a file, found 'relative'"),
        ({"file": "/x", "country": "jp"}, "a calendar with file has no other fields"),
        ({"days": []}, 'unknown field "days" (known: country, weekend, holidays, workdays, file)'),
        ({"weekend": ["saturday"]}, "weekend: expected days such as [sat, sun], found 'saturday'"),
        ({"weekend": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]}, "every day is a weekend"),
        ({"holidays": "2026-12-29"}, "holidays: expected a list of at most"),
        ({"workdays": ["29.12.2026"]}, "workdays: expected a date such as 2026-12-29, found '29.12.2026'"),
    ],
)
def test_what_is_no_calendar(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_calendar(value)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-29\n\n# closed\n2026-12-30  # and here\n",
        "holidays:\n  - 2026-12-30\n  - '2026-12-29'\n",
        "holidays: [2026-12-29, 2026-12-30, 2026-12-29]",
    ],
)
def test_a_file_is_a_list_of_dates_or_a_calendar(text: str) -> None:
    assert read_calendar_file(text) == {"holidays": ["2026-12-29", "2026-12-30"]}


def test_the_content_of_a_file_is_part_of_the_calendar(tmp_path: Path) -> None:
    path = tmp_path / "days"
    calendar = default_calendar(str(path))
    assert (calendar, calendar_name(calendar)) == ({"file": str(path)}, str(path))
    with pytest.raises(ValueError, match="was not read"):
        load_calendar(calendar)
    with pytest.raises(CalendarError, match="cannot read the calendar"):
        with_data(calendar, lambda name: Path(name).read_text())
    path.write_text("country: jp\nholidays: [2026-12-29]\n")
    first = with_data(calendar, lambda name: Path(name).read_text())
    assert not load_calendar(first).is_open(date(2026, 12, 29))
    path.write_text("2026-12-28\n")
    second = with_data(first, lambda name: Path(name).read_text())
    assert load_calendar(second).is_open(date(2026, 12, 29))
    assert not load_calendar(second).is_open(date(2026, 12, 28))
    path.write_text("secret: value\n")
    with pytest.raises(CalendarError) as found:
        with_data(calendar, lambda name: Path(name).read_text())
    assert "secret" not in str(found.value)


def test_other_holidays_of_a_release_are_another_calendar() -> None:
    found = with_data(JP, lambda _: "")
    assert found["country"] == "jp"
    assert found["data"]
    assert (default_calendar("jp"), default_calendar("")) == (JP, {})
    assert [default_calendar(path) for path in ("/a", "C:\\a")] == [{"file": "/a"}, {"file": "C:\\a"}]


def test_a_calendar_without_business_days_is_never_due() -> None:
    start = date(2026, 1, 1)
    closed = [(start + timedelta(days=count)).isoformat() for count in range(1200)]
    for business_day in ("next", "previous"):
        assert due(1, "0 9 1 6 *", business_day, {"holidays": closed})[:1] in ([], ["06-01 09:00"])


@pytest.mark.parametrize(
    ("business_day", "expected"),
    [
        ("only", "every day at 09:00, on business days (jp)"),
        ("next", "every day at 09:00, or on the next business day (jp)"),
        ("previous", "every day at 09:00, or on the business day before (jp)"),
        ("never", "every day at 09:00, on days off (jp)"),
        (3, "every day at 09:00, on the 3rd business day of the month (jp)"),
        (-1, "every day at 09:00, on the last business day of the month (jp)"),
        (-2, "every day at 09:00, on the 2nd last business day of the month (jp)"),
    ],
)
def test_it_is_described(business_day: str | int, expected: str) -> None:
    spec = Schedule(cron="0 9 * * *", calendar=JP, business_day=business_day)
    assert describe(spec) == expected
    assert Schedule.from_dict(spec.to_dict()) == spec
