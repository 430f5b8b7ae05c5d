"""Times until which a step waits: a date with a time, or a time of day, whose next occurrence is meant."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from toban.definition.scalars.values import describe
from toban.definition.timing.cron import LAST_YEAR

_FIRST_YEAR = 1970
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_FORMS = "write a time of day such as 09:30, or a time such as 2026-12-01T09:30 or 2026-12-01T09:30:00+09:00"


def parse_wait_time(text: str) -> datetime | time:
    """A time without an offset has no time zone here: it is local. Raises ValueError with the expected forms."""
    given = text.strip()
    if _TIME_OF_DAY.fullmatch(given):
        return time(*map(int, given.split(":")))  # type: ignore[arg-type]
    if not _MOMENT.fullmatch(given):
        raise ValueError(f"expected a time, found {describe(text)}: {_FORMS}")
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError(f"{describe(text)} is not a valid time: {_FORMS}") from None
    # The first and the last days would leave the calendar in other time zones.
    if not _FIRST_YEAR < moment.year <= LAST_YEAR:
        raise ValueError(f"expected a time from {_FIRST_YEAR + 1} to {LAST_YEAR}, found {describe(text)}")
    return moment


def wait_end(text: str, zone: str, since: datetime) -> datetime:
    """When a wait that began at `since` ends; local times are in `zone`.

    A local time that a clock change skips is moved by the change, and of one that occurs twice the first counts.
    Raises ValueError, also for an unknown time zone.
    """
    given = parse_wait_time(text)
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given.astimezone(UTC)
    try:
        local = ZoneInfo(zone)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f'cannot read the time zone "{zone}": {error}') from error
    if isinstance(given, datetime):
        return given.replace(tzinfo=local).astimezone(UTC)
    day = since.astimezone(local).date()
    while True:
        found = datetime.combine(day, given, local).astimezone(UTC)
        if found > since:
            return found
        day += timedelta(days=1)
