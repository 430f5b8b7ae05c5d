"""Collects the outputs of an attempt that succeeded, before its completion check or the end of its step.

`partial_outputs` decides about those of an attempt that failed or was stopped.
"""

from __future__ import annotations

from toban.definition import ErrorClass
from toband.domain import run_texts
from toband.domain.attempt_outcomes import attempt_failed
from toband.domain.completion_loop import check_or_succeed, note_unchanged
from toband.domain.partial_outputs import end_partial, is_partial
from toband.domain.run_ending import step_over
from toband.domain.run_events import CollectionFailed, CollectionStopped, CollectOutputs, OutputsCollected
from toband.domain.run_model import Phase, StepRun, StepState
from toband.domain.run_mutation import RunMutation


def attempt_succeeded(draft: RunMutation, name: str) -> None:
    """Collects the outputs of a step, then runs its completion check."""
    definition, attempt = draft.plan.step(name), draft.steps[name].attempt
    if definition.outputs or definition.stop_when_unchanged:
        assert attempt is not None
        draft.set(name, phase=Phase.COLLECT)
        draft.effects.append(CollectOutputs(attempt=attempt, final=definition.completion_check is None))
    else:
        check_or_succeed(draft, name)


def outputs_collected(draft: RunMutation, event: OutputsCollected) -> None:
    step = _collecting(draft, event.step, event.token)
    if step is None:
        return
    draft.set(step.id, artifacts=event.artifacts)
    if is_partial(step):
        end_partial(draft, step)
        return
    note_unchanged(draft, step, event.fingerprint)
    check_or_succeed(draft, step.id)


def collection_failed(draft: RunMutation, event: CollectionFailed) -> None:
    step = _collecting(draft, event.step, event.token)
    if step is None:
        return
    if is_partial(step):
        end_partial(draft, step, not_kept=event.error)
        return
    draft.set(step.id, phase=Phase.RUN)
    attempt_failed(draft, step.id, event.error, ErrorClass.RETRYABLE_TRANSIENT)


def collection_stopped(draft: RunMutation, event: CollectionStopped) -> None:
    step = _collecting(draft, event.step, event.token)
    if step is None or draft.run.current_ending is None:
        return
    if is_partial(step):
        end_partial(draft, step, not_kept=run_texts.NOT_KEPT)
        return
    draft.cancel(step.id)
    step_over(draft, step.id)


def _collecting(draft: RunMutation, name: str, token: str) -> StepRun | None:
    step = draft.steps.get(name)
    if step is None or step.state is not StepState.RUNNING or step.phase is not Phase.COLLECT:
        return None
    same = step.attempt is not None and step.attempt.token == token
    return step if same else None
