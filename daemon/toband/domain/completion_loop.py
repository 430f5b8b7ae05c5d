"""The loop of a step with a completion check: another iteration, or its end.

It ends when the check passes, after `max_iterations`, or early if an iteration changed nothing in the files that
`stop_when_unchanged` watches. A failure, the end of the run and the timeout over all iterations end it too.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from toban.definition import ErrorClass, FailurePolicy
from toband.domain import run_texts
from toband.domain.attempt_model import Attempt, TreeCause
from toband.domain.attempt_outcomes import attempt_failed, fail_step, succeed_step
from toband.domain.run_ending import end_run, step_over
from toband.domain.run_events import AttemptEnded, IterationDue, LaunchReady, StartIterationTimer
from toband.domain.run_model import EndingCause, Phase, StepRun, StepState
from toband.domain.run_mutation import RunMutation
from toband.domain.step_launch import launch


def note_unchanged(draft: RunMutation, step: StepRun, fingerprint: str) -> None:
    """Compares the files that `stop_when_unchanged` watches with those after the iteration before."""
    same = bool(fingerprint) and fingerprint == step.fingerprint
    draft.set(step.id, fingerprint=fingerprint, unchanged=same)


def check_or_succeed(draft: RunMutation, name: str) -> None:
    if draft.plan.step(name).completion_check is None:
        succeed_step(draft, name)
    elif draft.run.current_ending is not None:
        draft.cancel(name)
        step_over(draft, name)
    else:
        _next(draft, name, Phase.CHECK)


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
            succeed_step(draft, name)
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


def _next(draft: RunMutation, name: str, phase: Phase) -> None:
    """Makes a loop ready for its next attempt. The launch is another change: this one saves the attempt that ended."""
    if draft.steps[name].overdue is TreeCause.LOOP_TIMEOUT:
        fail_step(draft, name, run_texts.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT, at=draft.then)
        return
    draft.set(name, state=StepState.READY, retries=0, phase=phase)
    interval = draft.plan.step(name).interval
    if phase is Phase.NEXT and interval:
        _next_iteration_later(draft, name, draft.then + timedelta(seconds=interval))
        launch(draft)  # its slot is free during the interval
    else:
        draft.effects.append(LaunchReady())


def _next_iteration_later(draft: RunMutation, name: str, due: datetime) -> None:
    """Keeps a loop from its next iteration until then; it needs no slot until then."""
    draft.set(name, not_before=due)
    draft.effects.append(StartIterationTimer(step=name, iteration=draft.steps[name].iteration, due=due))


def iteration_due(draft: RunMutation, event: IterationDue) -> None:
    step = draft.steps.get(event.step)
    if step is None or step.state is not StepState.READY or step.not_before is None:
        return
    if step.phase is Phase.NEXT and step.iteration == event.iteration:
        draft.set(step.id, not_before=None)
        launch(draft)
