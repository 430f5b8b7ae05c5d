"""Error class: what an exit code, or the output of a step, says about a failure."""

from __future__ import annotations

from toban.definition import ErrorClass, JobType, Step
from toband.domain.attempt_model import TreeCause
from toband.domain.run_events import AttemptEnded

CLASS_OUTPUT = "toban.error_class"
"""The output with which a step sets the class of its failure."""


def classify(step: Step, event: AttemptEnded) -> ErrorClass:
    """The class of a failure: from the output of the step, from its definition, or by default."""
    if event.not_started and event.transient:
        return ErrorClass.RETRYABLE_TRANSIENT
    if event.not_started or (event.error and event.exit_code == 0):
        # The step may have done its work: a retry could do it twice.
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
