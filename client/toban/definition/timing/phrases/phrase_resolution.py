"""Resolves the meaning of a phrase to a time or a rule, given the current time."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, time, timedelta
from typing import assert_never
from zoneinfo import ZoneInfo

from toban.definition.timing.business_days import BusinessCalendar
from toban.definition.timing.cron import LAST_WEEK, LAST_YEAR
from toban.definition.timing.phrases.phrase_parts import (
    DEFAULT_CLOCK,
    WORKING_DAYS,
    ClockTime,
    Elapsed,
    Hourly,
    Instant,
    Interval,
    Meaning,
    NextBusinessDay,
    OnDay,
    Repeat,
    Unclear,
    UpcomingDay,
)

NO_CALENDAR = (
    "no calendar says which days are business days: add a calendar, such as jp, to the schedule or the workflow, "
    "or set calendar in the daemon's configuration"
)
# The leap days around 2100 are eight years apart.
_MONTHS_TO_SEARCH = 12 * 8 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Exactly one of the three, as in a `Schedule`."""

    at: datetime | None = None
    cron: str = ""
    every: float | None = None


def resolve(meaning: Meaning, *, now: datetime, zone: ZoneInfo, calendar: BusinessCalendar | None) -> When:
    """`calendar` says which days are business days; None: unknown.

    Raises Unclear for times that have passed or that the clocks pass over, OverflowError beyond the calendar.
    """
    match meaning:
        case Interval(seconds=seconds):
            return When(every=float(seconds))
        case Hourly(minute=minute):
            return When(cron=f"{minute} * * * *")
        case Repeat():
            return When(cron=cron_of(meaning))
        case NextBusinessDay(clock=clock):
            return When(at=_on(_next_business_day(calendar, now.astimezone(zone).date()), _time_of(clock), now, zone))
        case Instant() | OnDay() | Elapsed() | UpcomingDay():
            at = _moment(meaning, now, zone)
            if at.year > LAST_YEAR:
                raise OverflowError("beyond the calendar")
            return When(at=at)
        case _:
            assert_never(meaning)


def _next_business_day(calendar: BusinessCalendar | None, today: date) -> date:
    if calendar is None:
        raise Unclear(NO_CALENDAR)
    found = calendar.next(today + timedelta(days=1))
    if found is None:
        raise OverflowError("no business day in a year")
    return found


def _moment(meaning: Instant | OnDay | Elapsed | UpcomingDay, now: datetime, zone: ZoneInfo) -> datetime:
    local = now.astimezone(zone)
    match meaning:
        case Instant(at=at):
            return _still_to_come(at.astimezone(UTC), now, zone)
        case OnDay(day=day, clock=clock):
            return _on(day, _time_of(clock), now, zone)
        case Elapsed():
            return _elapsed(meaning, local, now, zone)
        case UpcomingDay():
            return _upcoming(meaning, local.date(), now, zone)
        case _:
            assert_never(meaning)


def cron_of(repeat: Repeat) -> str:
    """As crontab(5), with the extensions of `cron` for the last day and the n-th weekday of a month."""
    clock = repeat.clock or DEFAULT_CLOCK
    days = [str(day) for day in sorted(repeat.days)] + (["L"] if repeat.last_day else [])
    if repeat.weeks:
        weekdays = ",".join(
            f"{(day + 1) % 7}L" if week == LAST_WEEK else f"{(day + 1) % 7}#{week}"
            for week in in_order(repeat.weeks)
            for day in sorted(repeat.weekdays)
        )
    elif repeat.weekdays == WORKING_DAYS:
        weekdays = "1-5"
    else:
        # crontab(5) counts from Sunday.
        weekdays = ",".join(str(n) for n in sorted((day + 1) % 7 for day in repeat.weekdays))
    return f"{clock.minute} {clock.hour} {','.join(days) or '*'} {repeat.month or '*'} {weekdays or '*'}"


def in_order(weeks: frozenset[int]) -> list[int]:
    """The last one of a month comes last."""
    return sorted(weeks, key=lambda week: (week == LAST_WEEK, week))


def months_after(day: date, months: int) -> date:
    """The same day of a later month, or its last day if it is shorter. Raises OverflowError beyond the calendar."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if year > MAXYEAR:
        raise OverflowError("beyond the calendar")
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _elapsed(elapsed: Elapsed, local: datetime, now: datetime, zone: ZoneInfo) -> datetime:
    day = months_after(local.date(), elapsed.months) + timedelta(days=elapsed.days)
    if not (elapsed.months or elapsed.days):
        at = now.astimezone(UTC)
    elif elapsed.seconds:
        # Only the result must be a time that exists on the clock.
        at, _ = _place(day, local.time(), now, zone)
    else:
        at = _on(day, elapsed.clock or local.time(), now, zone)
    at += timedelta(seconds=elapsed.seconds)
    # Words are exact to a second; rounding up keeps the time from being early.
    return at.replace(microsecond=0) + timedelta(seconds=1 if at.microsecond else 0)


def _upcoming(wanted: UpcomingDay, today: date, now: datetime, zone: ZoneInfo) -> datetime:
    clock = _time_of(wanted.clock)
    for day in _candidates(wanted, today):
        at, exists = _place(day, clock, now, zone)
        if at > now:
            if not exists:
                raise _passed_over(day, clock, zone)
            return at
    raise OverflowError("beyond the calendar")


def _candidates(wanted: UpcomingDay, today: date) -> Iterator[date]:
    if wanted.any_day:
        yield today
        yield today + timedelta(days=1)
        return
    for months in range(_MONTHS_TO_SEARCH + 1):
        first = months_after(today.replace(day=1), months)
        length = monthrange(first.year, first.month)[1]
        day = length if wanted.day is None else wanted.day
        if wanted.month in (None, first.month) and day <= length:
            yield first.replace(day=day)


def _on(day: date, clock: ClockTime | time, now: datetime, zone: ZoneInfo) -> datetime:
    at, exists = _place(day, clock, now, zone)
    _still_to_come(at, now, zone)
    if not exists:
        raise _passed_over(day, clock, zone)
    return at


def _place(day: date, clock: ClockTime | time, now: datetime, zone: ZoneInfo) -> tuple[datetime, bool]:
    """The moment in UTC, and whether the clocks ever show it. Of two with the same local time, the first."""
    if isinstance(clock, ClockTime):
        day += timedelta(days=clock.hour // 24)
        clock = time(clock.hour % 24, clock.minute, clock.second)
    local = datetime.combine(day, clock.replace(fold=0), zone)
    at = local.astimezone(UTC)
    exists = at.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
    if exists and at <= now:
        at = local.replace(fold=1).astimezone(UTC)
    return at, exists


def _still_to_come(at: datetime, now: datetime, zone: ZoneInfo) -> datetime:
    if at <= now:
        then, present = at.astimezone(zone), now.astimezone(zone)
        alike = then.replace(second=0, microsecond=0) == present.replace(second=0, microsecond=0)
        form = "seconds" if alike and (then.second or present.second) else "minutes"
        # The clocks were set back in between.
        offset = then.replace(tzinfo=None) > present.replace(tzinfo=None)
        raise Unclear(
            f"{_shown(then, form, offset=offset)} has passed:"
            f" it is {_shown(present, form, offset=offset)} in {zone.key}"
        )
    return at


def _shown(local: datetime, form: str, *, offset: bool) -> str:
    text = local.replace(tzinfo=None).isoformat(" ", form)
    return f"{text} (UTC{local.isoformat()[-6:]})" if offset else text


def _time_of(clock: ClockTime | None) -> ClockTime:
    return clock or DEFAULT_CLOCK


def _passed_over(day: date, clock: ClockTime | time, zone: ZoneInfo) -> Unclear:
    shown = clock if isinstance(clock, ClockTime) else f"{clock:%H:%M}"
    return Unclear(f"there is no {shown} on {day} in {zone.key}: the clocks skip it")
