from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from toban.definition.timing.blackouts import covers, ends_at, parse_blackout

TOKYO, NEW_YORK = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York")


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
        ("0 2 * * sun/0s", 'a blackout window must last, found "0s"'),
        ("0 25 * * */2h", 'hour: found "25": expected 0-23'),
        ("@reboot/2h", 'a blackout window cannot begin at "@reboot"'),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_blackout(text)


def test_a_window_covers_its_first_moment_and_not_its_end() -> None:
    sunday = parse_blackout("0 2 * * sun/2h")
    begin, end = tokyo("2025-09-07 02:00"), tokyo("2025-09-07 04:00")
    assert not covers(sunday, TOKYO, tokyo("2025-09-07 01:59:59.999"))
    assert covers(sunday, TOKYO, begin)
    assert covers(sunday, TOKYO, tokyo("2025-09-07 03:59:59.999"))
    assert not covers(sunday, TOKYO, end)
    assert not covers(sunday, TOKYO, tokyo("2025-09-08 02:00"))
    assert ends_at(sunday, TOKYO, begin) == end
    assert ends_at(sunday, TOKYO, tokyo("2025-09-07 03:59:59.999")) == end


def test_a_moment_outside_ends_at_itself() -> None:
    sunday = parse_blackout("0 2 * * sun/2h")
    outside = tokyo("2025-09-07 04:00")
    found = ends_at(sunday, TOKYO, outside)
    assert found == outside
    assert found is not None
    assert found.tzinfo is UTC


def test_windows_that_touch_are_one() -> None:
    night = parse_blackout("0 22,23,0-4 * * */1h")
    assert ends_at(night, TOKYO, tokyo("2025-09-07 22:30")) == tokyo("2025-09-08 05:00")
    overlapping = parse_blackout("*/30 22 * * */45m")
    assert ends_at(overlapping, TOKYO, tokyo("2025-09-07 22:10")) == tokyo("2025-09-07 23:15")


def test_windows_may_be_longer_than_what_is_between_them() -> None:
    always = parse_blackout("0 * * * */90m")
    assert covers(always, TOKYO, tokyo("2025-09-07 22:30"))
    assert ends_at(always, TOKYO, tokyo("2025-09-07 22:30")) is None


def test_a_window_lasts_as_long_when_the_clock_is_changed() -> None:
    blackout = parse_blackout("0 1 * * sun/2h")
    begin = datetime(2025, 3, 9, 6, 0, tzinfo=UTC)  # 01:00; 03:00 comes an hour later
    assert covers(blackout, NEW_YORK, begin)
    assert ends_at(blackout, NEW_YORK, begin) == datetime(2025, 3, 9, 8, 0, tzinfo=UTC)
    in_the_gap = parse_blackout("30 2 * * */1h")
    assert ends_at(in_the_gap, NEW_YORK, datetime(2025, 3, 9, 7, 0, tzinfo=UTC)) == datetime(
        2025, 3, 9, 8, 0, tzinfo=UTC
    )


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2025, 1, 1)  # noqa: DTZ001
    blackout = parse_blackout("0 2 * * sun/2h")
    with pytest.raises(ValueError, match="has no time zone"):
        covers(blackout, TOKYO, naive)
    with pytest.raises(ValueError, match="has no time zone"):
        ends_at(blackout, TOKYO, naive)
