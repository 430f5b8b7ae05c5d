"""All that decides how a run moves: `transition(plan, run, event) -> (run, effects)`.

Pure. An event that no longer applies (a terminal run, a superseded token) changes nothing and asks for nothing; it is
never an error, because late reports are normal.

How a run ends: the first cause (abort, cancel, run timeout) is kept as `ending` and fixes the final state; from then on
nothing starts, what has not started is skipped at once, and the run stays RUNNING until every attempt has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from toban.definition import FailurePolicy, JobType, OnLost, command_line
from toband.domain.events import (
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    AttemptVoided,
    CancelRequested,
    Effect,
    Event,
    ForgetRun,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    RunStarted,
    RunTimeoutPassed,
    StartRunTimer,
    StopAttempt,
)
from toband.domain.model import (
    Attempt,
    AttemptState,
    Ending,
    EndingCause,
    ErrorClass,
    Run,
    RunState,
    StepRun,
    StepState,
    TreeCause,
    TreeEnding,
)
from toband.domain.plan import Plan

RERUNS_MOST = 3
"""How often a step whose process was lost is run again, if it may be at all."""

_FINAL = {
    EndingCause.ABORTED: RunState.FAILED,
    EndingCause.CANCELLED: RunState.CANCELLED,
    EndingCause.TIMED_OUT: RunState.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """Where new names come from: passed in, so that a transition stays a function."""

    new_id: Callable[[], str]
    new_token: Callable[[], str]
    boot_id: str = ""


def transition(
    plan: Plan, run: Run, event: Event, *, at: datetime, ids: Ids
) -> tuple[Run, Sequence[Effect]]:
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
        case LaunchDue():
            move.launch_due()
        case CancelRequested():
            move.cancel(event)
        case RunTimeoutPassed():
            move.time_out()
        case _:
            assert_never(event)
    return move.result()


def effects_of(run: Run) -> Sequence[Effect]:
    """What a run that was just loaded still asks for, its attempts apart: those are looked up on disk."""
    if run.state is not RunState.RUNNING or run.ending is not None:
        return ()
    ready = any(step.state is StepState.READY for step in run.steps.values())
    return (*_timer(run), LaunchReady()) if ready else _timer(run)


def classify(job_type: JobType, event: AttemptEnded) -> ErrorClass:
    """How a failure may be treated, when its definition says nothing."""
    if event.not_started or (event.error and event.exit_code == 0):
        # The work was done: doing it again is not ours to decide.
        return ErrorClass.NON_RETRYABLE
    if event.exit_code in (64, 78) or (job_type is JobType.SHELL and event.exit_code in (126, 127)):
        return ErrorClass.NON_RETRYABLE
    return ErrorClass.RETRYABLE_TRANSIENT


def _timer(run: Run) -> Sequence[Effect]:
    if run.timeout is None or run.started_at is None:
        return ()
    return (StartRunTimer(due=run.started_at + timedelta(seconds=run.timeout)),)


class _Move:
    """One transition being worked out: a draft of the run, and the effects so far."""

    def __init__(self, plan: Plan, run: Run, at: datetime, ids: Ids) -> None:
        self._plan = plan
        self._before = run
        self._run = run
        self._at = at
        # When it happened; a daemon that was down hears of it later.
        self._then = at
        self._ids = ids
        self._steps = dict(run.steps)
        self._effects: list[Effect] = []
        self._changed = False

    def result(self) -> tuple[Run, Sequence[Effect]]:
        if not self._changed:
            return self._before, ()
        self._close()
        done = replace(
            self._run,
            steps=self._steps,
            sequence=self._before.sequence + 1,
            current_step=self._current(),
        )
        return done, tuple(self._effects)

    # -- events

    def start(self) -> None:
        if self._run.state is not RunState.PENDING:
            return
        self._set_run(state=RunState.RUNNING, started_at=self._at)
        self._effects += _timer(self._run)
        for step in self._plan.steps.values():
            if not step.depends_on:
                self._set(step.id, state=StepState.READY)
        self._launch()

    def attempt_started(self, event: AttemptStarted) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None or attempt.state is not AttemptState.STARTING:
            return
        self._set_attempt(
            attempt, state=AttemptState.RUNNING, pid=event.pid, started_at=event.started_at
        )

    def attempt_ended(self, event: AttemptEnded) -> None:
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        step = self._plan.steps[event.step]
        self._then = min(self._at, event.finished_at)
        run_ending = self._run.ending
        timed_out = run_ending is not None and run_ending.cause is EndingCause.TIMED_OUT
        if timed_out and event.ending.cause is TreeCause.CANCEL:
            # The run's deadline is kept here and by the shim; whoever was faster, it is the same cause.
            event = replace(event, ending=replace(event.ending, cause=TreeCause.RUN_TIMEOUT))
        cause = event.ending.cause
        own = cause is TreeCause.EXITED
        # With an error of the supervisor's own it has not: what it handed on may be lost.
        fine = own and not event.not_started and not event.error
        succeeded = fine and event.exit_code in step.success_codes
        # The shim keeps the run's deadline too, and may be the first to say that it has passed.
        stopped = cause is TreeCause.RUN_TIMEOUT or (
            cause is TreeCause.CANCEL and run_ending is not None
        )
        error_class = None if succeeded or stopped else classify(step.job_type, event)
        error = "" if succeeded else _why(event)
        if cause is TreeCause.CANCEL and run_ending is None:
            error = (
                "ended from outside: its supervisor received SIGTERM, and nobody had asked for it"
            )
        match cause:
            case TreeCause.TIMEOUT | TreeCause.RUN_TIMEOUT:
                state = AttemptState.TIMED_OUT
            case TreeCause.CANCEL:
                state = AttemptState.CANCELLED
            case TreeCause.EXITED | TreeCause.LIMIT | TreeCause.LOST:
                state = AttemptState.COMPLETED if succeeded else AttemptState.FAILED
            case _:
                assert_never(cause)
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
        self._set(event.step, exit_code=event.exit_code, result=event.result, outputs=event.outputs)
        if cause is TreeCause.RUN_TIMEOUT:
            self._end(EndingCause.TIMED_OUT, "the run's timeout passed")
        if succeeded:
            self._finish(event.step, StepState.SUCCEEDED, at=event.finished_at)
            self._advance(event.step)
        elif stopped:
            self._finish(event.step, StepState.CANCELLED, error, at=event.finished_at)
        else:
            self._fail(event.step, error, error_class, at=event.finished_at)

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
        step, error = self._steps[event.step], f"lost: {event.error}"
        self._set(event.step, losses=step.losses + 1)
        again = self._plan.steps[event.step].on_lost is OnLost.RERUN and self._run.ending is None
        if again and not event.gone:
            error += "; not run again, because what it left may still run"
        elif again and step.losses < RERUNS_MOST:
            self._set(event.step, state=StepState.READY)
            self._effects.append(LaunchReady())
            return
        self._fail(event.step, error, ErrorClass.NON_RETRYABLE, at=self._at)

    def launch_due(self) -> None:
        if self._run.state is RunState.RUNNING and self._run.ending is None:
            self._launch()

    def attempt_voided(self, event: AttemptVoided) -> None:
        """It never began: the same attempt is launched again under a new token, unless the run is ending."""
        attempt = self._live(event.step, event.token)
        if attempt is None:
            return
        if self._run.ending is not None:
            cause = self._run.ending.cause
            error = "not started: the run was ending"
            self._set_attempt(
                attempt, state=AttemptState.CANCELLED, error=error, finished_at=self._at
            )
            self._set(event.step, started_at=None)
            self._finish(event.step, StepState.SKIPPED, cause.value, at=self._at)
            return
        self._set_attempt(attempt, token=self._ids.new_token(), boot_id=self._ids.boot_id)
        again = self._steps[event.step].attempt
        assert again is not None
        self._effects.append(LaunchAttempt(attempt=again))

    def cancel(self, event: CancelRequested) -> None:
        if self._run.cancel_requested_at is not None:
            return
        self._set_run(cancel_requested_at=self._at)
        reason = f"cancelled: {event.reason}" if event.reason else "cancelled"
        self._end(EndingCause.CANCELLED, reason)

    def time_out(self) -> None:
        if self._run.state is RunState.RUNNING:
            if self._run.timeout is not None and self._run.started_at is not None:
                due = self._run.started_at + timedelta(seconds=self._run.timeout)
                self._then = min(self._at, due)
            self._end(EndingCause.TIMED_OUT, "the run's timeout passed")

    # -- what they have in common

    def _live(self, step: str, token: str) -> Attempt | None:
        """The attempt that a report speaks of, if it is the step's current one and not over."""
        found = self._steps.get(step)
        attempt = found.attempt if found is not None else None
        if attempt is None or attempt.token != token or attempt.state.terminal:
            return None
        return attempt

    def _fail(self, step: str, error: str, error_class: ErrorClass | None, at: datetime) -> None:
        self._set(step, error_class=error_class)
        self._finish(step, StepState.FAILED, error, at=at)
        self._set_run(failed_steps=self._run.failed_steps + 1)
        policy = self._plan.steps[step].on_failure
        match policy:
            case FailurePolicy.ABORT:
                self._end(EndingCause.ABORTED, f"step {step} failed: {error}")
            case FailurePolicy.CONTINUE:
                self._advance(step)
            case _:
                assert_never(policy)

    def _end(self, cause: EndingCause, error: str) -> None:
        """Fixes the final state, unless an earlier cause did; stops what runs and skips what waits."""
        if self._run.ending is not None:
            return
        self._set_run(ending=Ending(cause=cause, at=self._then), error=error)
        for step in list(self._steps.values()):
            if step.state is StepState.RUNNING:
                assert step.attempt is not None
                self._effects.append(StopAttempt(attempt=step.attempt))
            elif not step.state.terminal:
                self._finish(step.id, StepState.SKIPPED, cause.value, at=self._then)

    def _advance(self, step: str) -> None:
        """A step satisfied its dependents: those that wait for nothing else become ready."""
        if self._run.ending is None:
            for dependent in self._plan.dependents[step]:
                waiting = self._steps[dependent]
                needed = self._plan.steps[dependent].depends_on
                if waiting.state is StepState.PENDING and self._satisfied(needed):
                    self._set(dependent, state=StepState.READY)
            self._launch()

    def _satisfied(self, needed: Iterable[str]) -> bool:
        """Every failure that did not end the run was one to continue after."""
        return all(
            self._steps[step].state in (StepState.SUCCEEDED, StepState.FAILED) for step in needed
        )

    def _launch(self) -> None:
        """Starts ready steps in the order of the definition, as far as `concurrency` allows."""
        limit = self._plan.workflow.concurrency or len(self._steps)
        free = limit - sum(s.state is StepState.RUNNING for s in self._steps.values())
        if free <= 0:
            return
        for step in list(self._steps.values()):
            if step.state is StepState.READY:
                self._launch_step(step)
                free -= 1
                if free == 0:
                    return

    def _launch_step(self, step: StepRun) -> None:
        attempt = Attempt(
            id=self._ids.new_id(),
            run_id=self._run.id,
            step=step.id,
            number=step.attempts + 1,
            ordinal=self._run.launches,
            token=self._ids.new_token(),
            state=AttemptState.STARTING,
            created_at=self._at,
            command=command_line(self._plan.steps[step.id]),
            boot_id=self._ids.boot_id,
        )
        self._set_run(launches=self._run.launches + 1)
        self._set(
            step.id,
            state=StepState.RUNNING,
            attempts=attempt.number,
            attempt=attempt,
            started_at=step.started_at or self._at,
        )
        self._effects.append(LaunchAttempt(attempt=attempt))

    def _close(self) -> None:
        """Ends the run when its last step has ended."""
        if self._run.ended_steps < len(self._steps) or self._run.state.terminal:
            return
        ending = self._run.ending
        late = (EndingCause.CANCELLED, EndingCause.TIMED_OUT)
        if ending is not None and ending.cause in late and not self._stopped_any(ending.cause):
            # It came too late to stop anything: the results stand.
            ending = None
            self._set_run(ending=None, error="")
            failed = [
                s
                for s in self._steps.values()
                if s.state is StepState.FAILED
                and self._plan.steps[s.id].on_failure is FailurePolicy.ABORT
            ]
            if failed:
                first = min(failed, key=lambda s: s.finished_at or self._at)
                ending = Ending(cause=EndingCause.ABORTED, at=first.finished_at or self._at)
                self._set_run(ending=ending, error=f"step {first.id} failed: {first.reason}")
        state = _FINAL[ending.cause] if ending is not None else RunState.SUCCEEDED
        # The run was over when its last step was, whenever that became known.
        ends = [step.finished_at for step in self._steps.values() if step.finished_at is not None]
        finished_at = max(ends, default=self._at)
        if self._run.started_at is not None:
            finished_at = max(finished_at, self._run.started_at)
        self._set_run(state=state, finished_at=finished_at)
        self._effects.append(ForgetRun())

    def _stopped_any(self, cause: EndingCause) -> bool:
        return any(
            step.state is StepState.CANCELLED
            or (step.state is StepState.SKIPPED and step.reason == cause.value)
            for step in self._steps.values()
        )

    def _current(self) -> str:
        """The step that began last and still runs."""
        running = [s.attempt for s in self._steps.values() if s.state is StepState.RUNNING]
        latest = max((a for a in running if a is not None), key=lambda a: a.ordinal, default=None)
        return latest.step if latest is not None else ""

    def _finish(self, step: str, state: StepState, reason: str = "", *, at: datetime) -> None:
        self._set(step, state=state, reason=reason, finished_at=at)
        self._set_run(ended_steps=self._run.ended_steps + 1)

    def _set(self, step: str, **changes: object) -> None:
        self._steps[step] = replace(self._steps[step], **changes)  # type: ignore[arg-type]
        self._changed = True

    def _set_attempt(self, attempt: Attempt, **changes: object) -> None:
        self._set(attempt.step, attempt=replace(attempt, **changes))  # type: ignore[arg-type]

    def _set_run(self, **changes: object) -> None:
        self._run = replace(self._run, **changes)  # type: ignore[arg-type]
        self._changed = True


def _why(event: AttemptEnded) -> str:
    if event.error:
        return event.error
    match event.ending.cause:
        case TreeCause.TIMEOUT:
            return "timed out"
        case TreeCause.RUN_TIMEOUT:
            return "the run's timeout passed"
        case TreeCause.CANCEL:
            return "ended on request"
        case TreeCause.LIMIT:
            return f"over its limit of {event.ending.limit}"
        case TreeCause.EXITED | TreeCause.LOST:
            killed = event.signal is not None
            how = f"killed by signal {event.signal}" if killed else f"exit code {event.exit_code}"
            limit = event.ending.limit
            return f"{how}; it met its limit of {limit}" if limit else how
        case _:
            assert_never(event.ending.cause)
