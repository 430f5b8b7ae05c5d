"""Text for reasons: why a step was skipped, what a run waits for, why it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from toban.cli.human_text import clock, moment
from toban.quantity_text import duration_text
from toban.v1 import event_pb2, job_pb2, run_pb2, workflow_pb2

_SKIPPED: Final = {
    run_pb2.SKIP_REASON_WHEN: "its condition is false",
    run_pb2.SKIP_REASON_EMPTY: "no items",
    run_pb2.SKIP_REASON_SCOPE: "not selected",
    run_pb2.SKIP_REASON_UPSTREAM: "a step before it did not succeed",
    run_pb2.SKIP_REASON_ABORTED: "the run was aborted",
    run_pb2.SKIP_REASON_CANCELLED: "the run was cancelled",
    run_pb2.SKIP_REASON_TIMED_OUT: "the run timed out",
    run_pb2.SKIP_REASON_REQUESTED: "counts as succeeded",
}

_FINALLY_SKIPPED: Final = {
    run_pb2.SKIP_REASON_ABORTED: "another finally step failed",
    run_pb2.SKIP_REASON_TIMED_OUT: "finally_timeout passed",
}

_WAITING: Final = {
    run_pb2.WAITING_FOR_START: "its start",
    run_pb2.WAITING_FOR_QUEUE: "its turn",
    run_pb2.WAITING_FOR_EVENT_SLOT: "a slot for runs of events (event_concurrency)",
    run_pb2.WAITING_FOR_PROCESSES: "the end of its processes",
    run_pb2.WAITING_FOR_RESUME: "`toban runs resume`",
    run_pb2.WAITING_FOR_SLOT: "a free slot",
    run_pb2.WAITING_FOR_BACKOFF: "the next retry",
    run_pb2.WAITING_FOR_APPROVAL: "approval",
    run_pb2.WAITING_FOR_INTERVAL: "the next iteration",
    run_pb2.WAITING_FOR_LOCK: "locks",
    run_pb2.WAITING_FOR_TIME: "a time",
    run_pb2.WAITING_FOR_EVENT: "an event",
    run_pb2.WAITING_FOR_FILE: "a file",
}

AWAITING: Final = frozenset({run_pb2.WAITING_FOR_TIME, run_pb2.WAITING_FOR_EVENT, run_pb2.WAITING_FOR_FILE})
"""What a `wait` step waits for."""

_NOT_STARTED: Final = {
    workflow_pb2.NOT_STARTED_REASON_DELETED: "the workflow was deleted",
    workflow_pb2.NOT_STARTED_REASON_DISABLED: "disabled",
    workflow_pb2.NOT_STARTED_REASON_DRAINING: "draining",
    workflow_pb2.NOT_STARTED_REASON_BLACKOUT: "blackout {}",
    workflow_pb2.NOT_STARTED_REASON_OVERLAP: "overlap: {}",
    workflow_pb2.NOT_STARTED_REASON_INVALID_PARAMS: "parameters: {}",
    workflow_pb2.NOT_STARTED_REASON_MISFIRE_SKIP: "{}, and `misfire: skip` does not catch up",
    workflow_pb2.NOT_STARTED_REASON_MISFIRE_GRACE: "misfire_grace: {}",
    workflow_pb2.NOT_STARTED_REASON_DEBOUNCED: "debounce: {}",
    workflow_pb2.NOT_STARTED_REASON_THROTTLED: "throttle: {}",
    workflow_pb2.NOT_STARTED_REASON_DECIDED_BEFORE: "the due time was decided before",
}

_ENDING: Final = {
    run_pb2.RUN_ENDING_CAUSE_ABORTED: "aborted",
    run_pb2.RUN_ENDING_CAUSE_CANCELLED: "cancelled",
    run_pb2.RUN_ENDING_CAUSE_TIMED_OUT: "timed out",
}


def skip_reason(reason: run_pb2.SkipReason.ValueType, *, finally_step: bool = False) -> str:
    """Why a step was skipped; empty if it was not."""
    return (finally_step and _FINALLY_SKIPPED.get(reason)) or _SKIPPED.get(reason, "")


def run_ending(ending: run_pb2.RunEnding) -> str:
    """Why a run is ending."""
    return _ENDING.get(ending.cause, "")


def run_waits(run: run_pb2.Run) -> str:
    """What a run waits for, and which of its steps; empty if it makes progress."""
    waits = lock_waits(run.waiting_for_locks) or _WAITING.get(run.waiting_for, "")
    if waits and run.waiting_for in AWAITING:
        what = "step" if len(run.waiting_steps) == 1 else "steps"
        return f"{waits} ({what} {', '.join(run.waiting_steps)})" if run.waiting_steps else waits
    return f"{waits} for {', '.join(run.waiting_steps)}" if waits and run.waiting_steps else waits


def step_waits(step: run_pb2.Step, now: datetime | None = None) -> str:
    """What a step waits for; empty if it does not wait."""
    if step.HasField("awaited"):
        return _awaits(step.awaited, now or datetime.now(UTC))
    waits = lock_waits(step.waiting_for_locks) or _WAITING.get(step.waiting_for, "")
    approval = step.waiting_for == run_pb2.WAITING_FOR_APPROVAL
    return f"{waits} by {', '.join(step.approvers)}" if approval and step.approvers else waits


def lock_user(user: run_pb2.LockUser) -> str:
    """`nightly#12`, with the step that holds the lock or waits for it."""
    run = f"{user.workflow}#{user.run_number}" if user.workflow else user.run_id
    return f"{run} step {user.step}" if user.step else run


def lock_waits(locks: Iterable[run_pb2.LockWait]) -> str:
    """The locks that a run or a step waits for, with their holders; empty if it waits for none."""
    return ", ".join(f"lock {each.lock}{_held_by(each.held_by)}" for each in locks)


def _held_by(users: Sequence[run_pb2.LockUser]) -> str:
    return f" (held by {', '.join(map(lock_user, users))})" if users else ""


def _awaits(awaited: run_pb2.Awaited, now: datetime) -> str:
    until = moment(awaited.until)
    if until is not None:
        text = clock(awaited.until)
        if until > now:
            text += f" (in {duration_text(until - now)})"
    elif awaited.event_types:
        text = f"the event {' or '.join(awaited.event_types)}"
    else:
        text = f"the file {awaited.file}"
    return f"{text} until {clock(awaited.timeout_at)}" if awaited.HasField("timeout_at") else text


def owner(of: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """Who owns a definition: `api`, or a file."""
    match of.owner_kind:
        case workflow_pb2.OWNER_KIND_FILE:
            return of.owner_path
        case workflow_pb2.OWNER_KIND_REMOVED_FILE:
            return f"{of.owner_path} (removed)"
        case _:
            return "api"


def not_started(of: workflow_pb2.Fire | event_pb2.EventRun) -> str:
    """Why a schedule or an event did not start a run; empty if it did."""
    return _NOT_STARTED.get(of.reason, "{}").format(of.detail)
