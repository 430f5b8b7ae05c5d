"""Preview of a schedule: its next five due times, in its time zone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from google.protobuf.timestamp_pb2 import Timestamp

    from toban.definition.timing.schedule_spec import Schedule
    from toban.sdk import SyncClient
    from toban.v1 import schedule_pb2

_MOST: Final = 5
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998
_OF_DAY: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT: Final = re.compile(
    rf"{_DAY.pattern}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRule:
    """The rule of a schedule: exactly one field is set."""

    words: str = ""
    cron: str = ""
    every: float | None = None
    at: datetime | None = None


def preview(
    client: SyncClient, rule: ScheduleRule, timezone: str, most: int | None
) -> schedule_pb2.InterpretTimeResponse:
    """The next due times of a rule, at most `most`. The daemon reads words; other rules are read here.

    Raises TobanError, and ValueError for an invalid rule.
    """
    found = client.interpret_time(rule.words, timezone) if rule.words else _of_rule(client, rule, timezone)
    if most is not None:
        del found.due_times[most:]
    return found


def _of_rule(client: SyncClient, rule: ScheduleRule, timezone: str) -> schedule_pb2.InterpretTimeResponse:
    from toban.definition.timing.schedule_spec import Schedule
    from toban.definition.timing.schedule_text import describe_in, why_never
    from toban.definition.timing.zones import check_zone
    from toban.v1 import schedule_pb2

    _check(rule)
    zone = check_zone(timezone or _daemon_zone(client))
    schedule = Schedule(cron=rule.cron, every=rule.every, at=rule.at, timezone=zone)
    answer = schedule_pb2.InterpretTimeResponse(
        understood=describe_in(schedule, zone), recurring=rule.at is None, timezone=zone
    )
    now = datetime.now(UTC)
    for due in islice(_occurrences(schedule, zone, now), _MOST):
        answer.due_times.add().FromDatetime(due)
    if not answer.due_times:
        raise ValueError(f"{answer.understood}: {why_never(schedule, zone, now)}")
    return answer


def _check(rule: ScheduleRule) -> None:
    """Raises ValueError for rules that the daemon would refuse."""
    from toban.definition.timing.cron import REBOOT, parse_cron

    if rule.cron and parse_cron(rule.cron).reboot:
        raise ValueError(f"{REBOOT} is only for workflows: give a time")
    if rule.every is not None and rule.every < 1:
        raise ValueError("must be at least one second")


def local(at: Timestamp, timezone: str) -> str:
    """Day, date and time in the zone; in UTC if this machine does not know the zone."""
    here = at.ToDatetime(tzinfo=UTC)
    with suppress(OverflowError):
        here = here.astimezone(_zone(timezone) or UTC)
    return f"{_DAYS[here.weekday()]} {here.isoformat(sep=' ', timespec='seconds')} {timezone}"


def read_at(text: str, timezone: str, now: datetime) -> datetime:
    """Parses a single time: with a zone, or in `timezone`, or else in local time; `18:00` is today.

    An ambiguous time means the first one. Raises ValueError, also for a time that a clock change skips.
    """
    if _DAY.fullmatch(text):
        raise ValueError(f"a date needs a time: write {text}T09:00, or use words")
    try:
        found = _written(text, timezone, now)
    except ValueError:
        raise ValueError(
            f"expected a time such as 2026-02-01T09:00:00+09:00, or 18:00 for today, not {text!r}; "
            "for other times use words, such as 'in 2 hours'"
        ) from None
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise _beyond(text)
    if found.tzinfo is None:
        found = _on_clocks(found, timezone)
    if not _FIRST_YEAR <= found.astimezone(UTC).year <= _LAST_YEAR:
        raise _beyond(text)
    return found


def _written(text: str, timezone: str, now: datetime) -> datetime:
    if _OF_DAY.fullmatch(text):
        from datetime import time

        today = now.astimezone(_zone(timezone)).date()
        return datetime.combine(today, time.fromisoformat(f"0{text}" if text[1] == ":" else text))
    if _MOMENT.fullmatch(text):
        return datetime.fromisoformat(text)
    raise ValueError(text)


def _beyond(text: str) -> ValueError:
    return ValueError(f"expected a time from {_FIRST_YEAR} to {_LAST_YEAR}, not {text!r}")


def _on_clocks(found: datetime, timezone: str) -> datetime:
    """A time without a zone is local time. Raises ValueError if it does not exist."""
    from toban.definition.timing.zones import check_zone

    zone = _zone(check_zone(timezone)) if timezone else None
    at = found.replace(tzinfo=zone) if zone is not None else found.astimezone()
    if at.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != found:
        raise ValueError(
            f"there is no {found:%H:%M} on {found:%Y-%m-%d} {f'in {timezone}' if zone else 'here'}: the clocks skip it"
        )
    return at


def _occurrences(schedule: Schedule, zone: str, now: datetime) -> Iterator[datetime]:
    from zoneinfo import ZoneInfo

    from toban.definition.timing.due import occurrences

    dues = occurrences(schedule, zone=ZoneInfo(zone), after=now, stored_at=now)
    return (due.at for due in dues)


def _zone(name: str) -> ZoneInfo | None:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError):
        return None


def _daemon_zone(client: SyncClient) -> str:
    import json

    values = {value.key: value.value_json for value in client.get_config()}
    found = json.loads(values.get("timezone") or '""')
    return found if isinstance(found, str) and found else "UTC"
