"""What a failure is, and whether and when it is tried again."""

from __future__ import annotations

from collections.abc import Callable

from toban.definition import ErrorClass, FailurePolicy, JobType, Step, parse_duration
from toband.domain.run_events import AttemptEnded
from toband.domain.run_model import StepRun, StepState, TreeCause

CLASS_OUTPUT = "toban.error_class"
"""What a step writes to $TOBAN_OUTPUT to say itself which kind of failure it was."""
WAIT_OUTPUT = "toban.retry_after"
OWN_OUTPUTS = frozenset({CLASS_OUTPUT, WAIT_OUTPUT})
RATE_LIMIT_FACTOR = 10
"""A rate limit is waited for this much longer than a failure that may pass."""
WAIT_MOST = 86_400.0
"""What a step asks for itself is believed up to a day."""


def classify(step: Step, event: AttemptEnded) -> ErrorClass:
    """How a failure may be treated: as the step itself says, as its definition says, or as is usual."""
    if event.not_started or (event.error and event.exit_code == 0):
        # The work was done: doing it again is not ours to decide.
        return ErrorClass.NON_RETRYABLE
    if event.ending.cause is TreeCause.EXITED:
        said = event.outputs.get(CLASS_OUTPUT, "").strip()
        if said in ErrorClass.__members__:
            return ErrorClass(said)
        named = step.error_classes.get(event.exit_code) if event.exit_code is not None else None
        if named is not None:
            return named
        shell = step.job_type is JobType.SHELL
        if event.exit_code in (64, 78) or (shell and event.exit_code in (126, 127)):
            return ErrorClass.NON_RETRYABLE
    return ErrorClass.RETRYABLE_TRANSIENT


def wait_asked(event: AttemptEnded) -> float | None:
    """How long the step itself asked to wait before it is tried again."""
    asked = event.outputs.get(WAIT_OUTPUT, "").strip()
    try:
        return min(WAIT_MOST, parse_duration(asked)) if asked else None
    except ValueError:
        return None


def may_retry(step: Step, run: StepRun, error_class: ErrorClass, exit_code: int | None) -> bool:
    if error_class in (ErrorClass.NON_RETRYABLE, ErrorClass.FATAL):
        return False
    wanted = error_class in step.retry.classes or exit_code in step.retry.codes
    return wanted and run.retries < step.max_retries


def back_off(
    step: Step,
    retries: int,
    error_class: ErrorClass,
    asked: float | None,
    random: Callable[[], float],
) -> float:
    """Seconds to wait before the retry of that number, from 1 on."""
    if asked is not None:
        return asked
    rule = step.retry
    first = rule.delay
    if error_class is ErrorClass.RETRYABLE_RATE_LIMIT:
        first *= RATE_LIMIT_FACTOR
    try:
        delay = first * rule.backoff ** (retries - 1)
    except OverflowError:
        delay = rule.max_delay
    delay = min(rule.max_delay, delay)
    return delay * (1 + rule.jitter * (2 * random() - 1))


def ends_badly(step: Step, run: StepRun) -> bool:
    """Whether a step that failed makes its run fail.

    A loop that was not complete in time has no class of error: what it does to the run is not for `on_failure` to say.
    """
    if run.state is not StepState.FAILED:
        return False
    own = step.final_policy is not FailurePolicy.CONTINUE
    return own or run.error_class is None or run.error_class is ErrorClass.FATAL
