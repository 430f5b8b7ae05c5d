"""The state machine of a run: `transition(plan, run, event) -> (run, effects)`.

Pure. An event that no longer applies (to an ended run, or with an old token) changes nothing: late reports are normal,
and never an error. The legal moves are in `state_table`.

A run ends early for the first cause (abort, cancel, timeout), which is stored as `ending` and fixes the final state.
From then on nothing starts, steps that have not started are skipped, and the run stays RUNNING until every attempt has
ended. Then its `finally` steps run, if it has any: the same rules apply to them alone, with an ending of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from toban.definition import ErrorClass
from toband.domain import for_each, run_texts
from toband.domain.attempt_model import TreeCause
from toband.domain.attempt_outcomes import attempt_failed, fail_step
from toband.domain.attempt_reports import attempt_ended, attempt_lost, attempt_started, attempt_voided, child_ended
from toband.domain.completion_loop import iteration_due
from toband.domain.output_collection import attempt_succeeded, collection_failed, collection_stopped, outputs_collected
from toband.domain.partial_outputs import is_partial, was_stopped
from toband.domain.plan import Plan
from toband.domain.run_cancel import cancel_requested
from toband.domain.run_ending import advance, close_run, end_run
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    BeginWait,
    CancelRequested,
    ChildEnded,
    CollectionFailed,
    CollectionStopped,
    CollectOutputs,
    DecisionMade,
    Effect,
    EvaluateStep,
    EvaluationFailed,
    Event,
    FinallyTimeoutPassed,
    IterationDue,
    KeepWaiting,
    LaunchDue,
    LaunchReady,
    OutputsCollected,
    PauseRequested,
    ResumeRequested,
    RetryDue,
    RunStarted,
    RunTimeoutPassed,
    StartIterationTimer,
    StartRetryTimer,
    StartStepTimer,
    StepEvaluated,
    StepTimeoutPassed,
    StopAttempt,
    StopCollection,
    WaitFailed,
    WaitOver,
    WaitsBegun,
)
from toband.domain.run_index import moving
from toband.domain.run_model import EndingCause, Phase, Run, RunState, SkipReason, StepRun, StepState
from toband.domain.run_mutation import Ids, RunMutation
from toband.domain.run_timers import LOOP, run_timer, step_timer
from toband.domain.step_launch import launch
from toband.domain.step_readiness import settle

__all__ = ["Ids", "effects_of", "transition"]


def transition(plan: Plan, run: Run, event: Event, *, at: datetime, ids: Ids) -> tuple[Run, Sequence[Effect]]:
    """The run after the event, and what must be done. The same run object means that nothing changed."""
    if run.state.terminal:
        return run, ()
    draft = RunMutation(plan, run, at, ids)
    match event:
        case RunStarted():
            _start(draft)
        case AttemptStarted():
            attempt_started(draft, event)
        case AttemptEnded():
            attempt_ended(draft, event)
        case AttemptLost():
            attempt_lost(draft, event)
        case AttemptVoided():
            attempt_voided(draft, event)
        case ChildEnded():
            child_ended(draft, event)
        case StepEvaluated():
            _step_evaluated(draft, event)
        case EvaluationFailed():
            _evaluation_failed(draft, event)
        case OutputsCollected():
            outputs_collected(draft, event)
        case CollectionFailed():
            collection_failed(draft, event)
        case CollectionStopped():
            collection_stopped(draft, event)
        case RetryDue():
            _retry_due(draft, event)
        case IterationDue():
            iteration_due(draft, event)
        case StepTimeoutPassed():
            _step_timed_out(draft, event)
        case DecisionMade():
            _decided(draft, event)
        case WaitsBegun():
            _waits_begun(draft, event)
        case WaitFailed():
            _wait_failed(draft, event)
        case WaitOver():
            _wait_over(draft, event)
        case PauseRequested():
            _pause(draft)
        case ResumeRequested():
            _resume(draft)
        case LaunchDue():
            _launch_due(draft)
        case CancelRequested():
            cancel_requested(draft, event)
        case RunTimeoutPassed():
            _time_out(draft)
        case FinallyTimeoutPassed():
            _time_out_finally(draft)
        case _:
            assert_never(event)
    close_run(draft)
    return draft.result()


def effects_of(plan: Plan, run: Run) -> Sequence[Effect]:
    """The effects that a run needs again after a restart, except for its attempts: those are looked up on disk."""
    if run.state is not RunState.RUNNING:
        return ()
    effects: list[Effect] = []
    steps = [run.steps[name] for name in moving(run.steps)]
    for step in steps:
        if step.phase is Phase.COLLECT and step.state is StepState.RUNNING:
            assert step.attempt is not None
            final = plan.step(step.id).completion_check is None and not is_partial(step)
            effects.append(CollectOutputs(attempt=step.attempt, final=final))
            if run.current_ending is not None and not was_stopped(step):
                effects.append(StopCollection(attempt=step.attempt))
    if run.current_ending is not None:
        return effects
    effects += run_timer(plan, run)
    for step in steps:
        if step.state is StepState.READY and not step.evaluated:
            effects.append(EvaluateStep(step=step.id))
        elif step.not_before is not None and step.phase is Phase.NEXT:
            effects.append(StartIterationTimer(step=step.id, iteration=step.iteration, due=step.not_before))
        elif step.not_before is not None:
            effects.append(StartRetryTimer(step=step.id, retries=step.retries, due=step.not_before))
        effects += step_timer(plan.step(step.id), step)
        if step.phase is Phase.WAIT and step.state is StepState.RUNNING:
            effects.append(BeginWait(step=step.id) if step.awaited is None else KeepWaiting(step=step.id))
    return (*effects, LaunchReady())


def _start(draft: RunMutation) -> None:
    if draft.run.state is not RunState.PENDING:
        return
    draft.set_run(state=RunState.RUNNING, started_at=draft.at)
    draft.effects += run_timer(draft.plan, draft.run)
    settle(draft, [name for name in reversed(draft.plan.ordered) if name not in draft.plan.finally_steps])
    launch(draft)


def _launch_due(draft: RunMutation) -> None:
    if draft.run.state is RunState.RUNNING:
        launch(draft)


def _pause(draft: RunMutation) -> None:
    """The `finally` part cannot be paused: its timeout goes on. A pause before it delays its beginning."""
    if draft.run.paused_at is None and draft.run.ending is None and draft.run.finally_part is None:
        draft.set_run(paused_at=draft.at)


def _resume(draft: RunMutation) -> None:
    if draft.run.paused_at is not None:
        draft.set_run(paused_at=None)
        _launch_due(draft)


def _time_out(draft: RunMutation) -> None:
    if draft.run.state is RunState.RUNNING and draft.run.finally_part is None:
        if draft.run.timeout is not None and draft.run.started_at is not None:
            due = draft.run.started_at + timedelta(seconds=draft.run.timeout)
            draft.then = min(draft.at, due)
        end_run(draft, EndingCause.TIMED_OUT, run_texts.RUN_TIMED_OUT)


def _time_out_finally(draft: RunMutation) -> None:
    part = draft.run.finally_part
    if part is not None:
        draft.then = min(draft.at, part.began_at + timedelta(seconds=draft.plan.workflow.finally_timeout))
        end_run(draft, EndingCause.TIMED_OUT, run_texts.FINALLY_TIMED_OUT)


def _step_evaluated(draft: RunMutation, event: StepEvaluated) -> None:
    step = _unsettled(draft, event.step)
    if step is None:
        return
    if not event.when:
        _skip_evaluated(draft, step.id, SkipReason.WHEN)
    elif event.items is None:
        draft.set(step.id, evaluated=True)
        launch(draft)
    elif not event.items:
        _skip_evaluated(draft, step.id, SkipReason.EMPTY)
    else:
        for_each.expand(draft, step, event.items)
        launch(draft)


def _evaluation_failed(draft: RunMutation, event: EvaluationFailed) -> None:
    step = _unsettled(draft, event.step)
    if step is not None:
        draft.set(step.id, evaluated=True)
        fail_step(draft, step.id, event.error, ErrorClass.NON_RETRYABLE, at=draft.at)


def _unsettled(draft: RunMutation, name: str) -> StepRun | None:
    step = draft.steps.get(name)
    waits = step is not None and step.state is StepState.READY and not step.evaluated
    return step if waits else None


def _skip_evaluated(draft: RunMutation, name: str, reason: SkipReason) -> None:
    draft.set(name, evaluated=True)
    draft.skip(name, reason)
    advance(draft, name)


def _retry_due(draft: RunMutation, event: RetryDue) -> None:
    step = draft.steps.get(event.step)
    if step is None or step.state is not StepState.READY or step.not_before is None:
        return
    if step.retries == event.retries:
        draft.set(step.id, not_before=None)
        launch(draft)


def _step_timed_out(draft: RunMutation, event: StepTimeoutPassed) -> None:
    step = draft.steps.get(event.step)
    if step is None or step.state.terminal or draft.run.current_ending is not None:
        return
    attempt = step.attempt
    live = attempt is not None and not attempt.state.terminal
    draft.then = min(draft.at, _due(draft, step))
    if event.attempts == LOOP:
        if step.state is StepState.READY:
            fail_step(draft, step.id, run_texts.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT, at=draft.then)
        elif step.overdue is not TreeCause.LOOP_TIMEOUT:
            # The supervisor enforces the same timeout on the live attempt; nothing follows it.
            draft.set(step.id, overdue=TreeCause.LOOP_TIMEOUT)
    elif step.attempts != event.attempts:
        return
    elif step.phase is Phase.APPROVAL and step.state is StepState.RUNNING:
        attempt_failed(draft, step.id, run_texts.NOT_DECIDED, ErrorClass.RETRYABLE_TRANSIENT)
    elif step.phase is Phase.WAIT and step.state is StepState.RUNNING:
        attempt_failed(draft, step.id, run_texts.not_come(step.awaited), ErrorClass.RETRYABLE_TRANSIENT)
    elif live and attempt is not None and attempt.child and step.overdue is None:
        draft.set(step.id, overdue=TreeCause.TIMEOUT)
        draft.set_attempt(attempt, error=run_texts.TIMED_OUT)
        stopping = draft.steps[step.id].attempt
        assert stopping is not None
        draft.effects.append(StopAttempt(attempt=stopping))


def _due(draft: RunMutation, step: StepRun) -> datetime:
    """When its timeout passed, even if the daemon heard of it later."""
    timers = step_timer(draft.plan.step(step.id), step)
    return timers[0].due if timers and isinstance(timers[0], StartStepTimer) else draft.at


def _decided(draft: RunMutation, event: DecisionMade) -> None:
    step = draft.steps.get(event.step)
    if step is None or step.phase is not Phase.APPROVAL or step.state is not StepState.RUNNING:
        return
    result = {
        "approved": event.approved,
        "by": event.by,
        "at": draft.at.isoformat(),
        "note": event.note,
    }
    draft.set(step.id, result=result)
    if event.approved:
        attempt_succeeded(draft, step.id)
    else:
        attempt_failed(draft, step.id, run_texts.rejected(event.by, event.note), ErrorClass.NON_RETRYABLE)


def _waits_begun(draft: RunMutation, event: WaitsBegun) -> None:
    for wait in event.waits:
        step = _waiting(draft, wait.step, wait.attempts)
        if step is not None and step.awaited is None:
            draft.set(step.id, awaited=wait.awaited)
            draft.effects.append(KeepWaiting(step=step.id))


def _wait_failed(draft: RunMutation, event: WaitFailed) -> None:
    step = _waiting(draft, event.step, event.attempts)
    if step is not None:
        attempt_failed(draft, step.id, event.error, ErrorClass.NON_RETRYABLE)


def _wait_over(draft: RunMutation, event: WaitOver) -> None:
    step = _waiting(draft, event.step, event.attempts)
    if step is None or step.awaited is None:
        return
    awaited = step.awaited
    if awaited.until is not None:
        # It may have passed while no daemon was running.
        draft.then = max(step.started_at or draft.at, min(draft.at, awaited.until))
    reason = "time" if awaited.until is not None else "event" if awaited.events else "file"
    result = {"reason": reason, "at": draft.then.isoformat(), "event": event.event, "file": awaited.file}
    draft.set(step.id, result=result)
    attempt_succeeded(draft, step.id)


def _waiting(draft: RunMutation, name: str, attempts: int) -> StepRun | None:
    step = draft.steps.get(name)
    waits = step is not None and step.phase is Phase.WAIT and step.state is StepState.RUNNING
    return step if waits and step is not None and step.attempts == attempts else None
