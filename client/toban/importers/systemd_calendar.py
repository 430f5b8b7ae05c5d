"""Parses `OnCalendar=` of systemd timers, computes its due times, and converts it to an equal schedule.

`[weekdays] [date] [time] [zone]`, as in systemd.time(7): lists, ranges `a..b`, steps `a/b`, `*`, and the short
names. Of days counted from the end of a month only the last one, `~1`, has a counterpart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition.timing.zones import check_zone
from toban.importers.import_model import ImportProblem, Times
from toban.importers.local_times import first_times

_SHORT = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(("semiannually", "semi-annually", "biannually", "bi-annually"), "*-01,07-01 00:00:00"),
    **dict.fromkeys(("yearly", "annually", "anually"), "*-01-01 00:00:00"),
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ELEMENT = re.compile(r"(?P<low>[0-9]+)(?:\.\.(?P<high>[0-9]+))?(?:/(?P<step>[0-9]+))?")
_YEARS = (1970, 2199)  # the maximum of systemd
_ALL_WEEK = frozenset(range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A parsed expression. Weekdays count from Monday as 0; `years` is None for all of them.

    `last_day`: the last day of each month, instead of `days`. `zone` is empty if the expression names none.
    """

    text: str
    weekdays: frozenset[int]
    years: frozenset[int] | None
    months: frozenset[int]
    days: frozenset[int]
    last_day: bool
    hours: frozenset[int]
    minutes: frozenset[int]
    seconds: frozenset[int]
    zone: str

    def matches(self, day: date) -> bool:
        """Whether it is due on this day."""
        return (
            (_is_last(day) if self.last_day else day.day in self.days)
            and day.month in self.months
            and day.weekday() in self.weekdays
            and (self.years is None or day.year in self.years)
        )

    def times(self, zone: ZoneInfo) -> Times:
        """The due times of systemd: skipped local times never, repeated ones the first time."""
        of_day = [
            time(hour, minute, second)
            for hour in sorted(self.hours)
            for minute in sorted(self.minutes)
            for second in sorted(self.seconds)
        ]

        def first(after: datetime, count: int) -> list[datetime]:
            return first_times(after, count, zone=zone, on=self.matches, times=of_day, shifts=False, repeats=False)

        return first


def _is_last(day: date) -> bool:
    return date.fromordinal(day.toordinal() + 1).day == 1


def parse_calendar(text: str) -> Calendar:
    """Raises ImportProblem for syntax that systemd would refuse, or that has no counterpart."""
    words = text.split()
    zone = ""
    if len(words) > 1 and (words[-1] == "UTC" or ("/" in words[-1] and words[-1][0].isalpha())):
        zone = words.pop()
        try:
            check_zone(zone)
        except ValueError as error:
            raise ImportProblem(str(error)) from None
    if len(words) == 1 and words[0].lower() in _SHORT:
        words = _SHORT[words[0].lower()].split()
    rest = list(words)
    weekdays = _ALL_WEEK
    if rest and rest[0][0].isalpha():
        weekdays = _read_weekdays(rest.pop(0).rstrip(","), text)
    day_text, time_text = "*-*-*", "00:00:00"
    if rest and ":" not in rest[0]:
        day_text = rest.pop(0)
    if rest and ":" in rest[0]:
        time_text = rest.pop(0)
    if rest or not words:
        raise ImportProblem(f'cannot read the calendar expression "{text}"')
    years, months, days, last_day = _read_date(day_text, text)
    parts = time_text.split(":")
    if len(parts) not in (2, 3):
        raise ImportProblem(f'cannot read the time "{time_text}" of "{text}"')
    return Calendar(
        text=text,
        weekdays=weekdays,
        years=years,
        months=months,
        days=days,
        last_day=last_day,
        hours=_read(parts[0], 0, 23, text),
        minutes=_read(parts[1], 0, 59, text),
        seconds=_read(parts[2], 0, 59, text) if len(parts) == 3 else frozenset({0}),
        zone=zone,
    )


def schedule_of(calendar: Calendar, zone: ZoneInfo) -> dict[str, Any]:
    """The schedule with the same due times, as in a definition; raises ImportProblem if there is none."""
    if (once := _single(calendar, zone)) is not None:
        return {"at": once.isoformat()}
    day, weekday = _day_fields(calendar)
    fields = [
        # Never `*`: that would follow clock changes, which systemd does not.
        _list(calendar.minutes),
        _list(calendar.hours),
        day,
        "*" if len(calendar.months) == 12 else _list(calendar.months),
        weekday,
    ]
    if calendar.seconds != {0}:
        fields.insert(0, _list(calendar.seconds))
    schedule: dict[str, Any] = {"cron": " ".join(fields), "gap": "skip"}
    if calendar.zone:
        schedule["timezone"] = calendar.zone
    if calendar.years is not None:
        first, last = min(calendar.years), max(calendar.years)
        if len(calendar.years) != last - first + 1:
            raise ImportProblem(f'the years of "{calendar.text}" are not in one piece')
        schedule["start"] = _begin(first, zone).isoformat()
        schedule["end"] = datetime(last, 12, 31, 23, 59, 59, tzinfo=zone).astimezone(UTC).isoformat()
    return schedule


def _begin(year: int, zone: ZoneInfo) -> datetime:
    return datetime(year, 1, 1, tzinfo=zone).astimezone(UTC)


def _single(calendar: Calendar, zone: ZoneInfo) -> datetime | None:
    """The only due time, if there is just one."""
    sets = (calendar.months, calendar.days, calendar.hours, calendar.minutes, calendar.seconds)
    if calendar.years is None or calendar.last_day or calendar.weekdays != _ALL_WEEK:
        return None
    if len(calendar.years) != 1 or any(len(each) != 1 for each in sets):
        return None
    year, month, day, hour, minute, second = (next(iter(s)) for s in (calendar.years, *sets))
    try:
        local = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        raise ImportProblem(f'"{calendar.text}" is never due') from None
    found = local.astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None):
        raise ImportProblem(f'"{calendar.text}" is never due: the clocks skip it')
    return found


def _day_fields(calendar: Calendar) -> tuple[str, str]:
    """Days of the month and of the week; in crontab either is enough unless one of the fields begins with `*`."""
    all_days = len(calendar.days) == 31 and not calendar.last_day
    crons = frozenset((day + 1) % 7 for day in calendar.weekdays)  # Sunday is 0
    day = "L" if calendar.last_day else "*" if all_days else _list(calendar.days)
    weekday = "*" if len(crons) == 7 else _list(crons)
    if day == "*" or weekday == "*":
        return day, weekday
    # `*/31` is only the first of a month, `*/7` only Sunday.
    if not calendar.last_day and 1 in calendar.days:
        others = calendar.days - {1}
        return f"*/31,{_list(others)}" if others else "*/31", weekday
    if 0 in crons:
        others = crons - {0}
        return day, f"*/7,{_list(others)}" if others else "*/7"
    raise ImportProblem(
        f'"{calendar.text}" needs a day of the week and of the month at once, which a crontab expression cannot say'
    )


def _list(values: Iterable[int]) -> str:
    """The values as a field: with a step if they are evenly spaced, else ranges and single values."""
    ordered = sorted(values)
    if len(ordered) > 2:
        step = ordered[1] - ordered[0]
        if ordered == list(range(ordered[0], ordered[-1] + 1, step)):
            span = f"{ordered[0]}-{ordered[-1]}"
            return span if step == 1 else f"{span}/{step}"
    parts: list[list[int]] = []
    for value in ordered:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _read_date(text: str, whole: str) -> tuple[frozenset[int] | None, frozenset[int], frozenset[int], bool]:
    from_end = "~" in text
    parts = text.replace("~", "-").split("-")
    if len(parts) == 2:
        parts.insert(0, "*")
    if len(parts) != 3 or text.count("~") > 1:
        raise ImportProblem(f'cannot read the date "{text}" of "{whole}"')
    years = None if parts[0] == "*" else _read(parts[0], *_YEARS, whole, of=_year)
    days = _read(parts[2], 1, 31, whole)
    if from_end and days != {1}:
        raise ImportProblem(f'"{whole}" counts days from the end of the month, beyond the last')
    return years, _read(parts[1], 1, 12, whole), days, from_end


def _year(text: str) -> int:
    """Two digits mean 1970 to 2069."""
    year = int(text)
    return year if year > 99 else year + (2000 if year < 70 else 1900)


def _read(text: str, low: int, high: int, whole: str, *, of: Callable[[str], int] = int) -> frozenset[int]:
    if text == "*":
        return frozenset(range(low, high + 1))
    found: set[int] = set()
    for element in text.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is None:
            raise ImportProblem(f'"{element}" of "{whole}": {_why_not(element, low)}')
        first = of(match["low"])
        last = of(match["high"]) if match["high"] else high if match["step"] else first
        step = int(match["step"] or 1)
        if not low <= first <= last <= high:
            raise ImportProblem(f'"{element}" of "{whole}": expected {low} to {high}')
        if not step or (match["step"] and not match["high"] and first + step > high):
            raise ImportProblem(f'"{element}" of "{whole}": expected a step of 1 or more that stays below {high + 1}')
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _why_not(element: str, low: int) -> str:
    if element.startswith("*"):
        step = element.removeprefix("*/")
        return "systemd reads * only alone" + (f": write {low}/{step}" if step.isdecimal() else "")
    return "fractions of a second have no counterpart" if "." in element else "cannot be read"


def _read_weekdays(text: str, whole: str) -> frozenset[int]:
    found: set[int] = set()
    for element in text.split(","):
        first, dots, last = element.partition(".." if ".." in element else "-")
        begin = _weekday(first, whole)
        end = _weekday(last, whole) if dots else begin
        if begin > end:
            raise ImportProblem(f'"{element}" of "{whole}": a range cannot go backwards')
        found.update(range(begin, end + 1))
    return frozenset(found)


def _weekday(text: str, whole: str) -> int:
    for number, name in enumerate(_WEEKDAYS):
        if text.lower() in (name, name[:3]):
            return number
    raise ImportProblem(f'cannot read "{text}" of "{whole}"')
