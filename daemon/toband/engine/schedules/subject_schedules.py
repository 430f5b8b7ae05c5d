"""Subject schedules: bound to something that a client tracks, such as a task, they emit an event when due."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition import SCHEDULE_TRIGGERED, Schedule, Workflow, bind_params
from toban.definition.scalars.durations import format_duration
from toban.definition.timing.cron import REBOOT, parse_cron
from toban.definition.timing.due import occurrences
from toban.definition.timing.phrases.phrase import PhraseError, Understood, interpret
from toban.definition.timing.phrases.phrase_schedules import with_meaning
from toban.definition.timing.schedule_text import describe_in, why_never
from toban.definition.timing.zones import check_zone
from toband.domain.emitted_events import Emitted
from toband.domain.lookup_keys import check_key
from toband.domain.schedule_actions import ACTIONS, WORKFLOW, named_by
from toband.domain.schedule_model import ScheduledStart, ScheduleEntry, first_due
from toband.domain.transition import Ids
from toband.engine.errors import (
    ScheduleNotFoundError,
    TimeNotUnderstoodError,
    UnclearActionError,
    WorkflowNotFoundError,
)
from toband.engine.execution.sealed_params import check_public
from toband.engine.health.admission import Admits
from toband.engine.system_events import SystemEvents
from toband.ports import Clock, Request, Store, repeats_recorded_call

NEVER_TOO_LATE = 100 * 365 * 86400.0
"""Grace for subject schedules: a reminder is delivered however long the daemon was down."""
# No words begin with an @, or with two parts that are numbers or stars.
_CRON = re.compile(r"\s*(@|[0-9*/,-]+\s+[0-9*/,-]+\s)")
SHOWN = 5
"""Due times that are shown for a time phrase, and for a schedule."""
# The errors for a row whose zone, rule or time this machine cannot interpret.
_UNTOLD = (ValueError, KeyError, OSError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A time phrase interpreted now: in normal words, its next due times, its zone, and the action if it names one."""

    understood: str
    recurring: bool
    due: list[datetime]
    zone: str
    action: str


class SubjectSchedules:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        admission: Admits,
        zone: str,
        calendar: Callable[[], Mapping[str, Any]] = dict,
        changed: Callable[[], None],
    ) -> None:
        """`zone` and `calendar` are the daemon's own; `changed` is called when schedules are added."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._admission = admission
        self._zone = zone
        self._calendar = calendar
        self._changed = changed

    async def create(
        self,
        *,
        subject: str,
        rule: Schedule,
        zone: str,
        action: str,
        workflow: str,
        dedupe_key: str,
        caller: str,
        request: Request | None,
    ) -> tuple[ScheduleEntry, bool]:
        """Stores a schedule; returns it and whether it is new. `rule` has exactly one of words, cron, every and at.
        Without `action` it takes the action that the words name, or only starts the workflow. A repeated request gets
        its first answer: the schedule in its current state, and whether it was new then.

        Raises TimeNotUnderstoodError, UnclearActionError, ValueError, WorkflowNotFoundError, ParamError, RefusedError,
        RequestReusedError.
        """
        made = await self._store.schedule_of_request(request) if request is not None else None
        if made is not None:
            repeats_recorded_call()
            return made
        check_key(subject, required=True)
        check_key(dedupe_key)
        zone = check_zone(zone) if zone else self._zone
        self._admission.check("create a schedule")
        if workflow:
            await self._check_workflow(workflow, rule)
        now = self._clock.now()
        meant, said = self._meant(rule, zone, now)
        action = _agreed(action, said, workflow)
        entry = ScheduleEntry(
            id=self._ids.new_id(),
            workflow=workflow,
            spec=replace(meant, timezone=zone, misfire_grace=NEVER_TOO_LATE),
            zone=zone,
            stored_at=now,
            next_due=None,
            subject=subject,
            action=action,
            dedupe_key=dedupe_key,
            caller=caller,
        )
        entry = first_due(entry, now)
        if entry.next_due is None:
            raise TimeNotUnderstoodError(f"cannot schedule {self.request_text(entry)!r}: {why_never(rule, zone, now)}")
        stored, is_new = await self._store.create_schedule(entry, request=request)
        if is_new:
            self._changed()
        return stored, is_new

    def _meant(self, rule: Schedule, zone: str, now: datetime) -> tuple[Schedule, str]:
        """The rule with the time that its words mean now, and the action they name. Raises TimeNotUnderstoodError."""
        if rule.words:
            try:
                found = interpret(rule.words, now=now, zone=ZoneInfo(zone), calendar=self._calendar())
            except PhraseError as error:
                raise TimeNotUnderstoodError(str(error)) from None
            meant = found.schedule
            return replace(with_meaning(rule, meant), calendar=meant.calendar), found.rest
        if rule.cron:
            try:
                reboot = parse_cron(rule.cron).reboot
            except ValueError as error:
                raise TimeNotUnderstoodError(f"cannot read {rule.cron!r}: {error}") from None
            if reboot:
                raise TimeNotUnderstoodError(f"cannot schedule {REBOOT}: that is for workflows; give a time")
        return rule, ""

    async def _check_workflow(self, name: str, rule: Schedule) -> None:
        """Raises WorkflowNotFoundError, ParamError."""
        stored = await self._store.get_workflow(name)
        if stored is None or stored.definition is None:
            raise WorkflowNotFoundError(name)
        workflow = Workflow.from_dict(dict(stored.definition.parsed))
        bind_params(workflow, rule.params)
        check_public(workflow, rule.params)

    async def get(self, schedule_id: str) -> ScheduleEntry:
        """Raises ScheduleNotFoundError."""
        entry = await self._store.get_schedule(schedule_id)
        if entry is None or not entry.subject:
            raise ScheduleNotFoundError(schedule_id)
        return entry

    async def cancel(self, schedule_id: str) -> ScheduleEntry:
        """Cancels a schedule; one that has ended stays as it is. Raises ScheduleNotFoundError."""
        entry = await self._store.cancel_schedule(schedule_id, at=self._clock.now())
        if entry is None:
            raise ScheduleNotFoundError(schedule_id)
        return entry

    async def cancel_subject(self, subject: str) -> int:
        """Cancels the schedules of a subject; returns how many were active. Raises ValueError."""
        check_key(subject, required=True)
        return await self._store.cancel_by_subject(subject, at=self._clock.now())

    def interpret(self, words: str, zone: str) -> Reading:
        """Words or a crontab expression. Raises TimeNotUnderstoodError; ValueError for an unknown zone."""
        zone = check_zone(zone) if zone else self._zone
        now = self._clock.now()
        if _CRON.match(words):
            return _cron_reading(words, zone, now)
        try:
            found = interpret(words, now=now, zone=ZoneInfo(zone), calendar=self._calendar())
        except PhraseError as error:
            raise TimeNotUnderstoodError(str(error)) from None
        due = occurrences(found.schedule, zone=ZoneInfo(zone), after=now, stored_at=now)
        return Reading(
            understood=found.text,
            recurring=found.recurring,
            due=[each.at for each in islice(due, SHOWN)],
            zone=zone,
            action=named_by(found.rest),
        )

    def understood(self, entry: ScheduleEntry) -> str:
        """The answer of `interpret` when its words were stored; else the rule, such as `every 2h`. Never fails."""
        spec = entry.spec
        # Their calendar is part of the rule.
        read = _read(spec.words, entry.stored_at, entry.zone) if spec.words and not spec.calendar else None
        if read is not None:
            # Another release may interpret them differently: the stored rule counts.
            meant = read.schedule
            if (meant.cron, meant.every, meant.at) == (spec.cron, spec.every, spec.at):
                return read.text
        try:
            return describe_in(replace(spec, words=""), entry.zone)
        except _UNTOLD:
            return request_text(entry)

    def upcoming(self, entry: ScheduleEntry) -> list[datetime]:
        """Some of its next due times; none if it has ended."""
        first, spec = entry.next_due, entry.spec
        if first is None or entry.cancelled_at is not None:
            return []
        try:
            after = occurrences(spec, zone=ZoneInfo(entry.zone), after=first, stored_at=entry.stored_at)
            due = [first, *(each.at for each in islice(after, SHOWN - 1))]
        except _UNTOLD:
            due = [first]
        most = spec.max_occurrences
        return due if most is None else due[: max(1, most - entry.occurrences)]

    def request_text(self, entry: ScheduleEntry) -> str:
        return request_text(entry)


def _cron_reading(text: str, zone: str, now: datetime) -> Reading:
    schedule = Schedule(cron=text, timezone=zone)
    try:
        if parse_cron(text).reboot:
            return Reading(understood=REBOOT, recurring=True, due=[], zone=zone, action="")
        due = [each.at for each in islice(occurrences(schedule, zone=ZoneInfo(zone), after=now, stored_at=now), SHOWN)]
        told = describe_in(schedule, zone)
    except ValueError as error:
        raise TimeNotUnderstoodError(str(error)) from None
    return Reading(understood=told, recurring=True, due=due, zone=zone, action="")


def _agreed(action: str, said: str, workflow: str) -> str:
    """The action to take, given the one requested and the one that the words `said`. Raises UnclearActionError."""
    named = named_by(said)
    if action and named and action != named:
        raise UnclearActionError(f'the words say "{said}", which is {named}, not {action}: leave one of them out')
    found = action or named or (WORKFLOW if workflow else "")
    if found not in (*ACTIONS, WORKFLOW):
        wrong = f'unknown action "{found}"' if found else "it is missing"
        raise UnclearActionError(f"{wrong}: expected one of {', '.join(ACTIONS)}, or a workflow")
    if found == WORKFLOW and not workflow:
        raise UnclearActionError(f"it needs a workflow, or is one of {', '.join(ACTIONS)}")
    return found


@lru_cache(maxsize=4096)
def _read(words: str, at: datetime, zone: str) -> Understood | None:
    """The meaning of the words at that time; None if they cannot be interpreted any more."""
    try:
        return interpret(words, now=at, zone=ZoneInfo(zone))
    except _UNTOLD:
        return None


def request_text(entry: ScheduleEntry) -> str:
    """The request: the words, or the rule."""
    spec = entry.spec
    if spec.words:
        return spec.words
    if spec.cron:
        return spec.cron
    if spec.every is not None:
        return f"every {format_duration(spec.every)}"
    if spec.at is None:
        return ""
    try:
        return spec.at.astimezone(ZoneInfo(entry.zone)).isoformat()
    except _UNTOLD:
        return spec.at.isoformat()


def triggered(entry: ScheduleEntry, start: ScheduledStart, after: ScheduleEntry, announcing: SystemEvents) -> Emitted:
    """The event that announces a due subject schedule. `after` is the schedule after this decision."""
    metadata: dict[str, object] = {"occurrences": after.occurrences}
    if after.next_due is not None:
        metadata["nextRun"] = after.next_due.astimezone(UTC).isoformat()
    payload = {
        "issueId": entry.subject,
        "scheduleId": entry.id,
        "action": entry.action,
        "originalRequest": request_text(entry),
        "metadata": metadata,
    }
    return replace(
        announcing.event(SCHEDULE_TRIGGERED, payload),
        caller=entry.caller,
        workflow=entry.workflow,
        params=entry.spec.params if entry.workflow else {},
        schedule=entry.id,
        scheduled_at=start.due_at,
    )
