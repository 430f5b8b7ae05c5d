"""When a schedule of a subject is due, as far as the command line can tell: five times, on the clocks of its zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from toban.cli.text import moment

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from google.protobuf.timestamp_pb2 import Timestamp

    from toban.sdk import SyncClient
    from toban.v1 import schedule_pb2

_MOST: Final = 5
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# What "from now on" means when the same words are read twice in a row.
_SAME: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When, as it was asked for: exactly one of these is set."""

    words: str = ""
    cron: str = ""
    every: float | None = None
    at: datetime | None = None


def preview(client: SyncClient, rule: Rule, timezone: str) -> schedule_pb2.InterpretTimeResponse:
    """What it means now. Words are read by the daemon, everything else means the same everywhere.

    Raises TobanError, and ValueError with what is wrong for a rule that cannot be read.
    """
    if rule.words:
        return client.interpret_time(rule.words, timezone)
    from toban.definition.timing.describing import describe
    from toban.definition.timing.model import Schedule
    from toban.definition.timing.zones import check_zone
    from toban.v1 import schedule_pb2

    _check(rule)
    zone = check_zone(timezone or _daemon_zone(client))
    schedule = Schedule(cron=rule.cron, every=rule.every, at=rule.at, timezone=zone)
    answer = schedule_pb2.InterpretTimeResponse(
        understood=describe(schedule), recurring=rule.at is None, timezone=zone
    )
    now = datetime.now(UTC)
    for due in islice(_occurrences(rule, zone, now, now), _MOST):
        answer.due_times.add().FromDatetime(due)
    if not answer.due_times:
        raise ValueError(f"{answer.understood}: it is never due, or not any more")
    return answer


def _check(rule: Rule) -> None:
    """Raises ValueError for what the daemon would refuse, though it can be read."""
    from toban.definition.timing.cron import REBOOT, parse_cron

    if rule.cron and parse_cron(rule.cron).reboot:
        raise ValueError(f"{REBOOT} is for workflows: give a time")
    if rule.every is not None and rule.every < 1:
        raise ValueError("expected one second at least")


def following(
    client: SyncClient, rule: Rule | None, stored: schedule_pb2.Schedule
) -> list[datetime]:
    """The due times of a schedule that was stored: the next one is the daemon's own word. Raises TobanError.

    Without the `rule` that it was just made of, no others are known.
    """
    first = moment(stored.next_due)
    if first is None:
        return []
    if rule is None:
        return [first]
    if rule.words:
        told = client.interpret_time(rule.words, stored.timezone).due_times
        times = [at.ToDatetime(tzinfo=UTC) for at in told]
        drift = times[0] - first if times else timedelta()
        if abs(drift) < _SAME:
            times = [at - drift for at in times]
    else:
        # An interval counts from when it was stored.
        begun = first - timedelta(seconds=rule.every or 0)
        times = list(islice(_occurrences(rule, stored.timezone, begun, begun), _MOST))
    due = [first, *(at for at in times if at > first)][:_MOST]
    return due[: stored.max_occurrences] if stored.max_occurrences else due


def local(at: datetime | Timestamp, timezone: str) -> str:
    """Day, date and time on the clocks of the zone; in UTC if this machine does not know it."""
    when = at if isinstance(at, datetime) else at.ToDatetime(tzinfo=UTC)
    here = when.astimezone(_zone(timezone) or UTC)
    return f"{_DAYS[here.weekday()]} {here.isoformat(sep=' ', timespec='seconds')} {timezone}"


def read_at(text: str, timezone: str, now: datetime) -> datetime:
    """A single time: with a zone, or for the clocks of `timezone`, or else of this machine; `18:00` is today.

    Raises ValueError with what was expected.
    """
    from datetime import time

    zone = _zone(timezone)
    try:
        if len(text) <= len("18:00:00"):
            today = now.astimezone(zone).date()
            found = datetime.combine(today, time.fromisoformat(text))
        else:
            found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"expected a time such as 2026-02-01T09:00:00+09:00, or 18:00 for today, not {text!r}"
        ) from None
    if found.tzinfo is not None:
        return found
    # A person who leaves the zone out means the clock on the wall.
    return found.replace(tzinfo=zone) if zone is not None else found.astimezone()


def _occurrences(rule: Rule, zone: str, after: datetime, stored_at: datetime) -> Iterator[datetime]:
    from zoneinfo import ZoneInfo

    from toban.definition.timing.due import occurrences
    from toban.definition.timing.model import Schedule

    schedule = Schedule(cron=rule.cron, every=rule.every, at=rule.at)
    dues = occurrences(schedule, zone=ZoneInfo(zone), after=after, stored_at=stored_at)
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
