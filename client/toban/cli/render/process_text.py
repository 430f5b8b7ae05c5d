"""Text for processes: the state, and a note on how the process ended."""

from __future__ import annotations

from typing import Final

from toban.cli.human_text import enum_word, took
from toban.cli.render.state_style import state_style
from toban.quantity_text import counted, size_text
from toban.v1 import run_pb2

_ORPHANS: Final = {
    run_pb2.ORPHANS_ENDED: "orphans ended",
    run_pb2.ORPHANS_LEFT: "orphans that could not be ended",
    run_pb2.ORPHANS_UNKNOWN: "orphans unknown",
}
_ACTIVE: Final = (run_pb2.PROCESS_STATE_STARTING, run_pb2.PROCESS_STATE_RUNNING)


def process_state(process: run_pb2.ProcessExecution) -> str:
    """The state of a process."""
    return enum_word(run_pb2.ProcessState, process.state)


def process_style(process: run_pb2.ProcessExecution) -> str:
    """The color of a process's state."""
    return state_style(process_state(process))


def process_note(process: run_pb2.ProcessExecution) -> str:
    """Details beside the state: the error, how the process was ended, what it left."""
    notes = [process.error_message] if process.error_message else []
    ending = process.ending
    if ending.signals:
        notes.append(f"ended with {' and '.join(ending.signals)} in {took(ending.took)}")
    if ending.leftovers:
        notes.append(f"{counted(ending.leftovers, 'process')} left over")
    if ending.survivors:
        notes.append(f"{counted(ending.survivors, 'process')} could not be killed")
    if ending.limit and ending.limit not in process.error_message:
        notes.append(f"limit: {ending.limit}")
    if ending.by_daemon:
        notes.append("the daemon ended it, because its supervisor did not respond")
    if orphans := _ORPHANS.get(ending.orphans):
        notes.append(orphans)
    if process.dropped_bytes:
        notes.append(f"{size_text(process.dropped_bytes)} of output dropped")
    return "; ".join(notes)


def output_text(process: run_pb2.ProcessExecution) -> str:
    """How much output was kept and dropped; it is counted when the process has ended."""
    if process.state in _ACTIVE:
        return "-"
    kept = size_text(process.stdout_log_bytes + process.stderr_log_bytes)
    return f"{kept}, {size_text(process.dropped_bytes)} dropped" if process.dropped_bytes else kept


def attempt_text(process: run_pb2.ProcessExecution) -> str:
    """The number of the attempt, with its iteration."""
    if process.iteration > 1:
        return f"{process.attempt} (iteration {process.iteration})"
    return str(process.attempt)


def exit_text(process: run_pb2.ProcessExecution) -> str:
    """The exit code or the signal."""
    if process.signal:
        return f"signal {process.signal}"
    return str(process.exit_code) if process.HasField("exit_code") else "-"
