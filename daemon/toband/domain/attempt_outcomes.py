"""How an attempt ends its step: success, or a failure that is retried or final."""

from __future__ import annotations

from datetime import datetime, timedelta

from toban.definition import ErrorClass, FailurePolicy
from toband.domain import run_texts
from toband.domain.retry_policy import retry_delay
from toband.domain.run_ending import end_run, step_over
from toband.domain.run_events import AttemptEnded, KeepDeadLetter
from toband.domain.run_model import DeadLetter, EndingCause, StepRun, StepState
from toband.domain.run_mutation import RunMutation
from toband.domain.step_launch import launch, retry_later


def succeed_step(draft: RunMutation, name: str) -> None:
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
