"""All that decides how a run moves: `transition(plan, run, event) -> (run, effects)`.

Pure. An event that no longer applies (a terminal run, a superseded token) changes nothing and asks for nothing; it is
never an error, because late reports are normal.

How a run ends: the first cause (abort, cancel, run timeout) is kept as `ending` and fixes the final state; from then on
nothing starts, what has not started is skipped at once, and the run stays RUNNING until every attempt has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from toban.definition import ErrorClass, OnLost
from toband.domain import run_texts
from toband.domain.attempt_outcomes import Outcomes
from toband.domain.plan import Plan
from toband.domain.retry_policy import classify
from toband.domain.run_events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
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
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    OutputsCollected,
    PauseRequested,
    ResumeRequested,
    RetryDue,
    RunStarted,
    RunTimeoutPassed,
    StartRetryTimer,
    StartStepTimer,
    StepEvaluated,
    StepTimeoutPassed,
    StopAttempt,
    StopCollection,
)
from toband.domain.run_index import moving
from toband.domain.run_model import (
    Attempt,
    AttemptState,
    EndingCause,
    Phase,
    Run,
    RunState,
    SkipReason,
    StepRun,
    StepState,
    TreeCause,
    TreeEnding,
)
from toband.domain.run_mutation import Ids
from toband.domain.run_timers import LOOP, run_timer, step_timer

__all__ = ["Ids", "effects_of", "transition"]

RERUNS_MOST = 3
"""How often a step whose process was lost is run again, if it may be at all."""

_TIMEOUTS = (TreeCause.TIMEOUT, TreeCause.LOOP_TIMEOUT, TreeCause.RUN_TIMEOUT)


def transition(plan: Plan, run: Run, event: Event, *, at: datetime, ids: Ids) -> tuple[Run, Sequence[Effect]]:
    """What the run is after the event, and what must be done about it. The same run object: nothing happened."""
    if run.state.terminal:
        return run, ()
    move = _Move(plan, run, at, ids)
    match event:
        case RunStarted():
            move.start()
        case AttemptStarted():
            move.attempt_started(event)
        case AttemptEnded():
            move.attempt_ended(event)
        case AttemptLost():
            move.attempt_lost(event)
        case AttemptVoided():
            move.attempt_voided(event)
        case ChildEnded():
            move.child_ended(event)
        case StepEvaluated():
            move.step_evaluated(event)
        case EvaluationFailed():
            move.evaluation_failed(event)
        case OutputsCollected():
            move.outputs_collected(event)
        case CollectionFailed():
            move.collection_failed(event)
        case CollectionStopped():
            move.collection_stopped(event)
        case RetryDue():
            move.retry_due(event)
        case StepTimeoutPassed():
            move.step_timed_out(event)
        case DecisionMade():
            move.decided(event)
        case PauseRequested():
            move.pause()
        case ResumeRequested():
            move.resume()
        case LaunchDue():
            move.launch_due()
        case CancelRequested():
            move.cancel(event)
        case RunTimeoutPassed():
            move.time_out()
        case _:
            assert_never(event)
    return move.result()


def effects_of(plan: Plan, run: Run) -> Sequence[Effect]:
    """What a run that was just loaded still asks for, its attempts apart: those are looked up on disk."""
    if run.state is not RunState.RUNNING:
        return ()
    effects: list[Effect] = []
    steps = [run.steps[name] for name in moving(run.steps)]
    for step in steps:
        if step.phase is Phase.COLLECT and step.state is StepState.RUNNING:
            assert step.attempt is not None
            final = plan.step(step.id).completion_check is None
            effects.append(CollectOutputs(attempt=step.attempt, final=final))
            if run.ending is not None:
                effects.append(StopCollection(attempt=step.attempt))
    if run.ending is not None:
        return effects
    effects += run_timer(run)
    for step in steps:
        if step.state is StepState.READY and not step.evaluated:
            effects.append(EvaluateStep(step=step.id))
        elif step.not_before is not None:
            effects.append(StartRetryTimer(step=step.id, retries=step.retries, due=step.not_before))
        effects += step_timer(plan.step(step.id), step)
    return (*effects, LaunchReady())


class _Move(Outcomes):
    """One method per event."""

    # -- the run

    def start(self) -> None:
        if self._run.state is not RunState.PENDING:
            return
        self._set_run(state=RunState.RUNNING, started_at=self._at)
        self._effects += run_timer(self._run)
        self._settle(self._plan.ordered[::-1])
        self._launch()

    def launch_due(self) -> None:
        if self._run.state is RunState.RUNNING:
            self._launch()

    def pause(self) -> None:
        if self._run.paused_at is None and self._run.ending is None:
            self._set_run(paused_at=self._at)

    def resume(self) -> None:
        if self._run.paused_at is not None:
            self._set_run(paused_at=None)
            self.launch_due()

    def cancel(self, event: CancelRequested) -> None:
        if self._run.cancel_requested_at is not None:
            return
        self._set_run(cancel_requested_at=self._at)
        self._end(EndingCause.CANCELLED, run_texts.cancelled(event.reason))

    def time_out(self) -> None:
        if self._run.state is RunState.RUNNING:
            if self._run.timeout is not None and self._run.started_at is not None:
                due = self._run.started_at + timedelta(seconds=self._run.timeout)
                self._then = min(self._at, due)
            self._end(EndingCause.TIMED_OUT, run_texts.RUN_TIMED_OUT)

    # -- before a step starts

    def step_evaluated(self, event: StepEvaluated) -> None:
        step = self._unsettled(event.step)
        if step is None:
            return
        if not event.when:
            self._skip_evaluated(step.id, SkipReason.WHEN)
        elif event.items is None:
            self._set(step.id, evaluated=True)
            self._launch()
        elif not event.items:
            self._skip_evaluated(step.id, SkipReason.EMPTY)
        else:
            self._set(
                step.id,
                evaluated=True,
                state=StepState.RUNNING,
                phase=Phase.GROUP,
                instances=len(event.items),
                started_at=self._at,
            )
            for number, item in enumerate(event.items):
                name = f"{step.id}[{number}]"
                self._steps[name] = StepRun(id=name, index=step.index, parent=step.id, instance=number, item=item)
            self._launch()

    def evaluation_failed(self, event: EvaluationFailed) -> None:
        step = self._unsettled(event.step)
        if step is not None:
            self._set(step.id, evaluated=True)
            self._fail(step.id, event.error, ErrorClass.NON_RETRYABLE, at=self._at)

    def _unsettled(self, name: str) -> StepRun | None:
        step = self._steps.get(name)
        waits = step is not None and step.state is StepState.READY and not step.evaluated
        return step if waits else None

    def _skip_evaluated(self, name: str, reason: SkipReason) -> None:
        self._set(name, evaluated=True)
        self._skip(name, reason)
        self._advance(name)

    def retry_due(self, event: RetryDue) -> None:
        step = self._steps.get(event.step)
        if step is None or step.state is not StepState.READY or step.not_before is None:
            return
        if step.retries == event.retries:
            self._set(step.id, not_before=None)
            self._launch()

    # -- processes

    def attempt_started(self, event: AttemptStarted) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None or attempt.state is not AttemptState.STARTING:
            return
        self._set_attempt(attempt, state=AttemptState.RUNNING, pid=event.pid, started_at=event.started_at)

    def attempt_ended(self, event: AttemptEnded) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        definition = self._plan.definition(attempt.step)
        self._then = min(self._at, event.finished_at)
        if event.progress is not None:
            self._set_run(progress=event.progress)
        run_ending = self._run.ending
        timed_out = run_ending is not None and run_ending.cause is EndingCause.TIMED_OUT
        if timed_out and event.ending.cause is TreeCause.CANCEL:
            # The run's deadline is kept here and by the shim; whoever was faster, it is the same cause.
            event = replace(event, ending=replace(event.ending, cause=TreeCause.RUN_TIMEOUT))
        cause = event.ending.cause
        own = cause is TreeCause.EXITED
        # With an error of the supervisor's own it has not: what it handed on may be lost.
        fine = own and not event.not_started and not event.error
        succeeded = fine and event.exit_code in definition.success_codes
        # The shim keeps the run's deadline too, and may be the first to say that it has passed.
        stopped = cause is TreeCause.RUN_TIMEOUT or (cause is TreeCause.CANCEL and run_ending is not None)
        error_class = None if succeeded or stopped else classify(definition, event)
        error = "" if succeeded else run_texts.attempt_ended(event)
        if cause is TreeCause.CANCEL and run_ending is None:
            error = run_texts.ENDED_FROM_OUTSIDE
        if cause in _TIMEOUTS:
            state = AttemptState.TIMED_OUT
        elif cause is TreeCause.CANCEL:
            state = AttemptState.CANCELLED
        else:
            state = AttemptState.COMPLETED if succeeded else AttemptState.FAILED
        self._set_attempt(
            attempt,
            state=state,
            pid=event.pid,
            exit_code=event.exit_code,
            signal=event.signal,
            error=error if not own or event.not_started or event.error else "",
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
            self._set(
                attempt.owner,
                exit_code=event.exit_code,
                result=event.result,
                outputs=event.outputs,
                spilled=event.spilled,
            )
        if cause is TreeCause.RUN_TIMEOUT:
            self._end(EndingCause.TIMED_OUT, run_texts.RUN_TIMED_OUT)
        if stopped:
            self._conclude(attempt.owner, StepState.CANCELLED, error, at=event.finished_at)
            self._over(attempt.owner)
        elif attempt.check:
            self._checked(attempt, event, error, error_class)
        elif succeeded:
            self._ran(attempt.owner)
        else:
            assert error_class is not None
            self._failed(attempt.owner, error, error_class, event)

    def attempt_lost(self, event: AttemptLost) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        self._set_attempt(
            attempt,
            state=AttemptState.LOST,
            error=event.error,
            error_class=ErrorClass.NON_RETRYABLE,
            ending=TreeEnding(cause=TreeCause.LOST, orphans=event.orphans),
            finished_at=self._at,
        )
        step = self._steps[attempt.owner]
        self._set(step.id, losses=step.losses + 1)
        may_rerun = self._plan.step(step.id).on_lost is OnLost.RERUN and step.losses < RERUNS_MOST
        again = may_rerun and event.orphans.gone
        error = run_texts.lost(event.error, check=attempt.check, processes_left=may_rerun and not again)
        self._again_or_fail(step.id, error, ErrorClass.NON_RETRYABLE, 0.0 if again else None)

    def attempt_voided(self, event: AttemptVoided) -> None:
        """It never began: the same attempt is launched again under a new token, unless the run is ending."""
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        if self._run.ending is not None:
            cause = self._run.ending.cause
            self._set_attempt(attempt, state=AttemptState.CANCELLED, error=run_texts.NOT_STARTED, finished_at=self._at)
            self._never_began(self._steps[attempt.owner], cause)
            self._over(attempt.owner)
            return
        self._set_attempt(attempt, token=self._ids.new_token(), boot_id=self._ids.boot_id)
        again = self._steps[attempt.owner].attempt
        assert again is not None
        self._effects.append(LaunchAttempt(attempt=again))

    def _never_began(self, step: StepRun, cause: EndingCause) -> None:
        """Its next attempt will not be: it is what it was before that."""
        if step.retries or step.losses:
            self._stop_retry(step.id, run_texts.RETRY_STOPPED)
        elif step.attempts > 1 or step.checks:
            self._cancel(step.id)
        else:
            self._set(step.id, started_at=None)
            self._skip(step.id, cause.skip_reason)

    def _live(self, name: str, token: str) -> Attempt | None:
        """The attempt that a report speaks of, if it is the step's current one and not over."""
        found = self._steps.get(name.removesuffix(".check"))
        attempt = found.attempt if found is not None else None
        if attempt is None or attempt.token != token or attempt.state.terminal:
            return None
        return attempt if attempt.run_id == self._run.id else None

    # -- what no supervisor keeps

    def child_ended(self, event: ChildEnded) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        self._then = min(self._at, event.finished_at)
        name = attempt.owner
        told = {"run_id": attempt.id, "number": event.number, "state": event.state.value}
        timed_out = self._steps[name].overdue is TreeCause.TIMEOUT
        error, error_class = run_texts.child_ended(event), ErrorClass.RETRYABLE_TRANSIENT
        stopped = False
        match event.state:
            case RunState.SUCCEEDED:
                state, error = AttemptState.COMPLETED, ""
            case RunState.CANCELLED if timed_out:
                state, error = AttemptState.TIMED_OUT, run_texts.TIMED_OUT
            case RunState.CANCELLED:
                state = AttemptState.CANCELLED
                stopped = self._run.ending is not None
                error_class = ErrorClass.NON_RETRYABLE
            case _:
                state = AttemptState.FAILED
        succeeded = state is AttemptState.COMPLETED
        self._set_attempt(
            attempt,
            state=state,
            error=error,
            started_at=event.started_at,
            finished_at=event.finished_at,
            error_class=None if succeeded or stopped else error_class,
        )
        self._set(name, result=told)
        if succeeded:
            self._ran(name)
        elif stopped:
            self._conclude(name, StepState.CANCELLED, error, at=event.finished_at)
            self._over(name)
        else:
            self._failed(name, error, error_class, None)

    def step_timed_out(self, event: StepTimeoutPassed) -> None:
        step = self._steps.get(event.step)
        if step is None or step.state.terminal or self._run.ending is not None:
            return
        attempt = step.attempt
        live = attempt is not None and not attempt.state.terminal
        self._then = min(self._at, self._due(step))
        if event.attempts == LOOP:
            if step.state is StepState.READY:
                self._fail(step.id, run_texts.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT, at=self._then)
            elif step.overdue is not TreeCause.LOOP_TIMEOUT:
                # What lives is ended by its supervisor, which keeps the same time; nothing comes after it.
                self._set(step.id, overdue=TreeCause.LOOP_TIMEOUT)
        elif step.attempts != event.attempts:
            return
        elif step.phase is Phase.APPROVAL and step.state is StepState.RUNNING:
            self._failed(step.id, run_texts.NOT_DECIDED, ErrorClass.RETRYABLE_TRANSIENT, None)
        elif live and attempt is not None and attempt.child and step.overdue is None:
            self._set(step.id, overdue=TreeCause.TIMEOUT)
            self._set_attempt(attempt, error=run_texts.TIMED_OUT)
            stopping = self._steps[step.id].attempt
            assert stopping is not None
            self._effects.append(StopAttempt(attempt=stopping))

    def _due(self, step: StepRun) -> datetime:
        """When its timeout passed, whenever that became known."""
        timers = step_timer(self._plan.step(step.id), step)
        return timers[0].due if timers and isinstance(timers[0], StartStepTimer) else self._at

    def decided(self, event: DecisionMade) -> None:
        step = self._steps.get(event.step)
        if step is None or step.phase is not Phase.APPROVAL or step.state is not StepState.RUNNING:
            return
        told = {
            "approved": event.approved,
            "by": event.by,
            "at": self._at.isoformat(),
            "note": event.note,
        }
        self._set(step.id, result=told)
        if event.approved:
            self._ran(step.id)
        else:
            self._failed(step.id, run_texts.rejected(event.by, event.note), ErrorClass.NON_RETRYABLE, None)

    # -- what steps made

    def outputs_collected(self, event: OutputsCollected) -> None:
        step = self._collecting(event.step, event.token)
        if step is not None:
            same = bool(event.fingerprint) and event.fingerprint == step.fingerprint
            self._set(step.id, artifacts=event.artifacts, fingerprint=event.fingerprint, unchanged=same)
            self._check_or_succeed(step.id)

    def collection_failed(self, event: CollectionFailed) -> None:
        step = self._collecting(event.step, event.token)
        if step is not None:
            self._set(step.id, phase=Phase.RUN)
            self._failed(step.id, event.error, ErrorClass.RETRYABLE_TRANSIENT, None)

    def collection_stopped(self, event: CollectionStopped) -> None:
        step = self._collecting(event.step, event.token)
        if step is not None and self._run.ending is not None:
            self._cancel(step.id)
            self._over(step.id)

    def _collecting(self, name: str, token: str) -> StepRun | None:
        step = self._steps.get(name)
        if step is None or step.state is not StepState.RUNNING or step.phase is not Phase.COLLECT:
            return None
        same = step.attempt is not None and step.attempt.token == token
        return step if same else None
