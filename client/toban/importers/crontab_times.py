"""Computes the due times of cron: parses the five fields independently, without Toban's extensions."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

from toban.importers.import_model import ImportProblem, Times
from toban.importers.local_times import first_times

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every_minute": "* * * * *",
}
REBOOT = "@reboot"

_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of month", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("day of week", 0, 7, "sun mon tue wed thu fri sat"),
)
_ELEMENT = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[0-9]{1,9}))?", re.ASCII)


def cron_times(expression: str, zone: ZoneInfo) -> Times:
    """The due times of five fields; raises ImportProblem for syntax that crontab(5) lacks."""
    texts = expression.split()
    sets = [_field(text, *field) for text, field in zip(texts, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = sets
    weekdays = {day % 7 for day in weekdays}
    either = not texts[2].startswith("*") and not texts[4].startswith("*")
    follows = texts[0].startswith("*") or texts[1].startswith("*")

    def on(day: date) -> bool:
        of_month, of_week = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (of_month or of_week if either else of_month and of_week)

    times = [time(hour, minute) for hour in sorted(hours) for minute in sorted(minutes)]

    def first(after: datetime, count: int) -> list[datetime]:
        return first_times(after, count, zone=zone, on=on, times=times, shifts=not follows, repeats=follows)

    return first


def _field(text: str, name: str, low: int, high: int, names: str) -> set[int]:
    found: set[int] = set()
    for element in text.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is None:
            raise ImportProblem(f'{name}: crontab(5) has no "{element}"')
        first, last = low, high
        if match["low"]:
            first = last = _value(match["low"], name, low, high, names)
        if match["high"]:
            last = _value(match["high"], name, low, high, names)
            if match["high"].lower() == "sun" and first:
                last = 7
        step = int(match["step"] or 1)
        if step == 0 or (match["step"] and match["low"] and not match["high"]):
            raise ImportProblem(f'{name}: "{element}": a step needs a range and is at least 1')
        if first > last:
            raise ImportProblem(f'{name}: "{element}": a range cannot go backwards')
        found.update(range(first, last + 1, step))
    return found


def _value(text: str, name: str, low: int, high: int, names: str) -> int:
    # `int` refuses thousands of digits with its own error.
    if len(text) < 10 and text.isdecimal() and low <= int(text) <= high:
        return int(text)
    known = names.split()
    if text.lower() in known:
        return known.index(text.lower()) + low
    raise ImportProblem(f'{name}: "{text}" is not a value from {low} to {high}')
