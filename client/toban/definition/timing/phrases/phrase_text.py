"""Describes the interpretation of a phrase: absolute, and in the phrase's language."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import assert_never
from zoneinfo import ZoneInfo

from toban.definition.timing.cron import LAST_WEEK
from toban.definition.timing.phrases.phrase_parts import (
    DEFAULT_CLOCK,
    MONDAY,
    MOST_WEEKS,
    SUNDAY,
    WORKING_DAYS,
    Elapsed,
    Hourly,
    Instant,
    Interval,
    Meaning,
    NextBusinessDay,
    OnDay,
    Repeat,
    UpcomingDay,
)
from toban.definition.timing.phrases.phrase_resolution import When, in_order


class Tongue(Enum):
    JAPANESE = "ja"
    ENGLISH = "en"


JAPANESE_WEEKDAYS = "月火水木金土日"
ENGLISH_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ENGLISH_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
# The days that not every month has.
_EVERY_MONTH_HAS = 28
_FEBRUARY = 2

_JAPANESE_UNITS = ("日", "時間", "分", "秒")
_ENGLISH_UNITS = ("day", "hour", "minute", "second")
_UNIT_SECONDS = (86400, 3600, 60, 1)


def say(meaning: Meaning, when: When, *, zone: ZoneInfo, tongue: Tongue, calendar: str = "") -> str:
    """The text for people; `when` is what `meaning` was resolved to, `calendar` the name of the calendar."""
    japanese = tongue is Tongue.JAPANESE
    match meaning:
        case Interval(seconds=seconds):
            return _japanese_interval(seconds) if japanese else _english_interval(seconds)
        case Hourly(minute=minute):
            return f"毎時{minute}分" if japanese else f"every hour at minute {minute}"
        case Repeat(business=business) if business != "":
            days = _japanese_business(business, calendar) if japanese else f"{_english_business(business, calendar)} at"
            return f"{days} {meaning.clock or DEFAULT_CLOCK} ({zone.key})"
        case Repeat():
            days = _japanese_days(meaning) if japanese else _english_days(meaning) + " at"
            return f"{days} {meaning.clock or DEFAULT_CLOCK} ({zone.key})"
        case Instant() | OnDay() | Elapsed() | UpcomingDay() | NextBusinessDay():
            assert when.at is not None
            return say_time(when.at, zone=zone, tongue=tongue)
        case _:
            assert_never(meaning)


def _japanese_business(business: str | int, calendar: str) -> str:
    match business:
        case int(nth):
            return f"毎月{'最終' if nth == -1 else f'第{nth}'}営業日({calendar})"
        case _:
            return f"毎営業日({calendar})"


def _english_business(business: str | int, calendar: str) -> str:
    match business:
        case int(nth):
            return f"on the {'last' if nth == -1 else _ordinal(nth)} business day of every month ({calendar})"
        case _:
            return f"every business day ({calendar})"


def say_time(at: datetime, *, zone: ZoneInfo, tongue: Tongue) -> str:
    """`2026-11-19 (木) 09:00 Asia/Tokyo`; with the offset when the clocks show that time twice."""
    local = at.astimezone(zone)
    names = JAPANESE_WEEKDAYS if tongue is Tongue.JAPANESE else ENGLISH_WEEKDAYS
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    where = f"{zone.key} (UTC{local.isoformat()[-6:]})" if twice else zone.key
    return f"{local.date()} ({names[local.weekday()][:3]}) {clock} {where}"


def _amounts(seconds: int) -> list[tuple[int, int]]:
    """How many of which unit."""
    found = []
    for unit, size in enumerate(_UNIT_SECONDS):
        count, seconds = divmod(seconds, size)
        if count:
            found.append((count, unit))
    return found


def _japanese_interval(seconds: int) -> str:
    amount = "".join(f"{count}{_JAPANESE_UNITS[unit]}" for count, unit in _amounts(seconds))
    return f"今から{amount}ごと"


def _english_interval(seconds: int) -> str:
    parts = [f"{count} {_ENGLISH_UNITS[unit]}{'s' if count > 1 else ''}" for count, unit in _amounts(seconds)]
    return f"every {_listed(parts)} from now on"


def _japanese_days(repeat: Repeat) -> str:
    days = sorted(repeat.days)
    if repeat.weeks:
        weeks = "・".join("最終" if week == LAST_WEEK else f"第{week}" for week in in_order(repeat.weeks))
        note = "(第5がある月のみ)" if repeat.weeks == {MOST_WEEKS} else ""
        return f"毎月{weeks}{'・'.join(JAPANESE_WEEKDAYS[day] for day in sorted(repeat.weekdays))}曜{note}"
    if repeat.weekdays == WORKING_DAYS:
        return "平日(月〜金)"
    if repeat.weekdays:
        return f"毎週{'・'.join(JAPANESE_WEEKDAYS[day] for day in sorted(repeat.weekdays))}曜"
    if repeat.month is not None:
        note = "(うるう年のみ)" if _leap_day(repeat) else ""
        return f"毎年{repeat.month}月{'・'.join(map(str, days))}日{note}"
    if repeat.daily:
        return "毎日"
    names = [f"{day}日" for day in days] + (["末日"] if repeat.last_day else [])
    note = "(その日がある月のみ)" if days and days[-1] > _EVERY_MONTH_HAS else ""
    return f"毎月{'・'.join(names)}{note}"


def _english_days(repeat: Repeat) -> str:
    days = sorted(repeat.days)
    if repeat.weeks:
        weeks = ["last" if week == LAST_WEEK else _ordinal(week) for week in in_order(repeat.weeks)]
        note = " (in months that have it)" if repeat.weeks == {MOST_WEEKS} else ""
        weekdays = _listed([ENGLISH_WEEKDAYS[day] for day in sorted(repeat.weekdays)])
        return f"on the {_listed(weeks)} {weekdays} of every month{note}"
    if repeat.weekdays == WORKING_DAYS:
        return "every weekday (Monday to Friday)"
    if repeat.weekdays == frozenset(range(MONDAY, SUNDAY + 1)) or repeat.daily:
        return "every day"
    if repeat.weekdays:
        return f"every {_listed([ENGLISH_WEEKDAYS[day] for day in sorted(repeat.weekdays)])}"
    if repeat.month is not None:
        note = " (in leap years only)" if _leap_day(repeat) else ""
        return f"every year on {ENGLISH_MONTHS[repeat.month - 1]} {_listed([str(day) for day in days])}{note}"
    names = [_ordinal(day) for day in days] + (["last day"] if repeat.last_day else [])
    note = " (in months that have it)" if days and days[-1] > _EVERY_MONTH_HAS else ""
    return f"on the {_listed(names)} of every month{note}"


def _leap_day(repeat: Repeat) -> bool:
    return repeat.month == _FEBRUARY and _EVERY_MONTH_HAS + 1 in repeat.days


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
