"""Messages for events and for schedules of subjects."""

from __future__ import annotations

import json
from collections.abc import Mapping

from google.protobuf import struct_pb2

from toban.definition.scalars.values import to_json
from toban.limits import MAX_LISTED_BYTES, MAX_TITLE_CHARS
from toban.safe_text import whole
from toban.v1 import event_pb2, run_pb2, schedule_pb2
from toband.api.definition_messages import not_started
from toband.api.run_messages import timestamp
from toband.domain.emitted_events import Emitted, EventRun, EventState
from toband.domain.run_model import RunState
from toband.domain.schedule_model import ScheduleEntry
from toband.engine.events.event_matching import Candidate
from toband.engine.schedules.subject_schedules import SubjectSchedules


def event(
    value: Emitted,
    *,
    pending: str = "",
    states: Mapping[str, RunState] | None = None,
    listed: bool = False,
) -> event_pb2.Event:
    """`pending`: what a PENDING event waits for. `states`: of its runs. `listed`: leave out a large payload."""
    payload = _json(value.payload)
    size = len(payload.encode())
    waits = value.state is EventState.PENDING
    return event_pb2.Event(
        id=value.id,
        type=value.type,
        payload_json="" if listed and size > MAX_LISTED_BYTES else payload,
        emitted_at=timestamp(value.at),
        source=event_pb2.EventSource.Value(f"EVENT_SOURCE_{value.source.value.upper()}"),
        caller=value.caller,
        source_run=value.source_run,
        source_step=value.source_step,
        depth=value.depth,
        dedupe_key=value.dedupe_key,
        state=event_pb2.EventState.Value(f"EVENT_STATE_{value.state.value}"),
        reason=pending if waits else value.reason,
        resolved_at=timestamp(value.resolved_at),
        runs=[event_run(each, (states or {}).get(each.run_id)) for each in value.runs],
        sequence=value.sequence,
        payload_bytes=size,
    )


def _json(value: object) -> str:
    text = to_json(value)
    return text if whole(text) else json.dumps(value, separators=(",", ":"))


def event_run(value: EventRun, state: RunState | None = None) -> event_pb2.EventRun:
    made = event_pb2.EventRun(
        workflow=value.workflow,
        priority=value.priority,
        outcome=event_pb2.EventRunOutcome.Value(f"EVENT_RUN_OUTCOME_{value.outcome.value}"),
        reason=not_started(value.reason),
        detail=value.reason.detail if value.reason is not None else "",
        run_id=value.run_id,
        later_event_id=value.later_event,
    )
    if state is not None:
        made.run_state = run_pb2.RunState.Value(f"RUN_STATE_{state.value}")
    return made


def candidate(value: Candidate) -> event_pb2.EventCandidate:
    return event_pb2.EventCandidate(
        workflow=value.workflow,
        matches=value.matches,
        priority=value.priority,
        condition=value.condition,
        reason=value.reason,
        scope=value.scope,
    )


def schedule(value: ScheduleEntry, subjects: SubjectSchedules, titles: Mapping[str, str]) -> schedule_pb2.Schedule:
    """`subjects` describes it in words. `titles` are those of workflows, by name."""
    title = titles.get(value.workflow, "")
    params = struct_pb2.Struct()
    params.update(dict(value.spec.params))
    state = schedule_pb2.SCHEDULE_STATE_ACTIVE
    if value.cancelled_at is not None:
        state = schedule_pb2.SCHEDULE_STATE_CANCELLED
    elif value.next_due is None:
        state = schedule_pb2.SCHEDULE_STATE_ENDED
    active = state == schedule_pb2.SCHEDULE_STATE_ACTIVE
    return schedule_pb2.Schedule(
        id=value.id,
        subject=value.subject,
        action=schedule_pb2.ScheduleAction.Value(f"SCHEDULE_ACTION_{value.action.upper()}"),
        workflow=value.workflow,
        workflow_title=title[:MAX_TITLE_CHARS] if title != value.workflow else "",
        params=params,
        request=subjects.request_text(value),
        understood=subjects.understood(value),
        timezone=value.zone,
        state=state,
        next_due=timestamp(value.next_due) if active else None,
        occurrences=value.occurrences,
        max_occurrences=value.spec.max_occurrences or 0,
        dedupe_key=value.dedupe_key,
        caller=value.caller,
        created_at=timestamp(value.stored_at),
        cancelled_at=timestamp(value.cancelled_at),
    )
