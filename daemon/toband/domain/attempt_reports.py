"""What a report about an attempt means for its step: it started, ended, was lost, or was never started."""

from __future__ import annotations

from dataclasses import replace

from toban.definition import ErrorClass
from toband.domain import run_texts
from toband.domain.attempt_model import Attempt, AttemptState, Progress, TreeCause, TreeEnding
from toband.domain.attempt_outcomes import attempt_failed, retry_or_fail
from toband.domain.completion_loop import check_ended
from toband.domain.error_class import classify
from toband.domain.output_collection import attempt_succeeded
from toband.domain.partial_outputs import collect_partial
from toband.domain.retry_policy import error_said, may_rerun
from toband.domain.run_ending import end_run, step_over
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    ChildEnded,
    LaunchAttempt,
)
from toband.domain.run_model import EndingCause, RunState, StepRun, StepState
from toband.domain.run_mutation import RunMutation

_RUN_TIMEOUTS = (TreeCause.RUN_TIMEOUT, TreeCause.FINALLY_TIMEOUT)
_TIMEOUTS = (TreeCause.TIMEOUT, TreeCause.IDLE_TIMEOUT, TreeCause.LOOP_TIMEOUT, *_RUN_TIMEOUTS)


def attempt_started(draft: RunMutation, event: AttemptStarted) -> None:
    attempt = _live(draft, event.step, event.token)
    if attempt is None or attempt.state is not AttemptState.STARTING:
        return
    draft.set_attempt(
        attempt,
        state=AttemptState.RUNNING,
        pid=event.pid,
        started_at=event.started_at,
        command=event.command or attempt.command,
    )


def attempt_ended(draft: RunMutation, event: AttemptEnded) -> None:
    attempt = _live(draft, event.step, event.token)
    if attempt is None:
        return
    definition = draft.plan.definition(attempt.step)
    draft.then = min(draft.at, event.finished_at)
    _reported(draft, attempt, event.progress)
    run_ending = draft.run.current_ending
    timed_out = run_ending is not None and run_ending.cause is EndingCause.TIMED_OUT
    if timed_out and event.ending.cause is TreeCause.CANCEL:
        # The daemon and the shim both enforce the run's timeout: the cause is the same, whichever was faster.
        same = TreeCause.RUN_TIMEOUT if draft.run.finally_part is None else TreeCause.FINALLY_TIMEOUT
        event = replace(event, ending=replace(event.ending, cause=same))
    cause = event.ending.cause
    own = cause is TreeCause.EXITED
    # An error of the supervisor itself is a failure: outputs may be lost.
    fine = own and not event.not_started and not event.error
    succeeded = fine and event.exit_code in definition.success_codes
    # The shim may report first that the run's timeout has passed.
    stopped = cause in _RUN_TIMEOUTS or (cause is TreeCause.CANCEL and run_ending is not None)
    error_class = None if succeeded or stopped else classify(definition, event)
    error = "" if succeeded else run_texts.attempt_ended(event, definition)
    if cause is TreeCause.CANCEL and run_ending is None:
        error = run_texts.ENDED_FROM_OUTSIDE
    if cause in _TIMEOUTS:
        state = AttemptState.TIMED_OUT
    elif cause is TreeCause.CANCEL:
        state = AttemptState.CANCELLED
    else:
        state = AttemptState.COMPLETED if succeeded else AttemptState.FAILED
    draft.set_attempt(
        attempt,
        state=state,
        command=event.command or attempt.command,
        pid=event.pid,
        exit_code=event.exit_code,
        signal=event.signal,
        error=error if not own or event.not_started or event.error or error_said(event) else "",
        error_class=error_class,
        ending=event.ending,
        started_at=event.started_at,
        finished_at=event.finished_at,
        resources=event.resources,
        stdout_bytes=event.stdout_bytes,
        stderr_bytes=event.stderr_bytes,
        dropped_bytes=event.dropped_bytes,
    )
    if not attempt.check:
        draft.set(
            attempt.owner,
            exit_code=event.exit_code,
            result=event.result,
            outputs=event.outputs,
            spilled=event.spilled,
        )
    if cause in _RUN_TIMEOUTS:
        end_run(draft, EndingCause.TIMED_OUT, run_texts.RUN_TIMED_OUT)
    if not succeeded and not attempt.check and not event.not_started and definition.outputs:
        collect_partial(draft, attempt.owner)
    elif stopped:
        draft.conclude(attempt.owner, StepState.CANCELLED, error, at=event.finished_at)
        step_over(draft, attempt.owner)
    elif attempt.check:
        check_ended(draft, attempt, event, error, error_class)
    elif succeeded:
        attempt_succeeded(draft, attempt.owner)
    else:
        assert error_class is not None
        attempt_failed(draft, attempt.owner, error, error_class, event)


def _reported(draft: RunMutation, attempt: Attempt, progress: Progress | None) -> None:
    """Keeps the last progress of an attempt, and forgets that of the attempt before. The run keeps the last of all."""
    if progress is not None:
        draft.set_run(progress=progress)
    if not attempt.check:
        draft.set(attempt.owner, progress=progress)


def attempt_lost(draft: RunMutation, event: AttemptLost) -> None:
    attempt = _live(draft, event.step, event.token)
    if attempt is None:
        return
    draft.set_attempt(
        attempt,
        state=AttemptState.LOST,
        error=event.error,
        error_class=ErrorClass.NON_RETRYABLE,
        ending=TreeEnding(cause=TreeCause.LOST, orphans=event.orphans),
        finished_at=draft.at,
    )
    step = draft.steps[attempt.owner]
    draft.set(step.id, losses=step.losses + 1)
    _reported(draft, attempt, event.progress)
    rerun = may_rerun(draft.plan.step(step.id), step)
    again = rerun and event.orphans.gone
    error = run_texts.lost(event.error, check=attempt.check, processes_left=rerun and not again)
    retry_or_fail(draft, step.id, error, ErrorClass.NON_RETRYABLE, 0.0 if again else None)


def attempt_voided(draft: RunMutation, event: AttemptVoided) -> None:
    """Launches the attempt again under a new token, unless the run is ending."""
    attempt = _live(draft, event.step, event.token)
    if attempt is None:
        return
    if draft.run.current_ending is not None:
        cause = draft.run.current_ending.cause
        draft.set_attempt(attempt, state=AttemptState.CANCELLED, error=run_texts.NOT_STARTED, finished_at=draft.at)
        _never_began(draft, draft.steps[attempt.owner], cause)
        step_over(draft, attempt.owner)
        return
    draft.set_attempt(attempt, token=draft.ids.new_token(), boot_id=draft.ids.boot_id)
    again = draft.steps[attempt.owner].attempt
    assert again is not None
    draft.effects.append(LaunchAttempt(attempt=again))


def _never_began(draft: RunMutation, step: StepRun, cause: EndingCause) -> None:
    """Ends a step whose next attempt never began: it is as before that attempt."""
    if step.retries or step.losses:
        draft.stop_retry(step.id, run_texts.RETRY_STOPPED)
    elif step.attempts > 1 or step.checks:
        draft.cancel(step.id)
    else:
        draft.set(step.id, started_at=None)
        draft.skip(step.id, cause.skip_reason)


def _live(draft: RunMutation, name: str, token: str) -> Attempt | None:
    """The attempt of a report, if it is the current attempt of its step and has not ended."""
    found = draft.steps.get(name.removesuffix(".check"))
    attempt = found.attempt if found is not None else None
    if attempt is None or attempt.token != token or attempt.state.terminal:
        return None
    return attempt if attempt.run_id == draft.run.id else None


def child_ended(draft: RunMutation, event: ChildEnded) -> None:
    attempt = _live(draft, event.step, event.token)
    if attempt is None:
        return
    draft.then = min(draft.at, event.finished_at)
    name = attempt.owner
    result = {"run_id": attempt.id, "number": event.number, "state": event.state.value}
    timed_out = draft.steps[name].overdue is TreeCause.TIMEOUT
    error, error_class = run_texts.child_ended(event), ErrorClass.RETRYABLE_TRANSIENT
    stopped = False
    match event.state:
        case RunState.SUCCEEDED:
            state, error = AttemptState.COMPLETED, ""
        case RunState.CANCELLED if timed_out:
            state, error = AttemptState.TIMED_OUT, run_texts.TIMED_OUT
        case RunState.CANCELLED:
            state = AttemptState.CANCELLED
            stopped = draft.run.current_ending is not None
            error_class = ErrorClass.NON_RETRYABLE
        case _:
            state = AttemptState.FAILED
    succeeded = state is AttemptState.COMPLETED
    draft.set_attempt(
        attempt,
        state=state,
        error=error,
        started_at=event.started_at,
        finished_at=event.finished_at,
        error_class=None if succeeded or stopped else error_class,
    )
    draft.set(name, result=result)
    if succeeded:
        attempt_succeeded(draft, name)
    elif stopped:
        draft.conclude(name, StepState.CANCELLED, error, at=event.finished_at)
        step_over(draft, name)
    else:
        attempt_failed(draft, name, error, error_class)
