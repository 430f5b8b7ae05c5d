"""Ends steps and runs: the steps that continue or are stopped, and the final state."""

from __future__ import annotations

from dataclasses import replace

from toban.definition import FailurePolicy
from toband.domain import for_each, run_texts
from toband.domain.retry_policy import ends_badly
from toband.domain.run_events import ForgetRun, StopAttempt, StopCollection
from toband.domain.run_model import Ending, EndingCause, FinallyPart, Phase, RunState, StepRun, StepState
from toband.domain.run_mutation import RunMutation
from toband.domain.run_timers import run_timer
from toband.domain.step_launch import launch
from toband.domain.step_readiness import settle

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
    if draft.run.current_ending is None:
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
    """Ends a run early: stops the steps that run and skips those that wait. The first cause fixes the final state.

    In its `finally` part this ends only the `finally` steps, and before it all others.
    """
    run, part = draft.run, draft.run.finally_part
    if run.current_ending is not None:
        return
    ending = Ending(cause=cause, at=draft.then)
    if part is None:
        draft.set_run(ending=ending, error=error)
    else:
        draft.set_run(finally_part=replace(part, ending=ending))
    spared = draft.plan.finally_steps if part is None and run.state is RunState.RUNNING else ()
    for step in draft.steps.values():
        if not step.state.terminal and step.id not in spared:
            _end_step(draft, step, cause)
    for name in list(draft.index.moving):
        if draft.steps[name].phase is Phase.GROUP:
            _close_group(draft, name)


def _end_step(draft: RunMutation, step: StepRun, cause: EndingCause) -> None:
    live = step.attempt is not None and not step.attempt.state.terminal
    if live:
        assert step.attempt is not None
        draft.effects.append(StopAttempt(attempt=step.attempt))
    elif step.phase in (Phase.APPROVAL, Phase.WAIT) and step.state is StepState.RUNNING:
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
    """Begins the `finally` part when the last other step has ended, and ends the run when its last step has."""
    run, plan = draft.run, draft.plan
    if run.state.terminal or run.ended_steps < run.total_steps - len(plan.finally_steps):
        return
    if run.ending is None and (run.state is RunState.PENDING or _waits_for_resume(draft)):
        return  # all steps are kept from another run and it has not started, or it is paused
    state = _result(draft) if run.finally_part is None else run.finally_part.state
    if run.ended_steps < run.total_steps:
        if run.finally_part is None:
            _begin_finally(draft, state)
        return
    # The run ended with its last step, even if the daemon heard of it later.
    ends = [step.finished_at for step in draft.steps.values() if step.finished_at is not None]
    finished_at = max(ends, default=draft.at)
    if draft.run.started_at is not None:
        finished_at = max(finished_at, draft.run.started_at)
    draft.set_run(state=state, finished_at=finished_at)
    draft.effects.append(ForgetRun())


def _waits_for_resume(draft: RunMutation) -> bool:
    """Whether a pause delays the `finally` part: its timeout would go on meanwhile."""
    return draft.run.paused_at is not None and draft.run.finally_part is None and bool(draft.plan.finally_steps)


def _begin_finally(draft: RunMutation, state: RunState) -> None:
    """A pause ends with the cancel, abort or timeout of the run, and delays its `finally` steps no longer."""
    draft.set_run(finally_part=FinallyPart(state=state, began_at=draft.at), paused_at=None)
    draft.effects += run_timer(draft.plan, draft.run)
    settle(draft, [name for name in reversed(draft.plan.ordered) if name in draft.plan.finally_steps])
    launch(draft)


def _result(draft: RunMutation) -> RunState:
    """The state that the run will have. Sets its error and its ending; nothing that follows changes them."""
    ending = draft.run.ending
    late = (EndingCause.CANCELLED, EndingCause.TIMED_OUT)
    if ending is not None and ending.cause in late and not _stopped_any(draft, ending.cause):
        # It came too late to stop anything: the results count.
        ending = None
        draft.set_run(ending=None, error="")
    steps = draft.steps.values()
    bad = [each for each in steps if not each.parent and ends_badly(draft.plan.steps[each.id], each)]
    if ending is not None:
        return _FINAL[ending.cause]
    if not bad:
        return RunState.SUCCEEDED
    first = min(bad, key=lambda s: s.finished_at or draft.at)
    draft.set_run(error=run_texts.step_failed(draft.plan.label(first.id), first.reason))
    if draft.plan.steps[first.id].final_policy is FailurePolicy.ABORT:
        at = first.finished_at or draft.at
        draft.set_run(ending=Ending(cause=EndingCause.ABORTED, at=at))
    return RunState.FAILED


def _stopped_any(draft: RunMutation, cause: EndingCause) -> bool:
    skipped = cause.skip_reason
    return any(
        step.state is StepState.CANCELLED or step.skip_reason is skipped or step.retry_stopped
        for step in draft.steps.values()
    )
