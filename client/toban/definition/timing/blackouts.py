"""Times in which schedules do not fire: a crontab expression for the beginning, `/`, and how long it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from toban.definition.durations import parse_duration
from toban.definition.timing.cron import parse_cron
from toban.definition.timing.due import occurrences
from toban.definition.timing.model import Due, Schedule

_FORMS = 'write a crontab expression, "/" and a duration with its unit, such as "0 2 * * sun/2h"'
# Windows that run into each other for longer than this many are taken to go on for ever.
_MOST_JOINED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """A window of `seconds` from each time at which `schedule` is due, on an absolute clock.

    A beginning that falls into a gap of local time is at the end of the gap; one that comes twice is the first.
    """

    text: str
    schedule: Schedule
    seconds: float


def parse_blackout(text: str) -> Blackout:
    """Raises ValueError that says what was found and what to write."""
    # The last one: a crontab expression has its own.
    expression, _, length = text.strip().rpartition("/")
    if not expression or not length[-1:].isalpha():
        raise ValueError(f'expected a blackout window, found "{text}": {_FORMS}')
    cron = parse_cron(expression)
    if cron.reboot:
        raise ValueError(f'a blackout window cannot begin at "{expression}": {_FORMS}')
    seconds = parse_duration(length.strip())
    if seconds <= 0:
        raise ValueError(f'a blackout window must last, found "{length}": {_FORMS}')
    return Blackout(text=text.strip(), schedule=Schedule(cron=cron.text), seconds=seconds)


def covers(blackout: Blackout, zone: ZoneInfo, at: datetime) -> bool:
    """Whether `at` lies in a window: the moment it begins does, the moment it ends does not.

    Raises ValueError if `at` is naive.
    """
    return any(begin.at <= at for begin in islice(_begins(blackout, zone, at), 1))


def ends_at(blackout: Blackout, zone: ZoneInfo, at: datetime) -> datetime | None:
    """The first moment from `at` on that no window covers, in UTC: `at` itself if none does. None: no end is in sight.

    Windows that touch or overlap are one. Raises ValueError if `at` is naive.
    """
    end = at.astimezone(UTC)
    for begin in islice(_begins(blackout, zone, at), _MOST_JOINED):
        if begin.at > end:
            return end
        end = begin.at + timedelta(seconds=blackout.seconds)
    return None


def _begins(blackout: Blackout, zone: ZoneInfo, at: datetime) -> Iterator[Due]:
    """Of the windows that end after `at`."""
    if at.tzinfo is None:
        raise ValueError(f"cannot look for a blackout window: {at} has no time zone")
    earliest = at.astimezone(UTC) - timedelta(seconds=blackout.seconds)
    return occurrences(blackout.schedule, zone=zone, after=earliest, stored_at=earliest)
