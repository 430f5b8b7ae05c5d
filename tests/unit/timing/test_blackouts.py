from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toban.definition.timing.blackouts import (
    Blackout,
    Stretch,
    joined_at,
    never_ends,
    parse_blackout,
    stretch_at,
)
from toban.definition.timing.due import occurrences

TOKYO, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")


def end(text: str, zone: ZoneInfo, at: datetime) -> datetime | None:
    """Where the stretch of windows around `at` ends."""
    found = stretch_at(parse_blackout(text), zone, at)
    assert found is not None
    assert not found.longer
    return found.end


def covers(blackout: Blackout, zone: ZoneInfo, at: datetime) -> bool:
    return stretch_at(blackout, zone, at) is not None


def tokyo(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=TOKYO)


def test_what_is_read() -> None:
    blackout = parse_blackout(" 0 2 * * sun/2h ")
    assert blackout.text == "0 2 * * sun/2h"
    assert (blackout.schedule.cron, blackout.seconds) == ("0 2 * * sun", 7200)


@pytest.mark.parametrize(
    ("text", "cron", "seconds"),
    [
        ("0 2 * * */90m", "0 2 * * *", 5400),
        ("*/20 * * * */250ms", "*/20 * * * *", 0.25),
        ("@monthly/1d", "0 0 1 * *", 86400),
        ("0 0 1 1 * / 1h30m", "0 0 1 1 *", 5400),
    ],
)
def test_the_last_stroke_is_before_the_duration(text: str, cron: str, seconds: float) -> None:
    blackout = parse_blackout(text)
    assert (blackout.schedule.cron, blackout.seconds) == (cron, seconds)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", 'expected a blackout window, found "": write a crontab expression, "/"'),
        ("0 2 * * sun", 'expected a blackout window, found "0 2 * * sun"'),
        ("*/20 * * * *", 'expected a blackout window, found "*/20 * * * *"'),
        ("0 2 * * */2", "a duration with its unit"),  # two seconds, or every other day?
        ("0 2 * * sun/", "expected a blackout window"),
        ("/2h", "expected a blackout window"),
        ("0 2 * * sun/2x", 'expected a duration, found "2x"'),
        ("0 2 * * sun/0s", 'a blackout window must be longer than zero, found "0s"'),
        ("0 25 * * */2h", 'hour: found "25": expected 0-23'),
        ("@reboot/2h", 'a blackout window cannot begin at "@reboot"'),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_blackout(text)


def test_a_window_covers_its_first_moment_and_not_its_end() -> None:
    sunday = parse_blackout("0 2 * * sun/2h")
    last = tokyo("2025-09-07 03:59:59.999")
    assert not covers(sunday, TOKYO, tokyo("2025-09-07 01:59:59.999"))
    assert covers(sunday, TOKYO, tokyo("2025-09-07 02:00"))
    assert covers(sunday, TOKYO, last)
    assert not covers(sunday, TOKYO, tokyo("2025-09-07 04:00"))
    assert not covers(sunday, TOKYO, tokyo("2025-09-08 02:00"))
    for at in (tokyo("2025-09-07 02:00"), last):
        assert stretch_at(sunday, TOKYO, at) == Stretch(end=datetime(2025, 9, 6, 19, tzinfo=UTC))


def test_a_moment_outside_is_in_no_stretch() -> None:
    sunday = parse_blackout("0 2 * * sun/2h")
    assert stretch_at(sunday, TOKYO, tokyo("2025-09-07 04:00")) is None


def test_windows_that_touch_are_one() -> None:
    night = "0 22,23,0-4 * * */1h"
    assert end(night, TOKYO, tokyo("2025-09-07 22:30")) == tokyo("2025-09-08 05:00")
    overlapping = "*/30 22 * * */45m"
    assert end(overlapping, TOKYO, tokyo("2025-09-07 22:10")) == tokyo("2025-09-07 23:15")


def test_different_windows_that_touch_are_one() -> None:
    night = (("0 2 * * */1h", TOKYO), ("0 3 * * */1h", TOKYO), ("30 18 * * */2h", ZoneInfo("UTC")))
    for at in ("2025-09-07 02:00", "2025-09-07 03:10", "2025-09-07 05:29"):
        assert joined_at(night, tokyo(at)) == Stretch(end=datetime(2025, 9, 6, 20, 30, tzinfo=UTC))
    assert joined_at(night, tokyo("2025-09-07 05:30")) is None
    assert joined_at(night[:1], tokyo("2025-09-07 02:00")) == Stretch(end=datetime(2025, 9, 6, 18, tzinfo=UTC))
    for_ever = (*night, ("0 4 * * */24h", TOKYO))
    assert joined_at(for_ever, tokyo("2025-09-07 02:00")) == Stretch(end=None)


def test_of_windows_that_take_turns_the_first_are_followed() -> None:
    turns = (("0 */2 * * */1h", TOKYO), ("0 1-23/2 * * */1h", TOKYO))
    found = joined_at(turns, tokyo("2025-09-07 02:00"))
    assert found is not None
    assert found.longer
    assert found.end is not None
    assert found.end > tokyo("2025-09-07 12:00")


@pytest.mark.parametrize(
    "text",
    ["0 * * * */90m", "0 0 * * */24h", "* * * * * */2s", "0 0 * * mon-fri/3d", "0 0 1 * */31d"],
)
def test_windows_that_last_until_the_next_never_end(text: str) -> None:
    always = parse_blackout(text)
    assert never_ends(always)
    assert stretch_at(always, TOKYO, tokyo("2025-09-07 22:30")) == Stretch(end=None)


@pytest.mark.parametrize(
    "text",
    [
        "0 2 * * */2h",
        "0 0 * * */23h59m",
        "* 0-22 * * */1m",
        "* * 1-7 * */1m",
        "0 0 1 * */30d",
        "0 0 * * mon-thu/3d",
        "0 0 29 2 */1460d",
    ],
)
def test_windows_with_anything_between_them_end(text: str) -> None:
    assert not never_ends(parse_blackout(text))


def test_of_many_windows_that_touch_the_first_are_followed() -> None:
    week = parse_blackout("* * 1-7 * */1m")
    found = stretch_at(week, TOKYO, tokyo("2025-09-01 00:00"))
    assert found is not None
    assert found.longer
    assert found.end is not None
    assert tokyo("2025-09-01 01:00") < found.end < tokyo("2025-09-01 03:00")
    assert end("* * 1-7 * */1m", TOKYO, tokyo("2025-09-07 23:00")) == tokyo("2025-09-08 00:00")


def test_thousands_of_times_are_looked_up_without_following_windows_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = count()

    def counted(*given: Any, **more: Any) -> Any:
        return (due for due in occurrences(*given, **more) if next(looked) >= 0)

    monkeypatch.setattr("toban.definition.timing.blackouts.occurrences", counted)
    begin = tokyo("2025-09-06 00:00")
    for text in ("0 0 * * */24h", "* * * * * */2s", "0 0 * * */23h"):
        window = parse_blackout(text)
        times = (begin + timedelta(minutes=number) for number in count())
        assert all(stretch_at(window, TOKYO, at) is not None for at in islice(times, 1000))
    assert next(looked) < 3 * 1000 + 10


def test_a_window_lasts_as_long_when_the_clock_is_changed() -> None:
    begin = datetime(2025, 3, 9, 6, 0, tzinfo=UTC)  # 01:00; 03:00 comes an hour later
    assert end("0 1 * * sun/2h", NEW_YORK, begin) == datetime(2025, 3, 9, 8, 0, tzinfo=UTC)
    in_the_gap = end("30 2 * * */1h", NEW_YORK, datetime(2025, 3, 9, 7, 0, tzinfo=UTC))
    assert in_the_gap == datetime(2025, 3, 9, 8, 0, tzinfo=UTC)


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001
    blackout = parse_blackout("0 2 * * sun/2h")
    with pytest.raises(ValueError, match="has no time zone"):
        stretch_at(blackout, TOKYO, naive)
