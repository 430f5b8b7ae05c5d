"""Due times found the slow way: look at the clock tick by tick, as a cron daemon does.

Shares nothing with what is tested: it has its own reading of expressions, knows no transitions, and goes by what
the clock of the zone shows at each moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

NAMES = {
    name: str(number)
    for names, first in (
        ("jan feb mar apr may jun jul aug sep oct nov dec", 1),
        ("sun mon tue wed thu fri sat", 0),
    )
    for number, name in enumerate(names.split(), first)
}
WRITTEN_OUT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
DAY = timedelta(days=1)


class Expression:
    def __init__(self, text: str) -> None:
        fields = WRITTEN_OUT.get(text, text).lower().split()
        self.tick = timedelta(seconds=1 if len(fields) == 6 else 60)
        self.second, self.minute, self.hour, self.day, self.month, self.weekday = (
            fields if len(fields) == 6 else ["0", *fields]
        )
        self.follows_the_clock = any(field[0] == "*" for field in fields[:-3])
        self.known: dict[date, bool] = {}

    def on(self, day: date) -> bool:
        if day not in self.known:
            self.known[day] = self.matches(day)
        return self.known[day]

    def matches(self, day: date) -> bool:
        weekday = day.isoweekday()
        by_day = holds(self.day, day.day, 1) or ("l" in self.day.split(",") and (day + DAY).month != day.month)
        # A Sunday has two numbers.
        by_weekday = holds(self.weekday, weekday, 0) or (weekday == 7 and holds(self.weekday, 0, 0))
        by_weekday |= any(is_nth(element, day) for element in self.weekday.split(","))
        if not holds(self.month, day.month, 1):
            return False
        if self.day[0] == "*" or self.weekday[0] == "*":
            return by_day and by_weekday
        return by_day or by_weekday

    def at(self, wall: datetime) -> bool:
        return (
            self.on(wall.date())
            and holds(self.hour, wall.hour, 0)
            and holds(self.minute, wall.minute, 0)
            and holds(self.second, wall.second, 0)
        )


def is_nth(element: str, day: date) -> bool:
    """fri#2: the second Friday. friL: no Friday follows in its month."""
    name, sign, number = element.partition("#")
    if not sign and element[-1] == "l":
        name = element[:-1]
    elif not sign:
        return False
    if int(NAMES.get(name, name)) % 7 != day.isoweekday() % 7:
        return False
    if not sign:
        return (day + 7 * DAY).month != day.month
    return (day - 7 * (int(number) - 1) * DAY).month == day.month != (day - 7 * int(number) * DAY).month


def holds(field: str, value: int, lowest: int) -> bool:
    return any(element_holds(element, value, lowest) for element in field.split(","))


def element_holds(element: str, value: int, lowest: int) -> bool:
    span, _, step = element.partition("/")
    first, _, last = span.partition("-")
    if last == "sun" and first not in ("sun", "0"):
        last = "7"
    first, last = NAMES.get(first, first), NAMES.get(last, last)
    if first[-1] == "l" or "#" in first:
        return False
    if first == "*":
        return (value - lowest) % int(step or 1) == 0
    if not last:
        return value == int(first)
    return int(first) <= value <= int(last) and (value - int(first)) % int(step or 1) == 0


def walk(
    text: str,
    zone: ZoneInfo,
    after: datetime,
    until: datetime,
    *,
    gap: str = "shift",
    fold: str = "once",
) -> Iterator[tuple[datetime, str]]:
    """(when in UTC, change) of each time in (after, until] at which the expression is due."""
    expression = Expression(text)
    tick = expression.tick
    now = after.astimezone(UTC).replace(second=0, microsecond=0)
    today, near = date.min, False
    while now <= until:
        now += tick
        local = now.astimezone(zone)
        if local.date() != today:
            today = local.date()
            near = any(expression.on(today + days * DAY) for days in (-2, -1, 0, 1, 2))
        if not near:
            now += DAY
            continue
        if not after < now <= until:
            continue
        wall = local.replace(tzinfo=None)
        if expression.follows_the_clock:
            if expression.at(wall):
                yield now, "repeated" if local.fold else ""
        elif expression.at(wall):
            if not local.fold:
                yield now, ""
            elif fold == "both":
                yield now, "repeated"
        elif gap == "shift" and any(expression.at(passed) for passed in passed_over(now, tick, zone)):
            yield now, "shifted"


def passed_over(now: datetime, tick: timedelta, zone: ZoneInfo) -> Iterator[datetime]:
    """The times that the clock jumped over since the last tick."""
    wall = now.astimezone(zone).replace(tzinfo=None)
    passed = (now - tick).astimezone(zone).replace(tzinfo=None) + tick
    while passed < wall:
        yield passed
        passed += tick
