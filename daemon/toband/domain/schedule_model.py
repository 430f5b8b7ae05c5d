"""Stored schedules, and the ledger lines of their due times. `misfire` decides the due times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition import Workflow
from toban.definition.timing.business_days import CalendarError, with_data
from toban.definition.timing.due import jitter_of, next_due
from toban.definition.timing.phrases.phrase_resolution import NO_CALENDAR
from toban.definition.timing.phrases.phrase_schedules import resolve_words, with_meaning
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.not_started import NotStarted


class FireOutcome(StrEnum):
    """Outcome of a due time."""

    FIRED = "FIRED"
    CAUGHT_UP = "CAUGHT_UP"
    """A run was started for it later: it was missed, or a backfill asked for it."""
    SKIPPED = "SKIPPED"
    """No run was started: `reason` says why."""
    MISSED = "MISSED"
    """The daemon was not running, and no run was started for it later: `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """A stored schedule. `next_due` is the first due time that is not decided yet; None: there is none.

    A schedule of a definition has the id `<workflow>/<index>`; a subject schedule has an id of its own, and an
    `action`. `occurrences` counts the due times decided so far. `zone` is the name of its time zone.
    """

    id: str
    workflow: str
    index: int = 0
    spec: Schedule
    zone: str
    stored_at: datetime
    next_due: datetime | None
    occurrences: int = 0
    subject: str = ""
    action: str = ""
    dedupe_key: str = ""
    caller: str = ""
    cancelled_at: datetime | None = None

    @property
    def alarm(self) -> datetime | None:
        """When it must be decided: the due time plus its jitter."""
        if self.next_due is None:
            return None
        return self.next_due + timedelta(seconds=jitter_of(self.id, self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One line of the ledger: the outcome of one due time. There is one per schedule and due time, for ever.

    `more` is how many earlier due times share its outcome and have no line of their own. `event_id` is the event that a
    subject schedule emitted.
    """

    schedule_id: str
    workflow: str
    due_at: datetime
    outcome: FireOutcome
    at: datetime
    reason: NotStarted | None = None
    run_id: str = ""
    event_id: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStart:
    """A run to be started for a due time; `missed` are the earlier due times that it represents too.

    `more` is how many there were before these: a run lists only the last of very many.
    """

    due_at: datetime
    outcome: FireOutcome
    missed: tuple[datetime, ...] = ()
    more: int = 0


def entries_of(
    workflow: Workflow,
    *,
    zone: str,
    now: datetime,
    known: Mapping[tuple[str, str], Schedule],
    calendar: Mapping[str, Any] | None = None,
    read_file: Callable[[str], str],
) -> tuple[ScheduleEntry, ...]:
    """The schedules of a definition that is stored now. `zone` and `calendar` are for those that name none.

    Files of calendars are read with `read_file`.

    Time phrases are interpreted as of now, or as `known` recorded when they were first stored, in their zone. Raises
    PhraseError, CalendarError.
    """
    entries = []
    for index, spec in enumerate(workflow.schedules):
        name = spec.timezone or workflow.timezone or zone
        entry = ScheduleEntry(
            id=f"{workflow.name}/{index}",
            workflow=workflow.name,
            index=index,
            spec=_resolved(
                spec if spec.calendar else replace(spec, calendar=workflow.calendar or calendar or {}),
                name,
                now,
                known,
                read_file,
            ),
            zone=name,
            stored_at=now,
            next_due=None,
        )
        # `start` itself may be due, and so may the current moment.
        entries.append(first_due(entry, now - timedelta(microseconds=1)))
    return tuple(entries)


def _resolved(
    spec: Schedule,
    zone: str,
    now: datetime,
    known: Mapping[tuple[str, str], Schedule],
    read_file: Callable[[str], str],
) -> Schedule:
    """The schedule with the meaning of its words, and with the data of its calendar if it uses one."""
    given = spec.calendar
    if spec.words and not spec.cron and spec.every is None and spec.at is None:
        before = known.get((spec.words, zone))
        if before is not None:
            spec = with_meaning(spec, before)
        else:
            loaded = with_data(given, read_file) if given else None
            spec = resolve_words(spec, now=now, zone=ZoneInfo(zone), calendar=loaded)
    if spec.business_day == "":
        return replace(spec, calendar={})
    if not given:
        raise CalendarError(NO_CALENDAR)
    return replace(spec, calendar=with_data(given, read_file))


def renewed(entry: ScheduleEntry, now: datetime, read_file: Callable[[str], str]) -> ScheduleEntry:
    """The entry with the data that its calendar has now; a due time that has come stays. Raises CalendarError."""
    if entry.spec.business_day == "":
        return entry
    calendar = with_data(entry.spec.calendar, read_file)
    if calendar == entry.spec.calendar:
        return entry
    changed = replace(entry, spec=replace(entry.spec, calendar=calendar))
    if entry.next_due is not None and entry.next_due <= now:
        return changed
    return first_due(changed, now)


def first_due(entry: ScheduleEntry, after: datetime) -> ScheduleEntry:
    """The entry with the first due time after `after`."""
    if is_exhausted(entry):
        return replace(entry, next_due=None)
    found = next_due(entry.spec, zone=ZoneInfo(entry.zone), after=after, stored_at=entry.stored_at)
    return replace(entry, next_due=found.at if found is not None else None)


def is_exhausted(entry: ScheduleEntry) -> bool:
    """Whether it has reached its limit of due times."""
    most = entry.spec.max_occurrences
    return most is not None and entry.occurrences >= most
