"""States of runs, steps and processes as people read them: a word and a colour; and their exit codes."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from toban.cli.exits import Exit
from toban.cli.human_text import moment, state_word, took
from toban.cli.render.reason_words import run_ending, run_waits, skip_reason, step_waits
from toban.quantity_text import counted, duration_text, size_text
from toban.v1 import run_pb2

_RUN_EXITS = {
    run_pb2.RUN_STATE_SUCCEEDED: Exit.DONE,
    run_pb2.RUN_STATE_FAILED: Exit.RUN_FAILED,
    run_pb2.RUN_STATE_TIMED_OUT: Exit.RUN_TIMED_OUT,
    run_pb2.RUN_STATE_CANCELLED: Exit.RUN_CANCELLED,
}

_OPEN_RUNS: Final = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)

_STYLES = {
    "succeeded": "green",
    "completed": "green",
    "running": "cyan",
    "checking": "cyan",
    "starting": "cyan",
    "failed": "red",
    "timed out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "incomplete": "yellow",
    "skipped": "dim",
    "pending": "dim",
    "ready": "dim",
}

# The order in which the states of many steps are counted up.
_TOLD_FIRST: Final = (
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

# What a completion check adds to the name of its step.
CHECK: Final = ".check"


def run_state(run: run_pb2.Run) -> str:
    """The state of a run in words, with what is worth knowing beside it."""
    word = state_word(run_pb2.RunState.Name(run.state))
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.failed_steps:
        return "succeeded with failures"
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.incomplete_steps:
        return "succeeded, incomplete"
    if run.state == run_pb2.RUN_STATE_RUNNING and run.HasField("ending"):
        return f"{word} ({run_ending(run.ending)}, ending)"
    if run.HasField("paused_at") and run.state in _OPEN_RUNS:
        return f"{word} (paused)"
    if waits := run_waits(run):
        return f"{word} (waits for {waits})"
    return word


def shortfall(run: run_pb2.Run) -> str:
    """What is missing from a success: `1 step failed, 2 steps are incomplete`; empty if nothing is."""
    if run.state != run_pb2.RUN_STATE_SUCCEEDED:
        return ""
    parts = []
    if run.failed_steps:
        parts.append(f"{counted(run.failed_steps, 'step')} failed")
    if run.incomplete_steps:
        verb = "is" if run.incomplete_steps == 1 else "are"
        parts.append(f"{counted(run.incomplete_steps, 'step')} {verb} incomplete")
    return ", ".join(parts)


def step_state(step: run_pb2.Step) -> str:
    """The state of a step in words."""
    return state_word(run_pb2.StepState.Name(step.state))


def process_state(process: run_pb2.ProcessExecution) -> str:
    """The state of a process in words."""
    return state_word(run_pb2.ProcessState.Name(process.state))


def run_style(run: run_pb2.Run) -> str:
    """The colour of a run's state."""
    if shortfall(run) or (run.HasField("paused_at") and run.state in _OPEN_RUNS):
        return "yellow"
    return _STYLES.get(state_word(run_pb2.RunState.Name(run.state)), "")


def step_style(step: run_pb2.Step) -> str:
    """The colour of a step's state."""
    return _STYLES.get(step_state(step), "")


def word_style(word: str) -> str:
    """The colour of a state that is known as a word."""
    return _STYLES.get(word, "")


def process_style(process: run_pb2.ProcessExecution) -> str:
    """The colour of a process's state."""
    return _STYLES.get(process_state(process), "")


def run_exit(run: run_pb2.Run) -> Exit:
    """The exit code that tells how a run ended."""
    return _RUN_EXITS.get(run.state, Exit.INTERNAL)


def run_name(run: run_pb2.Run) -> str:
    """The short name of a run: `nightly-report#3`."""
    return f"{run.workflow}#{run.number}"


def run_event(run: run_pb2.Run) -> str:
    """The event that started it: `ORDER_PAID (0192…)`; empty if none did."""
    return f"{run.event_type} ({run.event_id})" if run.event_id else ""


def step_note(
    step: run_pb2.Step,
    *,
    now: datetime | None = None,
    names: Mapping[str, str] | None = None,
) -> str:
    """What is worth knowing of a step beside its state. `names` are those of other runs, by id, if they are known."""
    notes = []
    if step.max_iterations and step.iteration and not _exhausted(step):
        notes.append(f"iteration {step.iteration}/{step.max_iterations}")
    if decision := _decision(step):
        notes.append(decision)
    elif why := skip_reason(step.skip_reason) or step.reason:
        notes.append(why)
    elif step.HasField("exit_code") and step.exit_code != 0:
        notes.append(f"exit code {step.exit_code}")
    wait = _back_off(step, now)
    if wait:
        notes.append(wait)
    elif waits := step_waits(step):
        notes.append(f"waits for {waits}")
    if step.source_run:
        other = "an earlier run" if names is None else names.get(step.source_run, step.source_run)
        skipped = step.state == run_pb2.STEP_STATE_SKIPPED
        notes.append(f"results of {other}" if skipped else f"kept from {other}")
    if step.child_run:
        notes.append(f"child {(names or {}).get(step.child_run, step.child_run)}")
    # An attempt in each iteration is no more than was to be expected.
    if step.attempts > max(step.iteration, 1) and not (step.source_run or step.instances):
        notes.append(counted(step.attempts, "attempt"))
    return ", ".join(notes)


def _decision(step: run_pb2.Step) -> str:
    """Who approved or rejected it, and what they said; empty if nobody did."""
    if step.job_type != run_pb2.JOB_TYPE_APPROVAL or not step.result_json:
        return ""
    try:
        result = json.loads(step.result_json)
        word = "approved" if result["approved"] else "rejected"
        said = f": {result['note']}" if result.get("note") else ""
        return f"{word} by {result['by']}{said}"
    except (ValueError, TypeError, KeyError):
        return ""


def _exhausted(step: run_pb2.Step) -> bool:
    """Whether its last iteration was not complete: its reason then says how many there were."""
    failed = step.state == run_pb2.STEP_STATE_FAILED and not step.error_class
    return failed or step.state == run_pb2.STEP_STATE_INCOMPLETE


def _back_off(step: run_pb2.Step, now: datetime | None) -> str:
    """When a step that failed is tried again; nothing if it is not in a back-off."""
    at = moment(step.not_before)
    if step.state != run_pb2.STEP_STATE_READY or at is None:
        return ""
    left = at - (now or datetime.now(UTC))
    if left.total_seconds() <= 0:
        return "retries now"
    return f"retries in {duration_text(left)}"


def needs_approval(step: run_pb2.Step) -> bool:
    """Whether it goes on when a person says so."""
    return step.state == run_pb2.STEP_STATE_RUNNING and step.waiting_for == run_pb2.WAITING_FOR_APPROVAL


def tally(steps: Iterable[run_pb2.Step]) -> str:
    """Many steps by their states, what matters first: `1 failed, 2 running, 40 succeeded`."""
    counts = Counter(step.state for step in steps)
    return ", ".join(
        f"{counts[state]} {state_word(run_pb2.StepState.Name(state))}" for state in _TOLD_FIRST if counts[state]
    )


def typed(step: str) -> str:
    """The name of a step as it is typed: a shell would take the brackets of an instance for a pattern."""
    return shlex.quote(step)


def place(step: run_pb2.Step) -> tuple[int, int]:
    """Sorts steps as the definition has them, each one's instances behind it."""
    return (step.index, step.instance + 1 if step.HasField("instance") else 0)


_ORPHANS: Final = {
    run_pb2.ORPHANS_ENDED: "orphans ended",
    run_pb2.ORPHANS_LEFT: "orphans that could not be ended",
    run_pb2.ORPHANS_UNKNOWN: "orphans unknown",
}


def process_note(process: run_pb2.ProcessExecution) -> str:
    """What is worth knowing of a process beside its state: why, how it was ended, what is left of it."""
    notes = [process.error_message] if process.error_message else []
    ending = process.ending
    if ending.signals:
        sent = " and ".join(ending.signals)
        notes.append(f"ended with {sent} in {took(ending.took)}")
    if ending.leftovers:
        notes.append(f"{counted(ending.leftovers, 'process')} left over")
    if ending.survivors:
        notes.append(f"{counted(ending.survivors, 'process')} would not die")
    if ending.limit and ending.limit not in process.error_message:
        notes.append(f"limit: {ending.limit}")
    if ending.by_daemon:
        notes.append("its supervisor did not act: the daemon ended it")
    if orphans := _ORPHANS.get(ending.orphans):
        notes.append(orphans)
    if process.dropped_bytes:
        notes.append(f"{size_text(process.dropped_bytes)} of output dropped")
    return "; ".join(notes)
