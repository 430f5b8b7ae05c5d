"""Schedules that are bound to a subject: what others keep track of, and want to be told of at some time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from toban.definition import SCHEDULE_TRIGGERED, Schedule, Workflow, bind_params
from toban.definition.durations import format_duration
from toban.definition.timing.cron import REBOOT, parse_cron
from toban.definition.timing.describing import describe
from toban.definition.timing.due import occurrences
from toban.definition.timing.words import PhraseError, interpret
from toban.definition.timing.zones import check_zone
from toband.domain.emitted import Emitted
from toband.domain.keys import check_key
from toband.domain.schedules import ScheduleEntry, Start, first_due
from toband.domain.transition import Ids
from toband.engine.admission import Admits
from toband.engine.announcing import Announcing
from toband.engine.errors import (
    ScheduleNotFoundError,
    TimeNotUnderstoodError,
    WorkflowNotFoundError,
)
from toband.ports import Clock, Request, Store

ACTIONS = ("reminder", "escalate", "auto_close", "follow_up", "check_progress")
WORKFLOW = "workflow"
"""The action of a schedule that only starts a workflow."""
NEVER_TOO_LATE = 100 * 365 * 86400.0
"""Whoever asked to be reminded is told, however long the daemon was away."""
SHOWN = 5
"""Due times that are told of words."""


class Subjects:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        admission: Admits,
        zone: str,
        changed: Callable[[], None],
    ) -> None:
        """`zone` is the daemon's own; `changed` is called when there are new schedules."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._admission = admission
        self._zone = zone
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
        """The schedule, and whether it is new. Of `rule` one of words, cron, every and at says when. A repeated request
        is answered with the schedule that it made, whatever became of it since.

        Raises TimeNotUnderstoodError, ValueError, WorkflowNotFoundError, ParamError, RefusedError, RequestReusedError.
        """
        made = await self._store.schedule_of_request(request) if request is not None else None
        if made is not None:
            return made, False
        check_key(subject, required=True)
        check_key(dedupe_key)
        if not action and workflow:
            action = WORKFLOW
        if action not in (*ACTIONS, WORKFLOW):
            raise ValueError(f'unknown action "{action}": expected one of {", ".join(ACTIONS)}')
        if action == WORKFLOW and not workflow:
            raise ValueError(f"a schedule needs a workflow, or one of {', '.join(ACTIONS)}")
        zone = check_zone(zone) if zone else self._zone
        self._admission.check("create a schedule")
        if workflow:
            await self._check_workflow(workflow, rule)
        now = self._clock.now()
        entry = ScheduleEntry(
            id=self._ids.new_id(),
            workflow=workflow,
            spec=replace(self._meant(rule, zone, now), timezone=zone, misfire_grace=NEVER_TOO_LATE),
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
            raise TimeNotUnderstoodError(
                f"cannot schedule {self.request_text(entry)!r}: it is never due, or not any more"
            )
        stored, is_new = await self._store.create_schedule(entry, request=request)
        if is_new:
            self._changed()
        return stored, is_new

    def _meant(self, rule: Schedule, zone: str, now: datetime) -> Schedule:
        """The rule with the time that its words mean now. Raises TimeNotUnderstoodError."""
        if rule.words:
            try:
                meant = interpret(rule.words, now=now, zone=ZoneInfo(zone)).schedule
            except PhraseError as error:
                raise TimeNotUnderstoodError(str(error)) from None
            return replace(rule, cron=meant.cron, every=meant.every, at=meant.at)
        if rule.cron:
            try:
                reboot = parse_cron(rule.cron).reboot
            except ValueError as error:
                raise TimeNotUnderstoodError(f"cannot read {rule.cron!r}: {error}") from None
            if reboot:
                raise TimeNotUnderstoodError(
                    f"cannot schedule {REBOOT}: that is for workflows; give a time"
                )
        return rule

    async def _check_workflow(self, name: str, rule: Schedule) -> None:
        """Raises WorkflowNotFoundError, ParamError."""
        stored = await self._store.get_workflow(name)
        if stored is None or stored.definition is None:
            raise WorkflowNotFoundError(name)
        bind_params(Workflow.from_dict(dict(stored.definition.parsed)), rule.params)

    async def get(self, schedule_id: str) -> ScheduleEntry:
        """Raises ScheduleNotFoundError."""
        entry = await self._store.get_schedule(schedule_id)
        if entry is None or not entry.subject:
            raise ScheduleNotFoundError(schedule_id)
        return entry

    async def cancel(self, schedule_id: str) -> ScheduleEntry:
        """One that has ended stays as it is. Raises ScheduleNotFoundError."""
        entry = await self._store.cancel_schedule(schedule_id, at=self._clock.now())
        if entry is None:
            raise ScheduleNotFoundError(schedule_id)
        return entry

    async def cancel_subject(self, subject: str) -> int:
        """How many were active. Raises ValueError."""
        check_key(subject, required=True)
        return await self._store.cancel_by_subject(subject, at=self._clock.now())

    def interpret(self, words: str, zone: str) -> tuple[Schedule, str, list[datetime], str]:
        """What words mean now: the rule, in words again, when that is due next, and in which zone.

        Raises TimeNotUnderstoodError; ValueError for a zone that there is not.
        """
        zone = check_zone(zone) if zone else self._zone
        now = self._clock.now()
        try:
            found = interpret(words, now=now, zone=ZoneInfo(zone))
        except PhraseError as error:
            raise TimeNotUnderstoodError(str(error)) from None
        due = occurrences(found.schedule, zone=ZoneInfo(zone), after=now, stored_at=now)
        return found.schedule, found.text, [each.at for each in islice(due, SHOWN)], zone

    def understood(self, entry: ScheduleEntry) -> str:
        """Such as `every day at 15:00 Asia/Tokyo`, and a single time on the clocks of its zone."""
        spec = replace(entry.spec, words="")
        if spec.at is None:
            return describe(spec)
        local = spec.at.astimezone(ZoneInfo(entry.zone))
        return f"{describe(replace(spec, at=local))} {entry.zone}"

    def request_text(self, entry: ScheduleEntry) -> str:
        return request_text(entry)


def request_text(entry: ScheduleEntry) -> str:
    """What was asked for: the words, or the rule."""
    spec = entry.spec
    if spec.words:
        return spec.words
    if spec.cron:
        return spec.cron
    if spec.every is not None:
        return f"every {format_duration(spec.every)}"
    return spec.at.astimezone(ZoneInfo(entry.zone)).isoformat() if spec.at is not None else ""


def triggered(
    entry: ScheduleEntry, start: Start, after: ScheduleEntry, announcing: Announcing
) -> Emitted:
    """The event that tells that a schedule of a subject is due. `after` is the schedule once that is decided."""
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
