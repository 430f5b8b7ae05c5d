"""Text for runs: the name, the state, the error and the exit code."""

from __future__ import annotations

from typing import Final

from toban.cli.exits import Exit
from toban.cli.human_text import enum_word
from toban.cli.render.reason_text import run_ending, run_waits
from toban.cli.render.state_style import state_style
from toban.cli.render.title_text import differs
from toban.quantity_text import counted
from toban.v1 import run_pb2

_EXITS: Final = {
    run_pb2.RUN_STATE_SUCCEEDED: Exit.DONE,
    run_pb2.RUN_STATE_FAILED: Exit.RUN_FAILED,
    run_pb2.RUN_STATE_TIMED_OUT: Exit.RUN_TIMED_OUT,
    run_pb2.RUN_STATE_CANCELLED: Exit.RUN_CANCELLED,
}

_OPEN: Final = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)


def run_name(run: run_pb2.Run) -> str:
    """The short name of a run: `nightly-report#3`."""
    return f"{run.workflow}#{run.number}"


def run_label(run: run_pb2.Run) -> str:
    """The name of a run with the title of its workflow: `夜間バッチ (nightly-report#3)`."""
    titled = differs(run.workflow, run.workflow_title)
    return f"{run.workflow_title} ({run_name(run)})" if titled else run_name(run)


def run_state(run: run_pb2.Run) -> str:
    """The state of a run, with its ending, a pause or what it waits for."""
    word = enum_word(run_pb2.RunState, run.state)
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.failed_steps:
        return "succeeded with failures"
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.incomplete_steps:
        return "succeeded, incomplete"
    if run.state == run_pb2.RUN_STATE_RUNNING and run.HasField("finally_part"):
        return f"{word} ({_finally(run.finally_part)})"
    if run.state == run_pb2.RUN_STATE_RUNNING and run.HasField("ending"):
        return f"{word} ({run_ending(run.ending)}, ending)"
    if run.HasField("paused_at") and run.state in _OPEN:
        return f"{word} (paused)"
    if waits := run_waits(run):
        return f"{word} (waits for {waits})"
    return word


def _finally(part: run_pb2.FinallyPart) -> str:
    """The state that a run will have after its finally steps, and whether these are ending."""
    result = enum_word(run_pb2.RunState, part.state)
    if part.HasField("ending"):
        return f"{result}, finally steps {run_ending(part.ending)}, ending"
    return f"{result}, finally steps run"


def run_style(run: run_pb2.Run) -> str:
    """The color of a run's state."""
    if shortfall(run) or (run.HasField("paused_at") and run.state in _OPEN):
        return "yellow"
    return state_style(enum_word(run_pb2.RunState, run.state))


def run_error(run: run_pb2.Run) -> str:
    """The error of a run, without the state at its beginning; empty if it says no more than the state."""
    word, colon, rest = run.error_message.partition(": ")
    if word != enum_word(run_pb2.RunState, run.state):
        return run.error_message
    return rest if colon else ""


def run_exit(run: run_pb2.Run) -> Exit:
    """The exit code for the result of a run."""
    return _EXITS.get(run.state, Exit.INTERNAL)


def run_event(run: run_pb2.Run) -> str:
    """The event that started the run: `ORDER_PAID (0192…)`; empty if none did."""
    return f"{run.event_type} ({run.event_id})" if run.event_id else ""


def scope_text(run: run_pb2.Run) -> str:
    """The selection of a partial run; empty for one with all steps."""
    if run.scope != "full":
        return run.scope
    return "full, as the workflow defines it" if run.definition_scope else ""


def shortfall(run: run_pb2.Run) -> str:
    """Failures in a run that succeeded: `1 step failed, 2 steps are incomplete`; empty if there are none."""
    if run.state != run_pb2.RUN_STATE_SUCCEEDED:
        return ""
    parts = []
    if run.failed_steps:
        parts.append(f"{counted(run.failed_steps, 'step')} failed")
    if run.incomplete_steps:
        verb = "is" if run.incomplete_steps == 1 else "are"
        parts.append(f"{counted(run.incomplete_steps, 'step')} {verb} incomplete")
    return ", ".join(parts)


def progress_text(reporter: run_pb2.Run | run_pb2.Step) -> str:
    """The last progress of a run or a step, such as `5/20 (25%) rows`; empty if none was reported."""
    current, total = reporter.progress_current, reporter.progress_total
    if not (current or total or reporter.progress_message):
        return ""
    amount = f"{current:.15g}"
    if total:
        amount += f"/{total:.15g} ({int(100 * current / total)}%)"
    return f"{amount} {reporter.progress_message}".rstrip()
