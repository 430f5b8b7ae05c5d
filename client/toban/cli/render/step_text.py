"""Text for steps: the state, a note, a line for a change, and a count of states."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from toban.cli.human_text import enum_word, moment, one_line, span
from toban.cli.render.reason_text import AWAITING, skip_reason, step_waits
from toban.cli.render.state_style import state_style
from toban.cli.render.title_text import label
from toban.quantity_text import counted, duration_text
from toban.v1 import run_pb2

# The order in which `tally` counts states.
_COUNTED: Final = (
    run_pb2.STEP_STATE_FAILED,
    run_pb2.STEP_STATE_INCOMPLETE,
    run_pb2.STEP_STATE_CANCELLED,
    run_pb2.STEP_STATE_RUNNING,
    run_pb2.STEP_STATE_CHECKING,
    run_pb2.STEP_STATE_READY,
    run_pb2.STEP_STATE_SUCCEEDED,
    run_pb2.STEP_STATE_SKIPPED,
    run_pb2.STEP_STATE_PENDING,
)

ACTIVE_STEPS: Final = frozenset({run_pb2.STEP_STATE_RUNNING, run_pb2.STEP_STATE_CHECKING})

# The suffix of a step's name that means its completion check.
CHECK: Final = ".check"


def step_state(step: run_pb2.Step) -> str:
    """The state of a step."""
    return enum_word(run_pb2.StepState, step.state)


def step_style(step: run_pb2.Step) -> str:
    """The color of a step's state."""
    return state_style(step_state(step))


def step_label(step: run_pb2.Step) -> str:
    """The id of a step, with its title if it has one."""
    return label(step.id, step.title)


def step_line(step: run_pb2.Step, names: Mapping[str, str]) -> str:
    """One line for a change of a step: its state, how long it took, and why. `names` as for `step_note`."""
    if step.waiting_for == run_pb2.WAITING_FOR_INTERVAL:
        return one_line(f"{step_label(step)}: iteration {step.iteration} was not complete, {_later(step, None)}")
    if retry := _later(step, None):
        return one_line(f"{step_label(step)}: attempt {step.attempts} failed ({_reason(step)}), {retry}")
    text = f"{step_label(step)} {step_state(step)}"
    if step.HasField("started_at") and step.HasField("finished_at"):
        text += f" after {span(step.started_at, step.finished_at, datetime.now(UTC))}"
    note = step_note(step, names=names)
    return one_line(f"{text}: {note}" if note else text)


def step_note(
    step: run_pb2.Step,
    *,
    now: datetime | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """Details beside the state of a step. `names` are names of other runs by id, if known."""
    notes = ["finally"] if step.is_finally and not step.parent else []
    if step.max_iterations and step.iteration and not _exhausted(step):
        notes.append(f"iteration {step.iteration}/{step.max_iterations}")
    if why := _decision(step) or _came(step) or _reason(step):
        notes.append(why)
    if later := _later(step, now):
        notes.append(later)
    elif waits := step_waits(step, now):
        notes.append(f"waits for {waits}")
    if step.source_run:
        other = "an earlier run" if names is None else names.get(step.source_run, step.source_run)
        skipped = step.state == run_pb2.STEP_STATE_SKIPPED
        notes.append(f"results of {other}" if skipped else f"kept from {other}")
    if step.child_run:
        notes.append(f"child run {(names or {}).get(step.child_run, step.child_run)}")
    # One attempt per iteration is normal.
    if step.attempts > max(step.iteration, 1) and not (step.source_run or step.instances):
        notes.append(counted(step.attempts, "attempt"))
    return ", ".join(notes)


def waits_for_something(step: run_pb2.Step) -> bool:
    """Whether a `wait` step waits for a time, an event or a file."""
    return step.state == run_pb2.STEP_STATE_RUNNING and step.waiting_for in AWAITING


def needs_approval(step: run_pb2.Step) -> bool:
    """Whether the step waits for a person's decision."""
    return step.state == run_pb2.STEP_STATE_RUNNING and step.waiting_for == run_pb2.WAITING_FOR_APPROVAL


def tally(steps: Iterable[run_pb2.Step]) -> str:
    """Counts of states, failures first: `1 failed, 2 running, 40 succeeded`."""
    return _counts_text(Counter(step.state for step in steps))


def summary_text(summary: run_pb2.RunSummary) -> str:
    """As `tally`, for all steps of a run."""
    return _counts_text({each.state: each.count for each in summary.counts})


def _counts_text(counts: Mapping[run_pb2.StepState.ValueType, int]) -> str:
    """Counts of states, failures first."""
    return ", ".join(
        f"{counts[state]} {enum_word(run_pb2.StepState, state)}" for state in _COUNTED if counts.get(state)
    )


def typed(step: str) -> str:
    """The name of a step, quoted for a shell: the brackets of an instance are a pattern there."""
    return shlex.quote(step)


def step_order(step: run_pb2.Step) -> tuple[int, int]:
    """Sort key: the order of the definition, instances after their step."""
    return (step.index, step.instance + 1 if step.HasField("instance") else 0)


def _reason(step: run_pb2.Step) -> str:
    if step.skip_reason == run_pb2.SKIP_REASON_REQUESTED:
        failure = f" ({step.reason})" if step.reason else ""
        return f"skipped by {step.skipped_by}: {step.skip_note}{failure}"
    if why := skip_reason(step.skip_reason, finally_step=step.is_finally) or step.reason:
        return why
    return f"exit code {step.exit_code}" if step.HasField("exit_code") and step.exit_code != 0 else ""


def _decision(step: run_pb2.Step) -> str:
    """Who approved or rejected the step, with their note; empty if it was not decided."""
    if step.job_type != run_pb2.JOB_TYPE_APPROVAL or not step.result_json:
        return ""
    try:
        result = json.loads(step.result_json)
        word = "approved" if result["approved"] else "rejected"
        note = f": {result['note']}" if result.get("note") else ""
        return f"{word} by {result['by']}{note}"
    except (ValueError, TypeError, KeyError):
        return ""


def _came(step: run_pb2.Step) -> str:
    """What ended a wait; empty for every other step."""
    if step.job_type != run_pb2.JOB_TYPE_WAIT or not step.result_json:
        return ""
    try:
        result = json.loads(step.result_json)
        match result["reason"]:
            case "event":
                return f"event {result['event']['type']} {result['event']['id']}"
            case "file":
                return f"file {result['file']}"
            case _:
                return ""
    except (ValueError, TypeError, KeyError):
        return ""


def _exhausted(step: run_pb2.Step) -> bool:
    """Whether the last iteration was not complete: the reason then has the number of iterations."""
    failed = step.state == run_pb2.STEP_STATE_FAILED and not step.error_class
    return failed or step.state == run_pb2.STEP_STATE_INCOMPLETE


def _later(step: run_pb2.Step, now: datetime | None) -> str:
    """When a failed step is retried, or a loop goes on; empty if it waits for neither time."""
    at = moment(step.not_before)
    if step.state != run_pb2.STEP_STATE_READY or at is None:
        return ""
    what = "next iteration" if step.waiting_for == run_pb2.WAITING_FOR_INTERVAL else "retrying"
    left = at - (now or datetime.now(UTC))
    return f"{what} in {duration_text(left)}" if left.total_seconds() > 0 else f"{what} now"
