"""Decides what follows an attempt: collecting outputs, its check, a retry, or the end of the step."""

from __future__ import annotations

from datetime import datetime, timedelta

from toban.definition import ErrorClass, FailurePolicy
from toband.domain import run_texts
from toband.domain.retry_policy import retry_delay
from toband.domain.run_ending import end_run, step_over
from toband.domain.run_events import AttemptEnded, CollectOutputs, KeepDeadLetter, LaunchReady
from toband.domain.run_model import Attempt, DeadLetter, EndingCause, Phase, StepRun, StepState, TreeCause
from toband.domain.run_mutation import RunMutation
from toband.domain.step_launch import launch, next_iteration_later, retry_later


def attempt_succeeded(draft: RunMutation, name: str) -> None:
    """Collects the outputs of a step, then runs its completion check."""
    definition, attempt = draft.plan.step(name), draft.steps[name].attempt
    if definition.outputs or definition.stop_when_unchanged:
        assert attempt is not None
        draft.set(name, phase=Phase.COLLECT)
        draft.effects.append(CollectOutputs(attempt=attempt, final=definition.completion_check is None))
    else:
        check_or_succeed(draft, name)


def check_or_succeed(draft: RunMutation, name: str) -> None:
    if draft.plan.step(name).completion_check is None:
        _succeed(draft, name)
    elif draft.run.current_ending is not None:
        draft.cancel(name)
        step_over(draft, name)
    else:
        _next(draft, name, Phase.CHECK)


def _next(draft: RunMutation, name: str, phase: Phase) -> None:
    """Makes a loop ready for its next attempt. The launch is another change: this one saves the attempt that ended."""
    if draft.steps[name].overdue is TreeCause.LOOP_TIMEOUT:
        fail_step(draft, name, run_texts.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT, at=draft.then)
        return
    draft.set(name, state=StepState.READY, retries=0, phase=phase)
    interval = draft.plan.step(name).interval
    if phase is Phase.NEXT and interval:
        next_iteration_later(draft, name, draft.then + timedelta(seconds=interval))
        launch(draft)  # its slot is free during the interval
    else:
        draft.effects.append(LaunchReady())


def check_ended(
    draft: RunMutation, attempt: Attempt, event: AttemptEnded, error: str, error_class: ErrorClass | None
) -> None:
    """The completion check says that the step is complete or not yet, or the check itself failed."""
    name, definition = attempt.owner, draft.plan.step(attempt.owner)
    step = draft.steps[name]
    if error_class is None:
        missing = {o.name for o in definition.outputs if not o.optional} - {
            artifact.name for artifact in step.artifacts
        }
        if missing:
            # The check passed, so another iteration would not help.
            fail_step(draft, name, run_texts.outputs_missing(missing), ErrorClass.NON_RETRYABLE, at=draft.then)
        else:
            _succeed(draft, name)
        return
    exited = event.ending.cause is TreeCause.EXITED and event.exit_code is not None
    verdict = exited and not event.error and not event.not_started
    if not verdict or error_class is not ErrorClass.RETRYABLE_TRANSIENT:
        attempt_failed(draft, name, run_texts.check_failed(error), error_class, event)
        return
    draft.set(name, check_token=attempt.token, check_exit_code=event.exit_code)
    last = step.iteration >= definition.max_iterations
    if last or step.unchanged:
        _exhausted(draft, name, last=last)
    elif draft.run.current_ending is not None:
        draft.cancel(name)
        step_over(draft, name)
    else:
        _next(draft, name, Phase.NEXT)


def _exhausted(draft: RunMutation, name: str, *, last: bool) -> None:
    definition = draft.plan.step(name)
    reason = run_texts.not_complete(draft.steps[name].iteration, unchanged=not last)
    if definition.on_iterations_exhausted is FailurePolicy.CONTINUE:
        draft.conclude(name, StepState.INCOMPLETE, reason, at=draft.then)
    else:
        draft.conclude(name, StepState.FAILED, reason, at=draft.then)
        end_run(draft, EndingCause.ABORTED, run_texts.step_failed(draft.plan.label(name), reason))
    step_over(draft, name)


def _succeed(draft: RunMutation, name: str) -> None:
    draft.conclude(name, StepState.SUCCEEDED, at=draft.then)
    step_over(draft, name)


def attempt_failed(
    draft: RunMutation, name: str, error: str, error_class: ErrorClass, event: AttemptEnded | None = None
) -> None:
    """An attempt, its check or the collection of its outputs failed: the step is retried or fails."""
    step = draft.steps[name]
    delay = retry_delay(draft.plan.step(name), step, error_class, event, draft.ids.random)
    if delay is not None:
        draft.set(name, retries=step.retries + 1)
    retry_or_fail(draft, name, error, error_class, delay)


def retry_or_fail(draft: RunMutation, name: str, error: str, error_class: ErrorClass, delay: float | None) -> None:
    """Retries a step after that many seconds; None: it fails."""
    if delay is None:
        fail_step(draft, name, error, error_class, at=draft.then)
    elif draft.run.current_ending is None:
        retry_later(draft, name, draft.at + timedelta(seconds=delay), error)
        if delay > 0:
            launch(draft)  # its slot is free during the backoff
    else:
        fail_step(draft, name, error, error_class, at=draft.then, retry_stopped=True)


def fail_step(
    draft: RunMutation,
    name: str,
    error: str,
    error_class: ErrorClass,
    at: datetime,
    *,
    retry_stopped: bool = False,
) -> None:
    """Fails a step; its policy decides whether the run ends."""
    definition = draft.plan.step(name)
    draft.set(name, error_class=error_class, retry_stopped=retry_stopped)
    draft.conclude(name, StepState.FAILED, error, at=at)
    if definition.on_failure is FailurePolicy.RETRY and not retry_stopped:
        _keep_letter(draft, draft.steps[name], error_class)
    policy = definition.final_policy
    if error_class is ErrorClass.FATAL or policy is FailurePolicy.ABORT:
        end_run(draft, EndingCause.ABORTED, run_texts.step_failed(draft.plan.label(name), error))
    step_over(draft, name)


def _keep_letter(draft: RunMutation, step: StepRun, error_class: ErrorClass) -> None:
    letter = DeadLetter(
        id=draft.ids.new_id(),
        run_id=draft.run.id,
        workflow=draft.run.workflow,
        step=step.id,
        attempt_id=step.attempt.id if step.attempt is not None else "",
        attempts=step.attempts,
        error=step.reason,
        error_class=error_class,
        created_at=draft.at,
    )
    draft.effects.append(KeepDeadLetter(letter=letter))
