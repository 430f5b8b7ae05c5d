"""What follows an attempt: outputs are kept, a check is asked, a failure is tried again, or the step is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from toban.definition import ErrorClass, FailurePolicy
from toband.domain import run_texts
from toband.domain.retry_policy import back_off, may_retry, wait_asked
from toband.domain.run_events import AttemptEnded, CollectOutputs, KeepDeadLetter, LaunchReady
from toband.domain.run_model import (
    Attempt,
    DeadLetter,
    EndingCause,
    Phase,
    StepRun,
    StepState,
    TreeCause,
)
from toband.domain.run_mutation import Draft


class Outcomes(Draft):
    def _ran(self, name: str) -> None:
        """Its attempt succeeded: what it made is kept, and a check asks whether that is all."""
        step, definition = self._steps[name], self._plan.step(name)
        if definition.outputs or definition.stop_when_unchanged:
            assert step.attempt is not None
            self._set(name, phase=Phase.COLLECT)
            final = definition.completion_check is None
            attempt = self._steps[name].attempt
            assert attempt is not None
            self._effects.append(CollectOutputs(attempt=attempt, final=final))
        else:
            self._check_or_succeed(name)

    def _check_or_succeed(self, name: str) -> None:
        if self._plan.step(name).completion_check is None:
            self._succeed(name)
        elif self._run.ending is not None:
            self._cancel(name)
            self._over(name)
        else:
            self._next(name, Phase.CHECK)

    def _next(self, name: str, phase: Phase) -> None:
        """The next attempt of a loop: another change, because the one that ended is saved with this one."""
        if self._steps[name].overdue is TreeCause.LOOP_TIMEOUT:
            self._fail(name, run_texts.TIMED_OUT, ErrorClass.RETRYABLE_TRANSIENT, at=self._then)
            return
        self._set(name, state=StepState.READY, retries=0, phase=phase)
        self._effects.append(LaunchReady())

    def _checked(self, attempt: Attempt, event: AttemptEnded, error: str, error_class: ErrorClass | None) -> None:
        """A completion check ended: complete, not yet, or a failure of the check itself."""
        name, definition = attempt.owner, self._plan.step(attempt.owner)
        step = self._steps[name]
        if error_class is None:
            missing = {o.name for o in definition.outputs if not o.optional} - {
                artifact.name for artifact in step.artifacts
            }
            if missing:
                # Its own judge is content, so that running it again would make nothing better.
                self._fail(name, run_texts.outputs_missing(missing), ErrorClass.NON_RETRYABLE, at=self._then)
            else:
                self._succeed(name)
            return
        exited = event.ending.cause is TreeCause.EXITED and event.exit_code is not None
        verdict = exited and not event.error and not event.not_started
        if not verdict or error_class is not ErrorClass.RETRYABLE_TRANSIENT:
            self._failed(name, run_texts.check_failed(error), error_class, event)
            return
        self._set(name, check_token=attempt.token, check_exit_code=event.exit_code)
        last = step.iteration >= definition.max_iterations
        if last or step.unchanged:
            self._exhausted(name, last=last)
        elif self._run.ending is not None:
            self._cancel(name)
            self._over(name)
        else:
            self._next(name, Phase.NEXT)

    def _exhausted(self, name: str, *, last: bool) -> None:
        definition = self._plan.step(name)
        reason = run_texts.not_complete(self._steps[name].iteration, unchanged=not last)
        if definition.on_iterations_exhausted is FailurePolicy.CONTINUE:
            self._conclude(name, StepState.INCOMPLETE, reason, at=self._then)
        else:
            self._conclude(name, StepState.FAILED, reason, at=self._then)
            self._end(EndingCause.ABORTED, run_texts.step_failed(name, reason))
        self._over(name)

    def _succeed(self, name: str) -> None:
        self._conclude(name, StepState.SUCCEEDED, at=self._then)
        self._over(name)

    def _failed(self, name: str, error: str, error_class: ErrorClass, event: AttemptEnded | None) -> None:
        """An attempt failed, or what follows it: it is tried again, or the step has failed."""
        step, definition = self._steps[name], self._plan.step(name)
        loop_over = step.overdue is TreeCause.LOOP_TIMEOUT or (
            event is not None and event.ending.cause is TreeCause.LOOP_TIMEOUT
        )
        exit_code = event.exit_code if event is not None else None
        delay = None
        if not loop_over and may_retry(definition, step, error_class, exit_code):
            asked = wait_asked(event) if event is not None else None
            number = step.retries + 1
            delay = back_off(definition, number, error_class, asked, self._ids.random)
            self._set(name, retries=number)
        self._again_or_fail(name, error, error_class, delay)

    def _again_or_fail(self, name: str, error: str, error_class: ErrorClass, delay: float | None) -> None:
        """It is tried again after that many seconds; None: it has failed."""
        if delay is None:
            self._fail(name, error, error_class, at=self._then)
        elif self._run.ending is None:
            self._again(name, self._at + timedelta(seconds=delay), error)
            if delay > 0:
                self._launch()  # until then its place is for others
        else:
            self._fail(name, error, error_class, at=self._then, retry_stopped=True)

    def _fail(
        self,
        name: str,
        error: str,
        error_class: ErrorClass,
        at: datetime,
        *,
        retry_stopped: bool = False,
    ) -> None:
        """The step has failed for good: its policy decides what becomes of the others."""
        definition = self._plan.step(name)
        self._set(name, error_class=error_class, retry_stopped=retry_stopped)
        self._conclude(name, StepState.FAILED, error, at=at)
        if definition.on_failure is FailurePolicy.RETRY and not retry_stopped:
            self._keep_letter(self._steps[name], error_class)
        policy = definition.final_policy
        if error_class is ErrorClass.FATAL or policy is FailurePolicy.ABORT:
            self._end(EndingCause.ABORTED, run_texts.step_failed(name, error))
        self._over(name)

    def _keep_letter(self, step: StepRun, error_class: ErrorClass) -> None:
        letter = DeadLetter(
            id=self._ids.new_id(),
            run_id=self._run.id,
            workflow=self._run.workflow,
            step=step.id,
            attempt_id=step.attempt.id if step.attempt is not None else "",
            attempts=step.attempts,
            error=step.reason,
            error_class=error_class,
            created_at=self._at,
        )
        self._effects.append(KeepDeadLetter(letter=letter))
