"""Describes a schedule in a few words, for lists and answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from toban.definition.scalars.durations import format_duration
from toban.definition.timing.business_days import NEVER, NEXT, ONLY, PREVIOUS, calendar_name
from toban.definition.timing.cron import LAST_WEEK, Cron, parse_cron
from toban.definition.timing.schedule_spec import Schedule

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
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
_NTH = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 5: "5th", LAST_WEEK: "last"}
_MOST_IN_WORDS = 4
_BUSINESS_DAYS = {
    ONLY: "on business days",
    NEXT: "or on the next business day",
    PREVIOUS: "or on the business day before",
    NEVER: "on days off",
}


def describe(schedule: Schedule) -> str:
    """Such as `every day at 03:00 Asia/Tokyo`; the expression itself if words would be longer.

    Raises ValueError if the crontab expression is invalid.
    """
    words = _when(schedule)
    if schedule.business_day != "":
        words += f", {_business_days(schedule)}"
    if schedule.cron and schedule.timezone and not parse_cron(schedule.cron).reboot:
        words += f" {schedule.timezone}"
    if schedule.start is not None:
        words += f", from {_moment(schedule.start)}"
    if schedule.end is not None:
        words += f", until {_moment(schedule.end)}"
    if schedule.max_occurrences is not None:
        words += f", {_times(schedule.max_occurrences)} at most"
    if schedule.scope:
        words += f", scope {schedule.scope}"
    return words


def describe_in(schedule: Schedule, zone: str) -> str:
    """When it is due, in the zone: `once at 2026-02-01 09:00+09:00 Asia/Tokyo`. Without the number of occurrences.

    Raises ValueError if the crontab expression or the zone is invalid, or the time does not exist in the zone.
    """
    bare = replace(schedule, timezone=zone, max_occurrences=None)
    if bare.at is None:
        return describe(bare)
    try:
        local = bare.at.astimezone(ZoneInfo(zone))
    except (KeyError, OSError, OverflowError) as error:
        raise ValueError(f"cannot tell {bare.at} in {zone}: {error}") from error
    return f"{describe(replace(bare, at=local))} {zone}"


def _business_days(schedule: Schedule) -> str:
    calendar = f" ({calendar_name(schedule.calendar)})" if schedule.calendar else ""
    match schedule.business_day:
        case int(nth):
            return f"on the {nth_text(nth)} business day of the month{calendar}"
        case str(mode):
            return _BUSINESS_DAYS[mode] + calendar


def nth_text(nth: int) -> str:
    """`3rd`, `last`, `2nd last`."""
    number = abs(nth)
    end = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    if nth > 0:
        return f"{number}{end}"
    return "last" if nth == -1 else f"{number}{end} last"


def _when(schedule: Schedule) -> str:
    if schedule.at is not None:
        return f"once at {_moment(schedule.at)}"
    if schedule.every is not None:
        return f"every {format_duration(schedule.every)}"
    if schedule.words and not schedule.cron:
        return schedule.words  # words that are not resolved yet
    cron = parse_cron(schedule.cron)
    if cron.reboot:
        return "once per boot of the machine"
    return _often(cron) or _at_times(cron) or f"cron {cron.text}"


def _often(cron: Cron) -> str:
    """An expression that is due in regular steps of less than a day, every day; empty if it is not."""
    second, minute, hour, day, month, weekday = _fields(cron)
    if (day, month, weekday) != ("*", "*", "*"):
        return ""
    if (minute, hour) == ("*", "*") and second != "0":
        return _steps(second, 60, "second")
    if hour == "*" and second == "0":
        if minute.isdecimal():
            return f"every hour at minute {int(minute)}" if int(minute) else "every hour"
        return _steps(minute, 60, "minute")
    if (second, minute) == ("0", "0"):
        return _steps(hour, 24, "hour")
    return ""


def _steps(field: str, size: int, unit: str) -> str:
    if field == "*":
        return f"every {unit}"
    step = field.removeprefix("*/")
    # With any other number the last step of a cycle is shorter than the rest.
    if field.startswith("*/") and step.isdecimal() and 1 < int(step) < size and size % int(step) == 0:
        return f"every {int(step)} {unit}s"
    return ""


def _at_times(cron: Cron) -> str:
    count = len(cron.hours) * len(cron.minutes) * len(cron.seconds)
    days = _days(cron)
    if not days or count > _MOST_IN_WORDS:
        return ""
    with_seconds = cron.seconds != (0,)
    times = [
        f"{hour:02}:{minute:02}" + (f":{second:02}" if with_seconds else "")
        for hour in cron.hours
        for minute in cron.minutes
        for second in cron.seconds
    ]
    return f"{days} at {_list(times)}"


def _days(cron: Cron) -> str:
    """Empty: too complex for a few words."""
    _, _, _, day, month, weekday = _fields(cron)
    if (day, month, weekday) == ("*", "*", "*"):
        return "every day"
    if (day, month) == ("*", "*"):
        return _nth_weekdays(cron) if cron.nth_weekdays else f"every {_weekdays(cron.weekdays)}"
    if weekday != "*" or len(cron.days) + cron.last_day > _MOST_IN_WORDS:
        return ""
    days = [str(each) for each in cron.days] if day != "*" else []
    if cron.last_day:
        days.append("the last day" if not days else "the last")
    elif not days:
        return ""
    if month == "*":
        label = "" if cron.last_day and len(days) == 1 else "day "
        return f"on {label}{_list(days)} of every month"
    if len(days) == len(cron.months) == 1 and not cron.last_day:
        return f"every year on {days[0]} {_MONTHS[cron.months[0] - 1]}"
    return ""


def _weekdays(weekdays: tuple[int, ...]) -> str:
    if weekdays == (1, 2, 3, 4, 5):
        return "weekday"
    # Monday first, as people say it.
    return _list([_WEEKDAYS[each] for each in sorted(weekdays, key=lambda day: (day - 1) % 7)])


def _nth_weekdays(cron: Cron) -> str:
    if cron.weekdays or len(cron.nth_weekdays) > _MOST_IN_WORDS:
        return ""
    # Monday first, and the last one of a month last.
    ordered = sorted(cron.nth_weekdays, key=lambda each: ((each[0] - 1) % 7, each[1] == LAST_WEEK, each[1]))
    return f"on the {_list([f'{_NTH[nth]} {_WEEKDAYS[day]}' for day, nth in ordered])} of every month"


def _fields(cron: Cron) -> list[str]:
    fields = cron.text.split()
    return fields if len(fields) == 6 else ["0", *fields]


def _list(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _moment(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds" if at.second else "minutes")


def why_never(schedule: Schedule, zone: str, now: datetime) -> str:
    """Why a schedule has no due time left."""
    if schedule.at is None:
        return "it is never due, or no longer"
    here = now.astimezone(ZoneInfo(zone)).isoformat(sep=" ", timespec="seconds")
    return f"that has passed: it is {here} {zone}"
