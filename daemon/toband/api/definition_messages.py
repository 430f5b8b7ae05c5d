"""Messages for definitions, their versions, schedules and fires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

from google.protobuf import timestamp_pb2

from toban.definition import Problem
from toban.definition.timing.due import describe
from toban.definition.timing.schedule_spec import ClockChange
from toban.safe_text import json_text, sendable
from toban.v1 import job_pb2, workflow_pb2
from toband.api.pages import ROOM
from toband.api.run_messages import timestamp
from toband.domain.not_started import NotStarted
from toband.domain.schedule_model import Fire, ScheduleEntry
from toband.engine.definitions.catalog import Applied
from toband.engine.definitions.resolver import UNNAMED, ResolvedDefinition
from toband.engine.schedules.backfill import BackfilledTime
from toband.engine.schedules.due_times import Upcoming
from toband.ports import OwnerKind, PutResult, StoredWorkflow, WorkflowVersion

_FRAME = 4
"""Bytes around a part of a message, at most."""
_CHANGES = {
    ClockChange.NONE: workflow_pb2.CLOCK_CHANGE_UNSPECIFIED,
    ClockChange.SHIFTED: workflow_pb2.CLOCK_CHANGE_SHIFTED,
    ClockChange.REPEATED: workflow_pb2.CLOCK_CHANGE_REPEATED,
}


def workflow(value: StoredWorkflow, schedules: Sequence[ScheduleEntry] = ()) -> workflow_pb2.Workflow:
    """`schedules` are all schedules of its definition."""
    return workflow_pb2.Workflow(
        name=value.name,
        title=value.title,
        description=value.description,
        labels=dict(value.labels),
        enabled=value.enabled,
        version=value.version,
        owner_path=value.owner if value.owner_kind is not OwnerKind.API else "",
        owner_kind=workflow_pb2.OwnerKind.Value(f"OWNER_KIND_{value.owner_kind.name}"),
        definition=definition(value.definition) if value.definition else None,
        created_at=timestamp(value.created_at),
        updated_at=timestamp(value.updated_at),
        etag=value.etag,
        schedules=schedule_texts(schedules),
        next_due=next_due(schedules),
        event_types=event_types(value.definition),
    )


def schedule_texts(schedules: Sequence[ScheduleEntry]) -> list[str]:
    return [schedule(each) for each in sorted(schedules, key=lambda each: each.index)]


def next_due(schedules: Sequence[ScheduleEntry]) -> timestamp_pb2.Timestamp | None:
    return timestamp(min((each.next_due for each in schedules if each.next_due), default=None))


def event_types(value: WorkflowVersion | None) -> list[str]:
    """The types of events that start it, in the order of the definition; none without a definition."""
    triggers = value.parsed.get("triggers", ()) if value is not None else ()
    return list(dict.fromkeys(each for trigger in triggers for each in trigger["events"]))


def schedule(value: ScheduleEntry) -> str:
    """For people: the schedule with its time zone, after the author's own words if it was given in words."""
    told = describe(replace(value.spec, timezone=value.zone))
    return f"{value.spec.words}: {told}" if value.spec.words else told


def due_time(value: Upcoming) -> workflow_pb2.DueTime:
    local = value.due.astimezone(ZoneInfo(value.zone))
    return workflow_pb2.DueTime(
        due_at=timestamp(value.due),
        start_at=timestamp(value.at),
        timezone=value.zone,
        local=local.isoformat(sep=" ", timespec="seconds"),
        change=_CHANGES[value.change],
        schedule_index=value.index,
        blackout=value.blackout,
        scope=value.scope,
    )


def backfilled(value: BackfilledTime) -> workflow_pb2.BackfilledTime:
    started = workflow_pb2.BACKFILL_OUTCOME_STARTED
    return workflow_pb2.BackfilledTime(
        due_at=timestamp(value.due),
        timezone=value.entry.zone,
        local=value.due.astimezone(ZoneInfo(value.entry.zone)).isoformat(sep=" ", timespec="seconds"),
        schedule_index=value.entry.index,
        outcome=started if value.started else workflow_pb2.BACKFILL_OUTCOME_HAS_RUN,
        run_id=value.run_id,
    )


def fire(value: Fire) -> workflow_pb2.Fire:
    return workflow_pb2.Fire(
        schedule_id=value.schedule_id,
        workflow=value.workflow,
        due_at=timestamp(value.due_at),
        outcome=workflow_pb2.FireOutcome.Value(f"FIRE_OUTCOME_{value.outcome.value}"),
        at=timestamp(value.at),
        reason=not_started(value.reason),
        detail=value.reason.detail if value.reason is not None else "",
        run_id=value.run_id,
        event_id=value.event_id,
        more=value.more,
    )


def not_started(value: NotStarted | None) -> workflow_pb2.NotStartedReason.ValueType:
    if value is None:
        return workflow_pb2.NOT_STARTED_REASON_UNSPECIFIED
    return workflow_pb2.NotStartedReason.Value(f"NOT_STARTED_REASON_{value.reason.value}")


def problem(found: Problem) -> workflow_pb2.DefinitionProblem:
    return workflow_pb2.DefinitionProblem(
        path=sendable(found.path),
        line=found.line,
        column=found.column,
        message=sendable(found.message),
        warning=found.warning,
        file="" if found.file == UNNAMED else sendable(found.file),
    )


def applied(value: Applied) -> workflow_pb2.ApplyDefinitionsResponse:
    """Lists of users and problems are cut where they exceed the room of a message."""
    answer = workflow_pb2.ApplyDefinitionsResponse(valid=bool(value.results))
    for each in value.definitions:
        answer.definitions.append(_applied(each, value.results.get(each.document.name)))
    room = ROOM - answer.ByteSize()
    for each, given in zip(value.definitions, answer.definitions, strict=True):
        for name in value.results[given.name].users if value.results else ():
            room -= len(name) + _FRAME
            if room > 0:
                given.updated_workflows.append(name)
        for found in each.problems:
            part = problem(found)
            room -= part.ByteSize() + _FRAME
            if room > 0:
                given.problems.append(part)
            else:
                answer.problems_left_out += 1
    return answer


def _applied(value: ResolvedDefinition, result: PutResult | None) -> workflow_pb2.AppliedDefinition:
    document = value.document
    given = workflow_pb2.AppliedDefinition(name=document.name, file=sendable(value.file), line=document.line)
    if document.name:
        given.kind = workflow_pb2.DefinitionKind.Value(f"DEFINITION_KIND_{document.kind.name}")
    if result is not None:
        given.outcome = workflow_pb2.ApplyOutcome.Value(f"APPLY_OUTCOME_{result.outcome.name}")
        given.version, given.etag = result.version, result.etag
    return given


def job(
    value: StoredWorkflow,
    used_by: Sequence[str] = (),
    schedules: Sequence[ScheduleEntry] = (),
) -> job_pb2.Job:
    """`schedules` are all schedules of its definition."""
    return job_pb2.Job(
        name=value.name,
        title=value.title,
        description=value.description,
        labels=dict(value.labels),
        enabled=value.enabled,
        version=value.version,
        owner_path=value.owner if value.owner_kind is not OwnerKind.API else "",
        owner_kind=workflow_pb2.OwnerKind.Value(f"OWNER_KIND_{value.owner_kind.name}"),
        definition=definition(value.definition) if value.definition else None,
        used_by=used_by,
        created_at=timestamp(value.created_at),
        updated_at=timestamp(value.updated_at),
        etag=value.etag,
        schedules=schedule_texts(schedules),
        next_due=next_due(schedules),
        event_types=event_types(value.definition),
    )


def definition(value: WorkflowVersion) -> workflow_pb2.Definition:
    made = workflow_pb2.Definition(source=value.source, base_dir=value.base_dir)
    parsed = json_text(dict(value.parsed))
    if made.ByteSize() + len(parsed.encode()) <= ROOM:
        made.parsed_json = parsed
    return made


def version(value: WorkflowVersion) -> workflow_pb2.WorkflowVersion:
    return workflow_pb2.WorkflowVersion(
        workflow=value.workflow,
        version=value.version,
        definition=definition(value) if value.source else None,
        digest=value.digest,
        created_at=timestamp(value.created_at),
    )
