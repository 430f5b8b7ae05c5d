"""States of runs, steps and processes as people read them: a word and a colour; and their exit codes."""

from __future__ import annotations

from toban.cli.exits import Exit
from toban.cli.text import count, size, state_word, took
from toban.v1 import run_pb2

_RUN_EXITS = {
    run_pb2.RUN_STATE_SUCCEEDED: Exit.DONE,
    run_pb2.RUN_STATE_FAILED: Exit.RUN_FAILED,
    run_pb2.RUN_STATE_TIMED_OUT: Exit.RUN_TIMED_OUT,
    run_pb2.RUN_STATE_CANCELLED: Exit.RUN_CANCELLED,
}

_STYLES = {
    "succeeded": "green",
    "completed": "green",
    "running": "cyan",
    "starting": "cyan",
    "failed": "red",
    "timed out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "skipped": "dim",
    "pending": "dim",
    "ready": "dim",
}


def run_state(run: run_pb2.Run) -> str:
    """The state of a run in words, with what is worth knowing beside it."""
    word = state_word(run_pb2.RunState.Name(run.state))
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.failed_steps:
        return "succeeded with failures"
    if run.state == run_pb2.RUN_STATE_RUNNING and run.HasField("ending"):
        return f"{word} ({run.ending.cause.replace('_', ' ')}, ending)"
    if run.waiting_for:
        return f"{word} (waits for {run.waiting_for})"
    return word


def step_state(step: run_pb2.Step) -> str:
    """The state of a step in words."""
    return state_word(run_pb2.StepState.Name(step.state))


def process_state(process: run_pb2.ProcessExecution) -> str:
    """The state of a process in words."""
    return state_word(run_pb2.ProcessState.Name(process.state))


def run_style(run: run_pb2.Run) -> str:
    """The colour of a run's state."""
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.failed_steps:
        return "yellow"
    return _STYLES.get(state_word(run_pb2.RunState.Name(run.state)), "")


def step_style(step: run_pb2.Step) -> str:
    """The colour of a step's state."""
    return _STYLES.get(step_state(step), "")


def process_style(process: run_pb2.ProcessExecution) -> str:
    """The colour of a process's state."""
    return _STYLES.get(process_state(process), "")


def run_exit(run: run_pb2.Run) -> Exit:
    """The exit code that tells how a run ended."""
    return _RUN_EXITS.get(run.state, Exit.INTERNAL)


def run_name(run: run_pb2.Run) -> str:
    """The short name of a run: `nightly-report#3`."""
    return f"{run.workflow}#{run.number}"


def step_note(step: run_pb2.Step) -> str:
    """What is worth knowing of a step beside its state."""
    notes = []
    if step.reason:
        notes.append(step.reason.replace("_", " ") if step.reason.isidentifier() else step.reason)
    elif step.HasField("exit_code") and step.exit_code != 0:
        notes.append(f"exit code {step.exit_code}")
    if step.attempts > 1:
        notes.append(count(step.attempts, "attempt"))
    return ", ".join(notes)


def process_note(process: run_pb2.ProcessExecution) -> str:
    """What is worth knowing of a process beside its state: why, how it was ended, what is left of it."""
    notes = [process.error_message] if process.error_message else []
    ending = process.ending
    if ending.signals:
        sent = " and ".join(ending.signals)
        notes.append(f"ended with {sent} in {took(ending.took)}")
    if ending.leftovers:
        notes.append(f"{count(ending.leftovers, 'process', 'processes')} left over")
    if ending.survivors:
        notes.append(f"{count(ending.survivors, 'process', 'processes')} would not die")
    if ending.limit and ending.limit not in process.error_message:
        notes.append(f"limit: {ending.limit}")
    if ending.orphans and ending.orphans != "none":
        notes.append(f"orphans: {ending.orphans}")
    if process.dropped_bytes:
        notes.append(f"{size(process.dropped_bytes)} of output dropped")
    return "; ".join(notes)
