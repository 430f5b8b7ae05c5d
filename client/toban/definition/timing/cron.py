"""Parses crontab expressions, as crontab(5) describes them and cronie reads them.

Five fields: minute, hour, day of month, month, day of week; six put the seconds first. A field is a list of
elements with commas between them: `*`, a value, or a range `a-b`; `*` and ranges may have a step (`*/15`,
`8-18/2`). Months and days of the week have English names of three letters. Sunday is 0 and 7; as the end of a
range, `sun` is 7 (`sat-sun`).

When both day fields are restricted, a day needs to match one of them. A field that begins with `*` is not
restricted in this sense even if it has a step: `0 0 */2 * mon` is due on Mondays with an odd day of the month,
as in cronie.

Extensions of crontab(5): `L` as a day of the month is its last day. As a day of the week, `mon#2` is the second Monday
of a month and `friL` its last Friday.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

DAY_SECONDS = 86_400
LAST_YEAR = 9998
"""No due time is later: the last year of the calendar has hours that UTC cannot represent."""

REBOOT = "@reboot"
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_LONGEST_TEXT = 1_000
_FORMS = (
    'write "minute hour day-of-month month day-of-week", such as "30 4 * * mon-fri", '
    f"with the seconds in front if there are six fields, or one of {', '.join((*MACROS, REBOOT))}"
)
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_STEP = re.compile(r"[0-9]+")
_NTH_WEEKDAY = re.compile(r"([0-9]+|[a-z]+)(?:#(.*)|l)", re.IGNORECASE)
_MOST_WEEKS = 5
LAST_WEEK = -1
"""As the number of a weekday in its month: the last one."""
# Extensions of other programs, and what to write instead.
_FOREIGN = {
    "?": "write * instead of ?",
    "#": "# selects the n-th weekday of a month: write mon#2 in the field for days of the week",
    "W": "the weekday nearest to a day cannot be written as one expression",
    "L": "L is the last day in the field for days of the month, where it stands alone or in a list; "
    "friL, in the field for days of the week, is the last Friday of a month",
    "H": "write the value instead of H, and use jitter to spread runs",
    "~": "write one value instead of a random one, and use jitter to spread runs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        values = f"{self.low}-{self.high}"
        return f"{values} or {self.names[0]}-{self.names[-1]}" if self.names else values


_SECOND = _Field(name="second", low=0, high=59)
_MINUTE = _Field(name="minute", low=0, high=59)
_HOUR = _Field(name="hour", low=0, high=23)
_DAY = _Field(name="day of month", low=1, high=31)
_MONTH = _Field(
    name="month",
    low=1,
    high=12,
    names=("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)
_WEEKDAY = _Field(name="day of week", low=0, high=7, names=("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
_FIELDS = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A parsed crontab expression. The values of each field ascend; `weekdays` has Sunday as 0 only.

    `nth_weekdays` are pairs of a weekday and its number in the month, from 1, or `LAST_WEEK`.

    `text` is the expression with the `@` name expanded and single blanks. `last_day`: the last day of a month counts as
    one of its `days`. `either_day`: both day fields are restricted, one of them is enough. `wild`: second, minute or
    hour begins with `*`, so it follows clock changes. `reboot`: `@reboot`; it has no values and is never due.
    """

    text: str
    seconds: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    months: tuple[int, ...] = ()
    weekdays: tuple[int, ...] = ()
    nth_weekdays: tuple[tuple[int, int], ...] = ()
    last_day: bool = False
    either_day: bool = False
    wild: bool = False
    reboot: bool = False

    def next_local(self, moment: int) -> int | None:
        """The first matching time from `moment` on, in a calendar without zones; None if there is none.

        Both are seconds: the day's `date.toordinal()` times 86,400, and the seconds of the day.
        """
        if self.reboot:
            return None
        day, second = divmod(moment, DAY_SECONDS)
        found = self.next_day(day)
        if found == day:
            later = self.next_time(second)
            if later is not None:
                return day * DAY_SECONDS + later
            found = self.next_day(day + 1)
        if found is None:
            return None
        return found * DAY_SECONDS + _second_of_day(self.hours[0], self.minutes[0], self.seconds[0])

    def next_time(self, second: int) -> int | None:
        """The first matching time of day from this one on."""
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        at = bisect_left(self.hours, hour)
        if at < len(self.hours) and self.hours[at] == hour:
            when = _first(self.minutes, minute)
            if when == minute:
                tick = _first(self.seconds, second)
                if tick is not None:
                    return _second_of_day(hour, minute, tick)
                when = _first(self.minutes, minute + 1)
            if when is not None:
                return _second_of_day(hour, when, self.seconds[0])
            at += 1
        if at == len(self.hours):
            return None
        return _second_of_day(self.hours[at], self.minutes[0], self.seconds[0])

    def next_day(self, ordinal: int) -> int | None:
        """The first matching day from this one on. Searches month by month, not day by day."""
        if ordinal > _LAST_DAY:
            return None
        start = date.fromordinal(max(ordinal, 1))
        first = start.day
        for year in range(start.year, LAST_YEAR + 1):
            for month in self.months:
                if year == start.year and month < start.month:
                    continue
                if (year, month) != (start.year, start.month):
                    first = 1
                day = self._next_day_of_month(year, month, first)
                if day is not None:
                    return date(year, month, day).toordinal()
        return None

    def _next_day_of_month(self, year: int, month: int, first: int) -> int | None:
        first_weekday, length = monthrange(year, month)  # Monday is 0
        days = self._days_of(length)

        def on_weekday(day: int) -> bool:
            weekday = (first_weekday + day) % 7
            return weekday in self.weekdays or self._is_nth(weekday, day, length)

        if self.either_day:
            matching = (d for d in range(first, length + 1) if d in days or on_weekday(d))
        else:
            matching = (d for d in days if first <= d <= length and on_weekday(d))
        return next(matching, None)

    def _is_nth(self, weekday: int, day: int, length: int) -> bool:
        return any(
            weekday == wanted and (day + 7 > length if nth == LAST_WEEK else (day + 6) // 7 == nth)
            for wanted, nth in self.nth_weekdays
        )

    def _days_of(self, length: int) -> Sequence[int]:
        if not self.last_day or length in self.days:
            return self.days
        return sorted((*self.days, length))


_LAST_DAY = date(LAST_YEAR, 12, 31).toordinal()


def _second_of_day(hour: int, minute: int, second: int) -> int:
    return hour * 3600 + minute * 60 + second


def _first(values: tuple[int, ...], least: int) -> int | None:
    at = bisect_left(values, least)
    return values[at] if at < len(values) else None


@lru_cache(maxsize=1024)
def parse_cron(text: str) -> Cron:
    """Raises ValueError with the field, the found text and the expected form."""
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"expected a crontab expression, found a long text: {_FORMS}")
    fields = text.split()
    if len(fields) == 1 and fields[0].startswith("@"):
        name = fields[0].lower()
        if name == REBOOT:
            return Cron(text=REBOOT, reboot=True)
        if name not in MACROS:
            raise ValueError(f'"{fields[0]}" is not a known shortcut: {_FORMS}')
        fields = MACROS[name].split()
    if len(fields) not in (5, 6):
        raise ValueError(f"expected 5 or 6 fields, found {len(fields)}: {_FORMS}")
    return _read(fields)


def _read(fields: list[str]) -> Cron:
    seconds = _values(_SECOND, fields[0]) if len(fields) == 6 else (0,)
    minute, hour, day, month, weekday = fields[-5:]
    last_day, days = _days(day)
    weekdays, nth_weekdays = _weekdays(weekday)
    cron = Cron(
        text=" ".join(fields),
        seconds=seconds,
        minutes=_values(_MINUTE, minute),
        hours=_values(_HOUR, hour),
        days=days,
        months=_values(_MONTH, month),
        weekdays=weekdays,
        nth_weekdays=nth_weekdays,
        last_day=last_day,
        either_day=not day.startswith("*") and not weekday.startswith("*"),
        wild=any(field.startswith("*") for field in fields[:-3]),
    )
    longest = max(_LONGEST_MONTH[each - 1] for each in cron.months)
    if not (cron.last_day or cron.either_day) and cron.days[0] > longest:
        raise ValueError(
            f'"{cron.text}" is never due: day of month is "{day}", and month "{month}" has at most {longest} days'
        )
    return cron


def _days(text: str) -> tuple[bool, tuple[int, ...]]:
    elements = text.split(",")
    others = [each for each in elements if each.upper() != "L"]
    if len(others) == len(elements):
        return False, _values(_DAY, text)
    return True, _values(_DAY, ",".join(others)) if others else ()


def _weekdays(text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The days that count in every week, and those that count in one week of a month."""
    weekly: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for element in text.split(","):
        found = _NTH_WEEKDAY.fullmatch(element)
        if found is None or (found[2] is None and found[1].lower() not in _WEEKDAY.names and not found[1].isdecimal()):
            weekly.update(value % 7 for value in _element(_WEEKDAY, element))
            continue
        day = _value(_WEEKDAY, found[1], element) % 7
        nth.add((day, LAST_WEEK if found[2] is None else _week(found[1], found[2], element)))
    return tuple(sorted(weekly)), tuple(sorted(nth))


def _week(day: str, number: str, element: str) -> int:
    if number.upper() == "L":
        raise _problem(_WEEKDAY, element, f"write {day}L for the last one of a month")
    if not _STEP.fullmatch(number) or not 1 <= int(number) <= _MOST_WEEKS:
        raise _problem(
            _WEEKDAY, element, f"write {day}#1 to {day}#{_MOST_WEEKS}, or {day}L for the last one of a month"
        )
    return int(number)


def _values(field: _Field, text: str) -> tuple[int, ...]:
    return tuple(sorted({value for each in text.split(",") for value in _element(field, each)}))


def _element(field: _Field, text: str) -> range:
    span, slash, step = text.partition("/")
    low, dash, high = span.partition("-")
    if span == "*":
        first, last = field.low, field.high
    elif dash:
        first, last = _value(field, low, text), _value(field, high, text)
        if high.lower() == "sun" and first > 0:
            last = 7
    else:
        first = last = _value(field, low, text)
    if slash and not dash and span != "*":
        raise _problem(field, text, f"a step needs a range: write {low}-{field.high}/{step}")
    if first > last:
        raise _problem(field, text, f"a range cannot go backwards: write {_forwards(field, low, high)}")
    if slash and (not _STEP.fullmatch(step) or int(step) == 0):
        raise _problem(field, text, "a step is a number from 1")
    return range(first, last + 1, int(step) if slash else 1)


def _forwards(field: _Field, low: str, high: str) -> str:
    """The range from `low` to `high` across the end of the field, as two ranges."""
    if field is _WEEKDAY:
        return f"{low}-7" if high == "0" else f"{low}-7,1-{high}"
    parts = [(low, str(field.high)), (str(field.low), high)]
    return ",".join(a if a == b else f"{a}-{b}" for a, b in parts)


def _value(field: _Field, text: str, element: str) -> int:
    if _STEP.fullmatch(text):
        value = int(text)
        if not field.low <= value <= field.high:
            raise _problem(field, element, f"expected {field.expected}")
        return value
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.low
    for sign, instead in _FOREIGN.items():
        if sign in text.upper() and (len(text) < 3 or not text.isalpha()):
            raise _problem(field, element, instead)
    if field is _WEEKDAY and text[:-1].lower() in field.names and text[-1] in "lL":
        raise _problem(field, element, _FOREIGN["L"])
    if text[:3].lower() in field.names and text.isalpha():
        raise _problem(field, element, f"names have three letters: write {text[:3].lower()}")
    raise _problem(field, element, f"expected {field.expected}, *, a range or a list of these")


def _problem(field: _Field, found: str, why: str) -> ValueError:
    return ValueError(f'{field.name}: found "{found}": {why}')
