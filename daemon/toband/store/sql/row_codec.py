"""Runs, steps and dead letters as rows, and back.

Rows are written with raw values, because the driver gets them as they are; they are read with the values that the types
of the columns made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from toban.limits import MAX_LISTED_BYTES, cut
from toband.domain.attempt_model import Attempt, AttemptState, Progress, TreeCause
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import (
    INSTANCE_BITS,
    Artifact,
    Awaited,
    DeadLetter,
    Ending,
    EndingCause,
    FinallyPart,
    Phase,
    Pin,
    Run,
    RunState,
    StepRun,
    StepState,
)
from toband.store.sql.columns import Raw, Values, from_micros, micros_or_none, printable, to_json, to_micros
from toband.store.sql.tables import dead_letters, runs, step_runs

RUN_COLUMNS = tuple(runs.c.keys())
STEP_COLUMNS = tuple(step_runs.c.keys())
LETTER_COLUMNS = tuple(dead_letters.c.keys())

INLINE_MOST = MAX_LISTED_BYTES
"""Larger parameters, events and items have tables of their own, so that no update rewrites them."""

_INSTANCES = (1 << INSTANCE_BITS) - 1

# Columns that no transition changes.
RUN_IDENTITY = frozenset(
    (
        "id",
        "workflow",
        "version",
        "number",
        "scope",
        "triggered_by",
        "caller",
        "priority",
        "params",
        "params_bytes",
        "labels",
        "created_at",
        "retry_of",
        "from_run",
        "parent_run",
        "parent_step",
        "schedule",
        "scheduled_at",
        "missed",
        "event",
        "depth",
        "pinned_at",
        "pinned_by",
        "pin_note",
    )
)
STEP_IDENTITY = frozenset(("run_id", "position", "step"))


# ------------------------------------------------------------------------------------------------ to rows


def run_identity(run: Run) -> Raw:
    params, event = to_json(run.params), _event_json(run)
    large = len(params) > INLINE_MOST
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "number": run.number,
        "scope": printable(run.scope),
        "triggered_by": run.trigger.value,
        "caller": printable(run.caller),
        "priority": run.priority,
        "params": "{}" if large else params,
        "params_bytes": len(params) if large else 0,
        "labels": to_json(run.labels) if run.labels else "{}",
        "created_at": to_micros(run.created_at),
        "retry_of": run.retry_of or None,
        "from_run": run.from_run or None,
        "parent_run": run.parent_run or None,
        "parent_step": run.parent_step or None,
        "schedule": run.schedule,
        "scheduled_at": micros_or_none(run.scheduled_at),
        "missed": to_json([to_micros(at) for at in run.missed]) if run.missed else "[]",
        "event": event,
        "depth": run.depth,
    } | pin_columns(run.pin)


def pin_columns(pin: Pin | None) -> Raw:
    if pin is None:
        return {"pinned_at": None, "pinned_by": "", "pin_note": ""}
    return {"pinned_at": to_micros(pin.at), "pinned_by": printable(pin.by), "pin_note": printable(pin.note)}


def _event_json(run: Run) -> str | None:
    """Without a large payload."""
    if run.event is None:
        return None
    text = to_json(run.event)
    return text if len(text) <= INLINE_MOST else to_json({**run.event, "payload": {}})


def run_values(run: Run) -> Raw | None:
    """The large values of a run, for their own table; None if it has none."""
    params = to_json(run.params)
    event = "" if run.event is None else to_json(run.event)
    if len(params) <= INLINE_MOST and len(event) <= INLINE_MOST:
        return None
    return {
        "run_id": run.id,
        "params": params if len(params) > INLINE_MOST else None,
        "event": event if len(event) > INLINE_MOST else None,
    }


def step_item(run_id: str, step: StepRun) -> Raw | None:
    """The large item of a step, for its own table; None if it has none."""
    if step.item is None or len(item := to_json(step.item)) <= INLINE_MOST:
        return None
    return {"run_id": run_id, "position": step.position, "item": item}


def run_facts(run: Run) -> Raw:
    """The columns that a transition may change."""
    ending = run.ending
    return {
        "state": run.state.value,
        "sequence": run.sequence,
        "started_at": micros_or_none(run.started_at),
        "finished_at": micros_or_none(run.finished_at),
        "error": printable(run.error),
        "failed_steps": run.failed_steps,
        "incomplete_steps": run.incomplete_steps,
        "ended_steps": run.ended_steps,
        "total_steps": run.total_steps,
        "step_states": to_json(run.step_states),
        "current_step": printable(run.current_step),
        "progress": None if run.progress is None else to_json(_progress_values(run.progress)),
        "cancel_requested_at": micros_or_none(run.cancel_requested_at),
        "paused_at": micros_or_none(run.paused_at),
        "ending_cause": None if ending is None else ending.cause.value,
        "ending_at": micros_or_none(None if ending is None else ending.at),
        "finally_part": None if run.finally_part is None else _finally_json(run.finally_part),
        "launches": run.launches,
        "timeout": run.timeout,
    }


def _finally_json(part: FinallyPart) -> str:
    ending = None if part.ending is None else [part.ending.cause.value, to_micros(part.ending.at)]
    return to_json([part.state.value, to_micros(part.began_at), ending])


def _progress_values(progress: Progress) -> list[Any]:
    return [progress.current, progress.total, progress.message]


def step_row(run_id: str, step: StepRun) -> Raw:
    return {
        "run_id": run_id,
        "position": step.position,
        "step": step.id,
        "state": step.state.value,
        "reason": printable(step.reason),
        "skip_reason": None if step.skip_reason is None else step.skip_reason.value,
        "source": step.source or None,
        "attempts": step.attempts,
        "losses": step.losses,
        "evaluated": step.evaluated,
        "iteration": step.iteration,
        "attempt_id": None if step.attempt is None else step.attempt.id,
        "started_at": micros_or_none(step.started_at),
        "finished_at": micros_or_none(step.finished_at),
        "exit_code": step.exit_code,
        "error_class": None if step.error_class is None else step.error_class.value,
        "result": None if step.result is None else to_json(step.result),
        "outputs": to_json(step.outputs) if step.outputs else "{}",
        "extra": _extra_json(step),
    }


def _extra_json(step: StepRun) -> str:
    """The fields that differ from their defaults: none for most steps."""
    values = _rare(step)
    if values == _USUAL:
        return "{}"
    extra: Raw = {name: value for name, value, usual in zip(_RARE, values, _USUAL, strict=True) if value != usual}
    if "not_before" in extra:
        extra["not_before"] = to_micros(extra["not_before"])
    if "awaited" in extra:
        extra["awaited"] = _awaited_json(extra["awaited"])
    if "artifacts" in extra:
        extra["artifacts"] = [_artifact_json(artifact) for artifact in step.artifacts]
    if step.progress is not None:
        extra["progress"] = _progress_values(step.progress)
    if "item" in extra and (size := len(to_json(step.item))) > INLINE_MOST:
        del extra["item"]
        extra["item_bytes"] = size
    return to_json(extra)


_RARE = (
    "parent",
    "instances",
    "released",
    "ended",
    "item",
    "phase",
    "retries",
    "checks",
    "check_token",
    "check_exit_code",
    "fingerprint",
    "unchanged",
    "retrying",
    "retry_stopped",
    "skipped_by",
    "skip_note",
    "overdue",
    "not_before",
    "awaited",
    "artifacts",
    "spilled",
    "progress",
)
_rare = attrgetter(*_RARE)
_USUAL = _rare(StepRun(id="", index=0))


def _awaited_json(awaited: Awaited) -> Raw:
    return {
        "until": micros_or_none(awaited.until),
        "events": list(awaited.events),
        "after": awaited.after,
        "file": awaited.file,
    }


def _awaited(raw: Raw) -> Awaited:
    until = raw["until"]
    return Awaited(
        until=None if until is None else from_micros(until),
        events=tuple(raw["events"]),
        after=raw["after"],
        file=raw["file"],
    )


def _artifact_json(artifact: Artifact) -> Raw:
    raw: Raw = {
        "name": artifact.name,
        "path": artifact.path,
        "type": artifact.type,
        "files": artifact.files,
        "bytes": artifact.bytes,
    }
    if artifact.state is not AttemptState.COMPLETED:
        raw["state"] = artifact.state.value
    return raw


def _artifact(raw: Raw) -> Artifact:
    return Artifact(**raw | {"state": AttemptState(raw.get("state", AttemptState.COMPLETED))})


def letter_row(letter: DeadLetter) -> Raw:
    return {
        "id": letter.id,
        "run_id": letter.run_id,
        "workflow": letter.workflow,
        "step": letter.step,
        "attempt_id": letter.attempt_id,
        "attempts": letter.attempts,
        "error": printable(letter.error),
        "error_class": letter.error_class.value,
        "created_at": to_micros(letter.created_at),
        "state": letter.state.value,
        "resolved_at": micros_or_none(letter.resolved_at),
        "resolved_by": printable(letter.resolved_by),
        "requeued_as": letter.requeued_as,
    }


def not_started_columns(value: NotStarted | None) -> Raw:
    if value is None:
        return {"reason": None, "detail": ""}
    return {"reason": value.reason.value, "detail": printable(cut(value.detail))}


# ------------------------------------------------------------------------------------------------ from rows


def not_started_from(reason: NotStartedReason | None, detail: str) -> NotStarted | None:
    return None if reason is None else NotStarted(reason, detail)


def run_from(values: Values, steps: Mapping[str, StepRun]) -> Run:
    cause, pinned_at = values["ending_cause"], values["pinned_at"]
    return Run(
        id=values["id"],
        workflow=values["workflow"],
        version=values["version"],
        number=values["number"],
        scope=values["scope"],
        state=values["state"],
        trigger=values["triggered_by"],
        caller=values["caller"],
        priority=values["priority"],
        params=values["params"],
        params_bytes=values["params_bytes"],
        labels=values["labels"],
        created_at=values["created_at"],
        started_at=values["started_at"],
        finished_at=values["finished_at"],
        error=values["error"],
        failed_steps=values["failed_steps"],
        incomplete_steps=values["incomplete_steps"],
        ended_steps=values["ended_steps"],
        total_steps=values["total_steps"],
        step_states={StepState(state): count for state, count in values["step_states"].items()},
        current_step=values["current_step"],
        progress=None if values["progress"] is None else _progress(*values["progress"]),
        cancel_requested_at=values["cancel_requested_at"],
        paused_at=values["paused_at"],
        retry_of=values["retry_of"] or "",
        from_run=values["from_run"] or "",
        parent_run=values["parent_run"] or "",
        parent_step=values["parent_step"] or "",
        schedule=values["schedule"],
        scheduled_at=values["scheduled_at"],
        missed=tuple(map(from_micros, values["missed"])),
        event=values["event"],
        depth=values["depth"],
        pin=None if pinned_at is None else Pin(at=pinned_at, by=values["pinned_by"], note=values["pin_note"]),
        ending=None if cause is None else Ending(cause=cause, at=values["ending_at"]),
        finally_part=None if values["finally_part"] is None else _finally_part(*values["finally_part"]),
        steps=steps,
        sequence=values["sequence"],
        launches=values["launches"],
        timeout=values["timeout"],
    )


def _finally_part(state: str, began_at: int, ending: Sequence[Any] | None) -> FinallyPart:
    early = None if ending is None else Ending(cause=EndingCause(ending[0]), at=from_micros(ending[1]))
    return FinallyPart(state=RunState(state), began_at=from_micros(began_at), ending=early)


def _progress(current: float, total: float, message: str) -> Progress:
    return Progress(current=current, total=total, message=message)


def step_from(values: Values, attempt: Attempt | None) -> StepRun:
    position = values["position"]
    return StepRun(
        id=values["step"],
        index=position >> INSTANCE_BITS,
        instance=(position & _INSTANCES) - 1 if position & _INSTANCES else None,
        state=values["state"],
        reason=values["reason"],
        skip_reason=values["skip_reason"],
        source=values["source"] or "",
        attempts=values["attempts"],
        losses=values["losses"],
        evaluated=values["evaluated"],
        iteration=values["iteration"],
        attempt=attempt,
        started_at=values["started_at"],
        finished_at=values["finished_at"],
        exit_code=values["exit_code"],
        error_class=values["error_class"],
        result=values["result"],
        outputs=values["outputs"],
        **_extra(values["extra"]),
    )


def _extra(stored: Raw) -> Raw:
    """The fields from `_extra_json`. Changes `stored`, which must be freshly read."""
    if not stored:
        return stored
    if "phase" in stored:
        stored["phase"] = Phase(stored["phase"])
    if "overdue" in stored:
        stored["overdue"] = TreeCause(stored["overdue"])
    if "not_before" in stored:
        stored["not_before"] = from_micros(stored["not_before"])
    if "awaited" in stored:
        stored["awaited"] = _awaited(stored["awaited"])
    if "artifacts" in stored:
        stored["artifacts"] = tuple(_artifact(artifact) for artifact in stored["artifacts"])
    if "progress" in stored:
        stored["progress"] = _progress(*stored["progress"])
    return stored


def letter_from(values: Values) -> DeadLetter:
    return DeadLetter(**values)
