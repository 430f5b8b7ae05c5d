"""The due times of a schedule that are not decided yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile, islice, takewhile
from zoneinfo import ZoneInfo

from toban.definition.timing.cron import REBOOT
from toban.definition.timing.due import jitter_of, occurrences
from toban.definition.timing.schedule_spec import ClockChange, Due
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.errors import ZoneGoneError

MOST_COUNTED = 10_000
"""Limit on the due times counted to find the end of `max_occurrences`; a larger limit is not searched for."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A due time of a workflow; `at` is when its run starts, with the jitter. `scope` is that of its run."""

    due: datetime
    at: datetime
    zone: str
    index: int
    change: ClockChange
    blackout: str
    scope: str = ""


def upcoming(entry: ScheduleEntry, after: datetime) -> Iterator[Upcoming]:
    """Its due times after `after`, in order, regardless of blackouts. Raises ZoneGoneError."""
    jitter = jitter_by(entry)
    return (
        Upcoming(
            due=due.at,
            at=due.at + jitter,
            zone=entry.zone,
            index=entry.index,
            change=due.change,
            blackout="",
            scope=entry.spec.scope,
        )
        for due in _dues(entry, after)
    )


def latest(entry: ScheduleEntry, before: datetime) -> datetime | None:
    """The last of its due times before `before`; None if there is none. Raises ZoneGoneError."""
    if entry.next_due is None or entry.next_due >= before:
        return None
    if _left(entry) is not None:
        sooner = takewhile(lambda due: due.at < before, _dues(entry, entry.next_due))
        return next((due.at for due in deque(sooner, maxlen=1)), entry.next_due)
    low, high = entry.next_due, before
    while high - low > _MICROSECOND:
        middle = low + (high - low) / 2
        found = next(_dues(entry, middle), None)
        if found is not None and found.at < before:
            low = found.at
        else:
            high = middle
    return low


def jitter_by(entry: ScheduleEntry) -> timedelta:
    """The jitter that delays its runs."""
    return timedelta(seconds=jitter_of(entry.id, entry.spec))


def due_at_boot(entry: ScheduleEntry, now: datetime) -> bool:
    """Whether it is due at the next boot of the machine."""
    spec = entry.spec
    return (
        spec.cron == REBOOT
        and (spec.max_occurrences is None or entry.occurrences < spec.max_occurrences)
        and (spec.end is None or now <= spec.end)
    )


def zone_of(entry: ScheduleEntry) -> ZoneInfo:
    """Raises ZoneGoneError."""
    try:
        return ZoneInfo(entry.zone)
    except (KeyError, OSError, ValueError):
        raise ZoneGoneError(entry.id, entry.zone) from None


def _dues(entry: ScheduleEntry, after: datetime) -> Iterator[Due]:
    """The due times after `after`, starting with `next_due`, while it may still be due."""
    if entry.next_due is None:
        return iter(())
    first = entry.next_due - _MICROSECOND
    left = _left(entry)
    times = occurrences(
        entry.spec,
        zone=zone_of(entry),
        after=first if left is not None else max(after, first),
        stored_at=entry.stored_at,
    )
    if left is None:
        return times
    return dropwhile(lambda due: due.at <= after, islice(times, left))


def _left(entry: ScheduleEntry) -> int | None:
    """How often it may still be due; None: too often to count."""
    if entry.spec.max_occurrences is None:
        return None
    left = max(0, entry.spec.max_occurrences - entry.occurrences)
    return left if left <= MOST_COUNTED else None
