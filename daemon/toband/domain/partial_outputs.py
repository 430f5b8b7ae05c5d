"""Outputs of an attempt that failed or was stopped: those that exist are collected before its failure takes effect.

The attempt as stored says what follows, so a restart during the collection loses nothing.
"""

from __future__ import annotations

from toband.domain import run_texts
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.attempt_outcomes import attempt_failed
from toband.domain.run_ending import step_over
from toband.domain.run_events import AttemptEnded, CollectOutputs
from toband.domain.run_model import Phase, StepRun, StepState
from toband.domain.run_mutation import RunMutation


def collect_partial(draft: RunMutation, name: str) -> None:
    attempt = draft.steps[name].attempt
    assert attempt is not None
    draft.set(name, phase=Phase.COLLECT)
    draft.effects.append(CollectOutputs(attempt=attempt, final=False))


def is_partial(step: StepRun) -> bool:
    """Whether the outputs that are being collected are of an attempt that did not succeed."""
    assert step.attempt is not None
    return step.attempt.state is not AttemptState.COMPLETED


def was_stopped(step: StepRun) -> bool:
    """Whether the end of the run stopped the attempt whose outputs are being collected."""
    return is_partial(step) and step.attempt is not None and step.attempt.error_class is None


def end_partial(draft: RunMutation, step: StepRun, *, not_kept: str = "") -> None:
    """Continues with the attempt's failure, or ends the step that was stopped."""
    attempt = step.attempt
    assert attempt is not None
    event = _end_of(attempt, step)
    error = attempt.error or run_texts.attempt_ended(event, draft.plan.definition(attempt.step))
    if not_kept:
        error = run_texts.outputs_not_kept(error, not_kept)
    draft.set(step.id, phase=Phase.RUN)
    if attempt.error_class is None:
        draft.conclude(step.id, StepState.CANCELLED, error, at=draft.then)
        step_over(draft, step.id)
    else:
        attempt_failed(draft, step.id, error, attempt.error_class, event)


def _end_of(attempt: Attempt, step: StepRun) -> AttemptEnded:
    """The parts of the stored end that decide about a retry."""
    assert attempt.ending is not None
    return AttemptEnded(
        step=attempt.step,
        token=attempt.token,
        ending=attempt.ending,
        started_at=attempt.started_at or attempt.created_at,
        finished_at=attempt.finished_at or attempt.created_at,
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        outputs=step.outputs,
    )
