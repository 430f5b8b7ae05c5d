"""Blackout windows, in which schedules do not fire: a crontab expression for the start, `/`, and a duration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from toban.definition.scalars.durations import parse_duration
from toban.definition.timing.cron import DAY_SECONDS, Cron, parse_cron
from toban.definition.timing.due import occurrences
from toban.definition.timing.schedule_spec import Due, Schedule

_FORMS = 'write a crontab expression, "/" and a duration with its unit, such as "0 2 * * sun/2h"'
# Consecutive windows are not followed further than this: each takes a moment to find.
_MOST_JOINED = 100
# The same for windows that alternate: each step checks all of them.
_MOST_TURNS = 20
Windows = tuple[tuple[str, ZoneInfo], ...]
"""The texts of windows, each with the zone of its start."""
# Days, from some first of January on, after which windows that never ended count as endless.
_FIRST_DAY = date(2024, 1, 1).toordinal()
_DAYS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """A window of `seconds` from each due time of `schedule`, in absolute time.

    A start in a gap of local time is at the end of the gap; a start that comes twice is the first.
    """

    text: str
    schedule: Schedule
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Windows that touch or overlap: up to `end`, in UTC, or endless if that is None.

    `longer`: more windows follow at its end than were followed.
    """

    end: datetime | None
    longer: bool = False


@lru_cache(maxsize=256)
def parse_blackout(text: str) -> Blackout:
    """Raises ValueError with the found text and the expected form."""
    # The last slash: a crontab expression may have its own.
    expression, _, length = text.strip().rpartition("/")
    if not expression or not length[-1:].isalpha():
        raise ValueError(f'expected a blackout window, found "{text}": {_FORMS}')
    cron = parse_cron(expression)
    if cron.reboot:
        raise ValueError(f'a blackout window cannot begin at "{expression}": {_FORMS}')
    seconds = parse_duration(length.strip())
    if seconds <= 0:
        raise ValueError(f'a blackout window must be longer than zero, found "{length}": {_FORMS}')
    return Blackout(text=text.strip(), schedule=Schedule(cron=cron.text), seconds=seconds)


def stretch_at(blackout: Blackout, zone: ZoneInfo, at: datetime) -> Stretch | None:
    """The windows that cover `at`, with those that follow directly; None if none does.

    A window includes its start, but not its end. Raises ValueError if `at` is naive.
    """
    begin = _begin(blackout, zone, at)
    return None if begin is None else _stretch(blackout.text, zone, begin)


def joined_at(windows: Windows, at: datetime) -> Stretch | None:
    """The same for all these windows together: one may follow at the end of another."""
    found = _longest(windows, at)
    if found is None or found.end is None or len(windows) == 1:
        return found
    return _joined(windows, found)


def never_ends(blackout: Blackout) -> bool:
    """Whether each window lasts until the next starts, on a clock without changes."""
    return _never_ends(blackout.text)


def _begin(blackout: Blackout, zone: ZoneInfo, at: datetime) -> datetime | None:
    """Of the first window that covers `at`."""
    if at.tzinfo is None:
        raise ValueError(f"cannot look for a blackout window: {at} has no time zone")
    earliest = at.astimezone(UTC) - timedelta(seconds=blackout.seconds)
    found = next(_begins(blackout, zone, earliest), None)
    return found.at if found is not None and found.at <= at else None


def _begins(blackout: Blackout, zone: ZoneInfo, after: datetime) -> Iterator[Due]:
    return occurrences(blackout.schedule, zone=zone, after=after, stored_at=after)


def _longest(windows: Windows, at: datetime) -> Stretch | None:
    found = [stretch for text, zone in windows if (stretch := stretch_at(parse_blackout(text), zone, at)) is not None]
    return next(
        (each for each in found if each.end is None),
        max(found, key=lambda each: (each.end or at, each.longer), default=None),
    )


# Times in the same window share its end.
@lru_cache(maxsize=1024)
def _joined(windows: Windows, stretch: Stretch) -> Stretch:
    for _ in range(_MOST_TURNS):
        if stretch.end is None or stretch.longer:
            return stretch
        following = _longest(windows, stretch.end)
        if following is None:
            return stretch
        stretch = following
    return replace(stretch, longer=stretch.end is not None)


# Times in the same window share its start.
@lru_cache(maxsize=1024)
def _stretch(text: str, zone: ZoneInfo, begin: datetime) -> Stretch:
    if _never_ends(text):
        return Stretch(end=None)
    blackout = parse_blackout(text)
    length = timedelta(seconds=blackout.seconds)
    end = begin + length
    for following in islice(_begins(blackout, zone, begin), _MOST_JOINED):
        if following.at > end:
            return Stretch(end=end)
        end = following.at + length
    return Stretch(end=end, longer=True)


@lru_cache(maxsize=256)
def _never_ends(text: str) -> bool:
    blackout = parse_blackout(text)
    cron = parse_cron(blackout.schedule.cron)
    times = _times_of_day(cron)
    if any(later - earlier > blackout.seconds for earlier, later in pairwise(times)):
        return False
    day = _FIRST_DAY
    while day < _FIRST_DAY + _DAYS:
        begin = cron.next_local(day * DAY_SECONDS)
        if begin is None:
            return False
        last = begin // DAY_SECONDS * DAY_SECONDS + times[-1]
        following = cron.next_local(last + 1)
        if following is None or following - last > blackout.seconds:
            return False
        day = following // DAY_SECONDS
    return True


def _times_of_day(cron: Cron) -> list[int]:
    """In seconds; the same on each of its days."""
    return [
        hour * 3600 + minute * 60 + second for hour in cron.hours for minute in cron.minutes for second in cron.seconds
    ]
