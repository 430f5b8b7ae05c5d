from __future__ import annotations

import re
import sys
from dataclasses import FrozenInstanceError
from datetime import date
from types import FrameType

import pytest

from toban.definition.timing.cron import LAST_WEEK, MACROS, Cron, parse_cron


def test_the_values_of_each_field() -> None:
    cron = parse_cron("30 */20 9-17/4 1,L jan,JUL 5-7")
    assert cron == Cron(
        text="30 */20 9-17/4 1,L jan,JUL 5-7",
        seconds=(30,),
        minutes=(0, 20, 40),
        hours=(9, 13, 17),
        days=(1,),
        last_day=True,
        months=(1, 7),
        weekdays=(0, 5, 6),
        either_day=True,
        wild=True,
    )


def test_weekdays_of_one_week_of_the_month() -> None:
    cron = parse_cron("0 9 * * 7#1,MON#2,friL,5#3,wed")
    assert (cron.weekdays, cron.nth_weekdays) == ((3,), ((0, 1), (1, 2), (5, LAST_WEEK), (5, 3)))


def test_it_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        parse_cron("* * * * *").wild = False  # type: ignore[misc]


@pytest.mark.parametrize("name", MACROS)
def test_names_are_written_out(name: str) -> None:
    assert parse_cron(name) == parse_cron(MACROS[name])
    assert parse_cron(f" {name.upper()} ").text == MACROS[name]


def test_reboot_stays_and_is_never_due() -> None:
    cron = parse_cron("@reboot")
    assert (cron.text, cron.reboot, cron.next_local(0)) == ("@reboot", True, None)


def test_blanks_do_not_matter() -> None:
    assert parse_cron("  0\t9  * * mon ").text == "0 9 * * mon"


@pytest.mark.parametrize(
    ("text", "wild"),
    [
        ("* * * * *", True),
        ("0 * * * *", True),
        ("0 */2 * * *", True),
        ("*/10 2 * * *", True),
        ("* 0 2 * * *", True),
        ("0,30 0-23 * * *", False),
        ("0 2 */2 * *", False),
        ("0 0 2 * * *", False),
    ],
)
def test_who_follows_the_clock(text: str, wild: bool) -> None:
    assert parse_cron(text).wild is wild


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected 5 or 6 fields, found 0"),
        ("* * * *", "expected 5 or 6 fields, found 4"),
        ("0 0 12 * * ? 2026", "expected 5 or 6 fields, found 7"),
        ("@fortnightly", '"@fortnightly" is not a known shortcut'),
        ("@every 5m", "expected 5 or 6 fields, found 2"),
        ("60 * * * *", 'minute: found "60": expected 0-59'),
        ("60 0 * * * *", 'second: found "60": expected 0-59'),
        ("0 24 * * *", 'hour: found "24": expected 0-23'),
        ("0 0 0 * *", 'day of month: found "0": expected 1-31'),
        ("0 0 32 * *", 'day of month: found "32": expected 1-31'),
        ("0 0 1 13 *", 'month: found "13": expected 1-12 or jan-dec'),
        ("0 0 1 0 *", 'month: found "0": expected 1-12 or jan-dec'),
        ("0 0 * * 8", 'day of week: found "8": expected 0-7 or sun-sat'),
        ("0 0 * * 1-8", 'day of week: found "1-8": expected 0-7 or sun-sat'),
        ("0 0 * * monday", 'day of week: found "monday": names have three letters: write mon'),
        ("0 0 1 Sept *", 'month: found "Sept": names have three letters: write sep'),
        ("0 0 1 mon *", 'month: found "mon": expected 1-12 or jan-dec, *, a range or a list'),
        ("0 noon * * *", 'hour: found "noon": expected 0-23, *, a range or a list of these'),
        ("-5 * * * *", 'minute: found "-5": expected 0-59'),
        ("1,,2 * * * *", 'minute: found "": expected 0-59'),
        ("1- * * * *", 'minute: found "1-": expected 0-59'),
        ("1.5 * * * *", 'minute: found "1.5": expected 0-59'),
        ("٥ * * * *", 'minute: found "٥": expected 0-59'),
        ("*/0 * * * *", 'minute: found "*/0": a step is a number from 1'),
        ("*/ * * * *", 'minute: found "*/": a step is a number from 1'),
        ("*/-5 * * * *", 'minute: found "*/-5": a step is a number from 1'),
        ("*/5/5 * * * *", 'minute: found "*/5/5": a step is a number from 1'),
        ("5/10 * * * *", 'minute: found "5/10": a step needs a range: write 5-59/10'),
        ("0 0 * * mon/2", "a step needs a range: write mon-7/2"),
        ("0 22-2 * * *", 'hour: found "22-2": a range cannot go backwards: write 22-23,0-2'),
        ("0 0 1 dec-feb *", "a range cannot go backwards: write dec-12,1-feb"),
        ("0 0 * * fri-mon", "a range cannot go backwards: write fri-7,1-mon"),
        ("0 0 * * 5-0", "a range cannot go backwards: write 5-7"),
        ("0 0 * * ?", 'day of week: found "?": write * instead of ?'),
        ("0 0 * * L", 'day of week: found "L": L is the last day in the field for days of the month'),
        ("0 0 * * L", "friL, in the field for days of the week, is the last Friday of a month"),
        ("0 0 * * 8L", 'day of week: found "8L": expected 0-7 or sun-sat'),
        ("0 0 * * mon-friL", 'day of week: found "mon-friL": L is the last day'),
        ("0 L * * *", 'hour: found "L": L is the last day'),
        ("0 0 L-3 * *", 'day of month: found "L-3": L is the last day'),
        ("0 0 L/2 * *", 'day of month: found "L/2": L is the last day'),
        ("0 0 15W * *", 'day of month: found "15W": the weekday nearest to a day cannot be written'),
        ("0 0 LW * *", 'day of month: found "LW": the weekday nearest to a day cannot be written'),
        ("0 0 * * fri#0", 'day of week: found "fri#0": write fri#1 to fri#5, or friL for the last one'),
        ("0 0 * * fri#6", 'day of week: found "fri#6": write fri#1 to fri#5'),
        ("0 0 * * 5#", 'day of week: found "5#": write 5#1 to 5#5, or 5L for the last one of a month'),
        ("0 0 * * fri#L", 'day of week: found "fri#L": write friL for the last one of a month'),
        ("0 0 * * friday#2", 'day of week: found "friday#2": names have three letters: write fri'),
        ("0 0 * * mon-fri#2", 'day of week: found "mon-fri#2": # selects the n-th weekday of a month: write mon#2'),
        ("0 0 2#1 * *", 'day of month: found "2#1": # selects the n-th weekday of a month: write mon#2'),
        ("H * * * *", 'minute: found "H": write the value instead of H, and use jitter'),
        ("H/15 * * * *", 'minute: found "H/15": write the value instead of H'),
        ("0~59 * * * *", 'minute: found "0~59": write one value instead of a random one'),
        ("0 0 30 2 *", '"0 0 30 2 *" is never due: day of month is "30", and month "2" has at most 29'),
        ("0 0 31 4,jun,9,nov *", 'never due: day of month is "31", and month "4,jun,9,nov" has at'),
        ("0 0 31 feb */2", "is never due"),
        ("0 " * 2000, "found a long text"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_cron(text)


def test_what_is_suggested_can_be_read() -> None:
    for text in ("5-59/10 * * * *", "0 22-23,0-2 * * *", "0 0 1 dec-12,1-feb *"):
        assert parse_cron(text).text == text
    assert parse_cron("0 0 * * fri-7,1-mon").weekdays == (0, 1, 5, 6)
    assert parse_cron("0 0 * * mon-7/2").weekdays == (0, 1, 3, 5)


def test_a_list_of_everything_fits() -> None:
    minutes = ",".join(map(str, range(60)))
    assert parse_cron(f"{minutes} * * * *").minutes == tuple(range(60))


def test_the_longest_wait_is_found_by_months() -> None:
    leap_sunday = parse_cron("0 0 29 2 */7")
    after_the_last = 762_502 * 86_400  # 2088-08-26; the next is in 2128
    looked_at = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "_next_day_of_month":
            looked_at.append(frame.f_locals["year"])

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = leap_sunday.next_local(after_the_last)
    finally:
        sys.setprofile(before)
    assert found is not None
    assert date.fromordinal(found // 86_400) == date(2128, 2, 29)
    assert looked_at == list(range(2089, 2129))
