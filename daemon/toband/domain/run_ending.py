"""Ends steps and runs: the steps that continue or are stopped, and the final state."""

from __future__ import annotations

from toban.definition import FailurePolicy
from toband.domain import for_each, run_texts
from toband.domain.retry_policy import ends_badly
from toband.domain.run_events import ForgetRun, StopAttempt, StopCollection
from toband.domain.run_model import Ending, EndingCause, Phase, RunState, StepRun, StepState
from toband.domain.run_mutation import RunMutation
from toband.domain.step_launch import launch, settle

_FINAL = {
    EndingCause.ABORTED: RunState.FAILED,
    EndingCause.CANCELLED: RunState.CANCELLED,
    EndingCause.TIMED_OUT: RunState.TIMED_OUT,
}


def step_over(draft: RunMutation, name: str) -> None:
    """Continues after the end of a step or an instance."""
    parent = draft.steps[name].parent
    if not parent:
        advance(draft, name)
    elif not _close_group(draft, parent):
        launch(draft)


def advance(draft: RunMutation, name: str) -> None:
    """Continues with the steps that depend on a step that has ended, and with its slot."""
    if draft.run.ending is None:
        # `settle` takes them from the end.
        settle(draft, draft.plan.dependents[name][::-1])
        launch(draft)


def _close_group(draft: RunMutation, name: str) -> bool:
    """Ends a `for_each` step when the last of its instances has ended. Returns whether it has."""
    group = draft.steps[name]
    if group.state.terminal or group.ended < group.instances:
        return group.state.terminal
    result = for_each.result_of(draft, group)
    draft.set(name, attempts=result.attempts, error_class=result.error_class)
    draft.conclude(name, result.state, result.reason, at=result.finished_at)
    advance(draft, name)
    return True


def end_run(draft: RunMutation, cause: EndingCause, error: str) -> None:
    """Ends a run early: stops the steps that run and skips those that wait. The first cause fixes the final state."""
    if draft.run.ending is not None:
        return
    draft.set_run(ending=Ending(cause=cause, at=draft.then), error=error)
    for step in draft.steps.values():
        if not step.state.terminal:
            _end_step(draft, step, cause)
    for name in list(draft.index.moving):
        if draft.steps[name].phase is Phase.GROUP:
            _close_group(draft, name)


def _end_step(draft: RunMutation, step: StepRun, cause: EndingCause) -> None:
    live = step.attempt is not None and not step.attempt.state.terminal
    if live:
        assert step.attempt is not None
        draft.effects.append(StopAttempt(attempt=step.attempt))
    elif step.phase is Phase.APPROVAL and step.state is StepState.RUNNING:
        draft.cancel(step.id)
    elif step.phase is Phase.COLLECT:
        assert step.attempt is not None
        draft.effects.append(StopCollection(attempt=step.attempt))
    elif step.phase is Phase.GROUP:
        return  # its instances are ended
    elif step.retrying:
        draft.stop_retry(step.id, step.reason)
    elif step.attempts:
        draft.cancel(step.id)
    else:
        draft.skip(step.id, cause.skip_reason)


def close_run(draft: RunMutation) -> None:
    """Ends the run when its last step has ended."""
    if draft.run.ended_steps < draft.run.total_steps or draft.run.state.terminal:
        return
    if draft.run.state is RunState.PENDING and draft.run.ending is None:
        return  # all steps are kept from another run, and it has not started
    ending = draft.run.ending
    late = (EndingCause.CANCELLED, EndingCause.TIMED_OUT)
    if ending is not None and ending.cause in late and not _stopped_any(draft, ending.cause):
        # It came too late to stop anything: the results count.
        ending = None
        draft.set_run(ending=None, error="")
    steps = draft.steps.values()
    bad = [each for each in steps if not each.parent and ends_badly(draft.plan.steps[each.id], each)]
    state = RunState.SUCCEEDED
    if ending is not None:
        state = _FINAL[ending.cause]
    elif bad:
        state = RunState.FAILED
        first = min(bad, key=lambda s: s.finished_at or draft.at)
        draft.set_run(error=run_texts.step_failed(draft.plan.label(first.id), first.reason))
        if draft.plan.steps[first.id].final_policy is FailurePolicy.ABORT:
            at = first.finished_at or draft.at
            draft.set_run(ending=Ending(cause=EndingCause.ABORTED, at=at))
    # The run ended with its last step, even if the daemon heard of it later.
    ends = [step.finished_at for step in steps if step.finished_at is not None]
    finished_at = max(ends, default=draft.at)
    if draft.run.started_at is not None:
        finished_at = max(finished_at, draft.run.started_at)
    draft.set_run(state=state, finished_at=finished_at)
    draft.effects.append(ForgetRun())


def _stopped_any(draft: RunMutation, cause: EndingCause) -> bool:
    skipped = cause.skip_reason
    return any(
        step.state is StepState.CANCELLED or step.skip_reason is skipped or step.retry_stopped
        for step in draft.steps.values()
    )
