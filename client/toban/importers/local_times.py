"""Converts local times to instants, one day at a time.

Deliberately simple, and independent of `toban.definition.timing`: the results of the two are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

_MOST_DAYS = 120 * 366
_DAY = timedelta(days=1)


def first_times(
    after: datetime,
    count: int,
    *,
    zone: ZoneInfo,
    on: Callable[[date], bool],
    times: list[time],
    shifts: bool,
    repeats: bool,
) -> list[datetime]:
    """The first instants strictly after `after`, in UTC; fewer if there are fewer in the next 120 years.

    `on` selects days, `times` has the times of a day. `shifts`: a time that a clock change skips is due right after the
    gap, else never. `repeats`: a repeated time is due twice, else the first time.
    """
    found = (
        instant
        for day in _days(after.astimezone(zone).date() - _DAY)
        if on(day)
        for instant in sorted({i for t in times for i in _instants(day, t, zone, shifts, repeats)})
        if instant > after
    )
    return list(islice(found, count))


def _days(day: date) -> Iterator[date]:
    for _ in range(_MOST_DAYS):
        yield day
        if day >= date(9990, 1, 1):
            return
        day += _DAY


def _instants(day: date, at: time, zone: ZoneInfo, shifts: bool, repeats: bool) -> list[datetime]:
    local = datetime.combine(day, at)
    first = local.replace(tzinfo=zone).astimezone(UTC)
    second = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first == second:
        return [first]
    if first < second:  # shown twice
        return [first, second] if repeats else [first]
    return [_end_of_gap(second, first, zone)] if shifts else []


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second with the offset of `after`; that of `before` differs."""
    offset = after.astimezone(zone).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return datetime.fromtimestamp(high, UTC)
