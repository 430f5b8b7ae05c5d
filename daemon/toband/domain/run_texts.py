"""Texts about runs, steps and attempts for people: the only prose that a transition writes.

The domain decides by enums and flags, and never reads these texts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from toban.definition import Step, format_duration
from toban.definition.model.lock_order import LockConflict
from toband.domain.attempt_model import TreeCause
from toband.domain.retry_policy import error_said
from toband.domain.run_events import AttemptEnded, ChildEnded
from toband.domain.run_model import Awaited, EndingCause, Run, RunState, StepRun

TIMED_OUT = "timed out"
RUN_TIMED_OUT = "the run's timeout passed"
FINALLY_TIMED_OUT = "finally_timeout passed"
NOT_DECIDED = "timed out: no decision in time"
NOT_STARTED = "not started: the run was ending"
RETRY_STOPPED = "failed, and not retried: the run was ending"
NOT_KEPT = "the run was ending"
ENDED_FROM_OUTSIDE = "ended from outside: its supervisor received SIGTERM without a request"

_STOPPED = {
    EndingCause.ABORTED: "the run was aborted",
    EndingCause.CANCELLED: "the run was cancelled",
    EndingCause.TIMED_OUT: "the run timed out",
}
_FINALLY_STOPPED = {
    EndingCause.ABORTED: "another finally step failed",
    EndingCause.CANCELLED: "the finally steps were cancelled",
    EndingCause.TIMED_OUT: FINALLY_TIMED_OUT,
}


def state_text(state: RunState) -> str:
    return state.value.lower().replace("_", " ")


def lock_conflict(conflict: LockConflict) -> str:
    return (
        f"cannot wait for lock {conflict.wanted} while the run holds {conflict.held}: locks are taken in alphabetical "
        f"order; add {conflict.wanted} to the locks of the workflow"
    )


def deadlock(others: Sequence[str]) -> str:
    """Why a child run is not started. `others` are names of runs."""
    names = f"{', '.join(('this run', *others[:-1]))} and {others[-1]}"
    return f"deadlock: {names} wait for each other, because a definition was changed while they were active"


def stopped(run: Run) -> str:
    """Why a step was cancelled."""
    assert run.current_ending is not None
    texts = _STOPPED if run.finally_part is None else _FINALLY_STOPPED
    return texts[run.current_ending.cause]


def cancelled(reason: str) -> str:
    return f"cancelled: {reason}" if reason else "cancelled"


def step_failed(step: str, reason: str) -> str:
    """Why a run failed."""
    return f"step {step} failed: {reason}"


def instances_failed(first: StepRun, failed: int, instances: int) -> str:
    more = f" ({failed} of {instances} failed)" if failed > 1 else ""
    return f"{first.id}: {first.reason}{more}"


def not_complete(iterations: int, *, unchanged: bool) -> str:
    reason = f"not complete after {iterations} iteration{'s' if iterations != 1 else ''}"
    return f"{reason}: nothing changed in the last one" if unchanged else reason


def outputs_missing(names: Collection[str]) -> str:
    return f"complete, but outputs are missing: {', '.join(sorted(names))}"


def outputs_not_kept(error: str, why: str) -> str:
    """Why an attempt failed whose outputs could not be stored either."""
    return f"{error} (outputs not stored: {why})"


def check_failed(error: str) -> str:
    return f"its completion check failed: {error}"


def lost(error: str, *, check: bool, processes_left: bool) -> str:
    subject = "its completion check was lost" if check else "lost"
    rest = "; not run again, because processes that it left may still run" if processes_left else ""
    return f"{subject}: {error}{rest}"


def rejected(by: str, note: str) -> str:
    return f"rejected by {by}: {note}" if note else f"rejected by {by}"


def child_ended(event: ChildEnded) -> str:
    match event.state:
        case RunState.CANCELLED:
            return f"its run was {event.error or 'cancelled'}"
        case RunState.TIMED_OUT:
            return "its run timed out"
        case _:
            return f"its run failed: {event.error}"


def not_come(awaited: Awaited | None) -> str:
    """Why a wait failed whose timeout passed."""
    if awaited is not None and awaited.events:
        return f"timed out: no event {' or '.join(awaited.events)} that it waits for came in time"
    if awaited is not None and awaited.file:
        return f"timed out: the file {awaited.file} was not complete in time"
    return TIMED_OUT


def no_output(idle_timeout: float | None) -> str:
    # A forged record may claim it of a step that has none.
    return TIMED_OUT if idle_timeout is None else f"no output for {format_duration(idle_timeout)}"


def attempt_ended(event: AttemptEnded, definition: Step) -> str:
    """Why an attempt of that step, or of that completion check, did not succeed."""
    if event.error:
        return event.error
    match event.ending.cause:
        case TreeCause.TIMEOUT | TreeCause.LOOP_TIMEOUT:
            return TIMED_OUT
        case TreeCause.IDLE_TIMEOUT:
            return no_output(definition.idle_timeout)
        case TreeCause.RUN_TIMEOUT:
            return RUN_TIMED_OUT
        case TreeCause.FINALLY_TIMEOUT:
            return FINALLY_TIMED_OUT
        case TreeCause.CANCEL:
            return "cancelled"
        case TreeCause.LIMIT:
            return f"exceeded its limit of {event.ending.limit}"
        case TreeCause.EXITED | TreeCause.LOST:
            killed = event.signal is not None
            how = f"killed by signal {event.signal}" if killed else error_said(event) or f"exit code {event.exit_code}"
            limit = event.ending.limit
            return f"{how}; it reached its limit of {limit}" if limit else how
        case _:
            assert_never(event.ending.cause)
