"""Retry policy: whether a failure is retried, and its backoff. `error_class` decides the class of the failure."""

from __future__ import annotations

from collections.abc import Callable

from toban.definition import ErrorClass, FailurePolicy, OnLost, Step, parse_duration
from toban.limits import cut
from toban.safe_text import escaped_line
from toband.domain.attempt_model import TreeCause
from toband.domain.error_class import CLASS_OUTPUT
from toband.domain.run_events import AttemptEnded
from toband.domain.run_model import StepRun, StepState

WAIT_OUTPUT = "toban.retry_after"
ERROR_OUTPUT = "toban.error"
"""The output with which a step sets the message of its failure."""
OWN_OUTPUTS = frozenset({CLASS_OUTPUT, WAIT_OUTPUT, ERROR_OUTPUT})
_LONGEST_ERROR_SAID = 1000
RATE_LIMIT_FACTOR = 10
"""The backoff after a rate limit is this many times longer."""
WAIT_MOST = 86_400.0
"""Seconds that a step may ask to wait before its retry."""
RERUNS_MOST = 3
"""Times that a step whose process was lost is run again, with `on_lost: rerun`."""


def wait_asked(event: AttemptEnded) -> float | None:
    """Seconds that the step asked to wait before its retry."""
    asked = event.outputs.get(WAIT_OUTPUT, "").strip()
    try:
        return min(WAIT_MOST, parse_duration(asked)) if asked else None
    except ValueError:
        return None


def error_said(event: AttemptEnded) -> str:
    """The message that a step which failed by itself set, as one line; empty if it set none."""
    if event.not_started or event.signal is not None or event.ending.cause is not TreeCause.EXITED:
        return ""
    return cut(escaped_line(event.outputs.get(ERROR_OUTPUT, "")).strip(), _LONGEST_ERROR_SAID)


def retry_delay(
    step: Step,
    run: StepRun,
    error_class: ErrorClass,
    event: AttemptEnded | None,
    random: Callable[[], float],
) -> float | None:
    """Seconds until the next retry; None: the failure is final. `event` is the end of the attempt, if that failed."""
    exit_code = event.exit_code if event is not None else None
    ended_by = event.ending.cause if event is not None else None
    if TreeCause.LOOP_TIMEOUT in (run.overdue, ended_by) or not may_retry(step, run, error_class, exit_code):
        return None
    asked = wait_asked(event) if event is not None else None
    return back_off(step, run.retries + 1, error_class, asked, random)


def may_rerun(step: Step, run: StepRun) -> bool:
    """Whether a step whose process was lost may run again. `run` is as before the loss."""
    return step.on_lost is OnLost.RERUN and run.losses < RERUNS_MOST


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
    """Seconds to wait before that retry, counted from 1."""
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
    """Whether a failed step makes its run fail.

    A loop that was never complete has no error class: `on_iterations_exhausted` decides, not `on_failure`.
    """
    if run.state is not StepState.FAILED:
        return False
    own = step.final_policy is not FailurePolicy.CONTINUE
    return own or run.error_class is None or run.error_class is ErrorClass.FATAL
