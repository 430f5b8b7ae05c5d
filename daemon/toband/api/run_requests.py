"""Decodes requests of the RunService. Raises InvalidFieldError."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf import json_format, struct_pb2, timestamp_pb2

from toban.definition import ParamError
from toban.limits import MAX_KEY_CHARS, MAX_LABEL_KEY_CHARS, MAX_NOTE_CHARS, MAX_RUN_LABELS
from toban.v1 import run_pb2 as pb
from toband.api.request_errors import InvalidFieldError
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_ids import first_id
from toband.domain.run_model import RunState, Trigger
from toband.domain.structured_lines import LogLevel
from toband.engine.runs.run_log import LogQuery
from toband.engine.runs.run_search import RunConditions, SearchFilter
from toband.engine.runs.step_selection import RetrySelection, Selection
from toband.ports import IdKind, LogKind

# Numbers of runs are stored in 32 bits.
_MOST_RUNS: Final = 2**31 - 1
_MOST_IDS: Final = 500
_ID_PART: Final = re.compile(r"[0-9a-f-]{4,36}", re.ASCII)
_ID_KINDS: Final = {
    pb.ID_KIND_RUN: IdKind.RUN,
    pb.ID_KIND_PROCESS: IdKind.PROCESS,
    pb.ID_KIND_EVENT: IdKind.EVENT,
    pb.ID_KIND_DEAD_LETTER: IdKind.DEAD_LETTER,
    pb.ID_KIND_SCHEDULE: IdKind.SCHEDULE,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def selection(request: pb.StartRunRequest | pb.PlanRunRequest) -> Selection:
    if request.from_run and not (request.scope or request.only or request.from_steps):
        raise InvalidFieldError("from_run", "requires `scope`, `only` or `from_steps`")
    return Selection(
        scope=request.scope,
        only=tuple(request.only),
        from_steps=tuple(request.from_steps),
        from_run=request.from_run,
    )


def labels(given: Mapping[str, str]) -> dict[str, str]:
    """The labels of a new run."""
    if len(given) > MAX_RUN_LABELS:
        raise InvalidFieldError("labels", f"must be at most {MAX_RUN_LABELS}, found {len(given)}")
    for key, value in given.items():
        if not 1 <= len(key) <= MAX_LABEL_KEY_CHARS:
            raise InvalidFieldError("labels", f"a key must have 1 to {MAX_LABEL_KEY_CHARS} characters: {key:.100}")
        if len(value) > MAX_KEY_CHARS:
            raise InvalidFieldError("labels", f"the value of {key} must have at most {MAX_KEY_CHARS} characters")
    return dict(given)


def run_filter(request: pb.ListRunsRequest | pb.WatchRunsRequest) -> SearchFilter | None:
    """None if indexes answer the whole request."""
    if len(request.text) > MAX_KEY_CHARS:
        raise InvalidFieldError("text", f"must have at most {MAX_KEY_CHARS} characters")
    if not (request.params or request.text):
        return None
    return SearchFilter(params=dict(request.params), text=request.text)


def retry_selection(request: pb.RetryRunRequest, caller: str) -> RetrySelection:
    if request.everything and (request.from_steps or request.skip):
        other = "from_steps" if request.from_steps else "skip"
        raise InvalidFieldError("everything", f"cannot be combined with `{other}`")
    note = short(request.skip_note, "skip_note")
    if request.skip and not note.strip():
        raise InvalidFieldError("skip_note", "is required with `skip`: say why the steps count as succeeded")
    if note and not request.skip:
        raise InvalidFieldError("skip_note", "requires `skip`")
    return RetrySelection(
        from_steps=tuple(request.from_steps),
        everything=request.everything,
        skip=tuple(request.skip),
        by=caller,
        note=note,
    )


def short(text: str, field: str) -> str:
    """A short text for people."""
    if len(text) > MAX_NOTE_CHARS:
        raise InvalidFieldError(field, f"must have at most {MAX_NOTE_CHARS} characters, found {len(text)}")
    return text


def params(given: struct_pb2.Struct) -> dict[str, Any]:
    """Raises ParamError for values that JSON does not have."""
    params: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in given.fields.items():
        try:
            params[name] = json_format.MessageToDict(value)
        except (json_format.Error, ValueError):
            problems.append((name, "must be a JSON value"))
    if problems:
        raise ParamError(problems)
    return params


def trigger(value: pb.Trigger.ValueType) -> Trigger:
    match value:
        case pb.TRIGGER_UNSPECIFIED | pb.TRIGGER_API:
            return Trigger.API
        case pb.TRIGGER_MANUAL:
            return Trigger.MANUAL
        case _:
            raise InvalidFieldError("triggered_by", "must be API or MANUAL")


def approved(decision: pb.ApprovalDecision.ValueType) -> bool:
    match decision:
        case pb.APPROVAL_DECISION_APPROVED:
            return True
        case pb.APPROVAL_DECISION_REJECTED:
            return False
        case _:
            raise InvalidFieldError("decision", "must be APPROVED or REJECTED")


def run_state(value: pb.RunState.ValueType) -> RunState:
    try:
        return RunState(pb.RunState.Name(value).removeprefix("RUN_STATE_"))
    except ValueError:
        raise InvalidFieldError("states", f"unknown state {value}") from None


def process_state(value: pb.ProcessState.ValueType) -> AttemptState:
    try:
        return AttemptState(pb.ProcessState.Name(value).removeprefix("PROCESS_STATE_"))
    except ValueError:
        raise InvalidFieldError("states", f"unknown state {value}") from None


def launched_between(request: pb.ListProcessExecutionsRequest) -> tuple[str, str]:
    return _between(request, "launched_after", "launched_before")


def run_conditions(request: pb.ListRunsRequest | pb.WatchRunsRequest) -> RunConditions:
    after, before = _between(request, "created_after", "created_before")
    return RunConditions(
        workflow=request.workflow,
        states=frozenset(run_state(state) for state in request.states),
        parent_run=request.parent_run,
        retry_of=request.retry_of,
        labels=dict(request.labels),
        after=after,
        before=before,
        number=_run_number(request),
        ids=_run_ids(request),
    )


def _run_number(request: pb.ListRunsRequest | pb.WatchRunsRequest) -> int:
    """0 if any number will do."""
    if request.number < 0 or request.number > _MOST_RUNS:
        raise InvalidFieldError("number", f"must be between 0 and {_MOST_RUNS}")
    if request.number and not request.workflow:
        raise InvalidFieldError("number", "requires `workflow`")
    return request.number


def _run_ids(request: pb.ListRunsRequest | pb.WatchRunsRequest) -> frozenset[str]:
    if len(request.ids) > _MOST_IDS:
        raise InvalidFieldError("ids", f"must be at most {_MOST_IDS}, found {len(request.ids)}")
    return frozenset(request.ids)


def id_kind(value: pb.IdKind.ValueType) -> IdKind:
    kind = _ID_KINDS.get(value)
    if kind is None:
        raise InvalidFieldError("kind", "must be RUN, PROCESS, EVENT, DEAD_LETTER or SCHEDULE")
    return kind


def id_part(request: pb.FindIdsRequest) -> str:
    part = request.part.lower()
    if not _ID_PART.fullmatch(part):
        raise InvalidFieldError("part", "must have 4 to 36 characters of an id: digits, a to f and dashes")
    return part


def _between(request: Any, *fields: str) -> tuple[str, str]:
    """The ids between which those of that time are; empty where the request sets no limit."""
    found = []
    for field in fields:
        at = _time(getattr(request, field), field) if request.HasField(field) else 0
        # Those of that very millisecond count as after.
        found.append(first_id(_EPOCH + timedelta(microseconds=at) - timedelta(milliseconds=1)) if at > 0 else "")
    return found[0], found[1]


def query(request: pb.StreamLogsRequest) -> LogQuery:
    if request.tail < 0 or request.attempt < 0:
        raise InvalidFieldError("tail" if request.tail < 0 else "attempt", "must be 0 or more")
    if request.tail and request.position:
        raise InvalidFieldError("tail", "cannot be combined with `position`")
    if request.process_execution_id and (request.step or request.attempt):
        raise InvalidFieldError("process_execution_id", "cannot be combined with `step` or `attempt`")
    if request.attempt and not request.step:
        raise InvalidFieldError("attempt", "requires `step`")
    if request.level and request.raw:
        raise InvalidFieldError("level", "cannot be combined with `raw`")
    unknown = [kind for kind in request.streams if kind not in pb.LogStream.values()]
    if unknown:
        raise InvalidFieldError("streams", f"unknown stream {unknown[0]}")
    if request.level not in pb.LogLevel.values():
        raise InvalidFieldError("level", f"unknown level {request.level}")
    return LogQuery(
        run_id=request.run_id,
        step=request.step,
        attempt=request.attempt,
        kinds=[LogKind(kind) for kind in request.streams if kind],
        tail=request.tail,
        since=_time(request.since, "since"),
        follow=request.follow,
        position=request.position,
        raw=request.raw,
        level=LogLevel(request.level) if request.level else None,
    )


def of_process(query: LogQuery, attempt: Attempt) -> LogQuery:
    """The query for the log of one process."""
    if query.run_id and query.run_id != attempt.run_id:
        raise InvalidFieldError("run_id", "must be the run of `process_execution_id`, or empty")
    return replace(query, run_id=attempt.run_id, step=attempt.step, attempt=attempt.number)


def _time(given: timestamp_pb2.Timestamp, field: str) -> int:
    """In microseconds; 0, the epoch, if it is absent."""
    try:
        # Fails for a time outside of the calendar.
        given.ToDatetime()
    except (ValueError, OverflowError):
        raise InvalidFieldError(field, "must be a valid time") from None
    return given.ToMicroseconds()
