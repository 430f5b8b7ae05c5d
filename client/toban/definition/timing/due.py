"""Computes the due times of a schedule, in absolute time.

`clock_changes` decides about local times that a clock change skips or repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo

from toban.definition.timing.business_days import BusinessCron, load_calendar
from toban.definition.timing.clock_changes import crontab_dues
from toban.definition.timing.cron import Cron, parse_cron
from toban.definition.timing.schedule_spec import Due, Schedule
from toban.definition.timing.schedule_text import describe

__all__ = ["describe", "jitter_of", "next_due", "occurrences"]

_MICROSECOND = timedelta(microseconds=1)


def occurrences(schedule: Schedule, *, zone: ZoneInfo, after: datetime, stored_at: datetime) -> Iterator[Due]:
    """The due times of the schedule strictly after `after`: ascending, each once, endless if it has no end.

    `zone` is the zone of its crontab expression: `schedule.timezone`, or the daemon's. `every` counts from
    `schedule.start`, which is due itself, or from `stored_at`, which is not. `max_occurrences` and `jitter` are left to
    the caller, and so is `@reboot`, which has no known due time. Raises ValueError if a time is naive, the schedule has
    no rule, or its calendar cannot be loaded.
    """
    for moment in (after, stored_at, schedule.start, schedule.end, schedule.at):
        if moment is not None and moment.tzinfo is None:
            raise ValueError(f"cannot compute due times: {moment} has no time zone")
    return _until(schedule.end, _since(schedule, zone, after, stored_at))


def next_due(schedule: Schedule, *, zone: ZoneInfo, after: datetime, stored_at: datetime) -> Due | None:
    """The first of `occurrences`; None if there is none."""
    return next(occurrences(schedule, zone=zone, after=after, stored_at=stored_at), None)


def jitter_of(schedule_id: str, schedule: Schedule) -> float:
    """The delay of its runs in seconds: in [0, jitter), always the same.

    All schedules of one workflow, whose ids begin with its name and `/`, are delayed by the same share of their jitter:
    a time at which several of them are due stays one time.
    """
    seed = schedule_id.partition("/")[0]
    share = int.from_bytes(sha256(seed.encode()).digest()[:4])
    return schedule.jitter * (share / 2**32)


def _since(schedule: Schedule, zone: ZoneInfo, after: datetime, stored_at: datetime) -> Iterator[Due]:
    start = None if schedule.start is None else schedule.start.astimezone(UTC)
    after = after.astimezone(UTC)
    if start is not None and after < start:
        after = start - _MICROSECOND  # `start` is inclusive
    if schedule.at is not None:
        at = schedule.at.astimezone(UTC)
        return iter([Due(at=at)] if at > after else [])
    if schedule.every is not None:
        step = timedelta(seconds=schedule.every)
        if step < _MICROSECOND:
            raise ValueError("cannot compute due times: the interval must be greater than zero")
        return _intervals(step, stored_at.astimezone(UTC) + step if start is None else start, after)
    parsed = parse_cron(schedule.cron)
    cron: Cron | BusinessCron = parsed
    if schedule.business_day != "" and not parsed.reboot:
        cron = BusinessCron(parsed, load_calendar(schedule.calendar), schedule.business_day)
    return crontab_dues(cron, schedule, zone, after)


def _until(end: datetime | None, dues: Iterator[Due]) -> Iterator[Due]:
    for due in dues:
        if end is not None and due.at > end:
            return
        yield due


def _intervals(step: timedelta, first: datetime, after: datetime) -> Iterator[Due]:
    # Counted in whole steps from the first, so that errors do not accumulate.
    count = max(0, (after - first) // step + 1)
    try:
        while True:
            yield Due(at=first + count * step)
            count += 1
    except OverflowError:
        return
