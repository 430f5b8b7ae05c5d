"""ISO 8601 times within a phrase: at 2026-12-24T18:00:00+09:00, 2026-12-24 18:00:30に."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, timezone

from toban.definition.timing.phrases.phrase_parts import (
    Heard,
    Instant,
    Meaning,
    OnDay,
    Unclear,
    calendar_day,
    meaning,
)

_FORM = re.compile(
    r"(?:(?:at|on) )?"
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})[t ]"
    r"(?P<time>(?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?)"
    r" ?(?P<offset>z|utc|(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2}))?"
    r" ?に? ?(?:です)?[ 。]*",
    re.ASCII,
)


def read(phrase: str) -> Meaning | None:
    """A date and a time with an offset or in local time; None if the phrase has another form.

    Raises Unclear if there is no such time, OverflowError if it is beyond the calendar.
    """
    found = _FORM.fullmatch(phrase)
    if found is None:
        return None
    day = calendar_day(int(found["year"]), int(found["month"]), int(found["day"]))
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    local = meaning(Heard(day=OnDay(day=day), hour=hour, minute=minute, second=second))
    if found["offset"] is None:
        return local
    # 24:00 ends the day.
    midnight = datetime.combine(day, time(), _zone(found))
    return Instant(at=midnight + timedelta(hours=hour, minutes=minute, seconds=second))


def _zone(found: re.Match[str]) -> timezone:
    """Raises Unclear for an offset that no clock has."""
    if found["sign"] is None:
        return UTC
    hours, minutes = int(found["hours"]), int(found["minutes"])
    if hours > 23 or minutes > 59:
        raise Unclear(f'"{found["time"]}{found["offset"]}" is not a time with an offset from UTC')
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if found["sign"] == "+" else -offset)
