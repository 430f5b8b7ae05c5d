"""Functions for code inside a step: python steps, and Python programs that a step starts. Standard library only.

from toban.step import RateLimitError, outputs, params

def main(context):
    rows = load(context.inputs["raw"])
    outputs(rows=len(rows))
"""

from __future__ import annotations

from toban.step.errors import (
    AIDriverError,
    FatalError,
    NetworkError,
    NonRetryableError,
    RateLimitError,
    StepError,
    StorageError,
    TransientError,
    ValidationError,
    WorkflowError,
    WorkflowTimeoutError,
)
from toban.step.step_context import (
    Context,
    DaemonError,
    Emitter,
    Event,
    NotInAStepError,
    Scheduler,
    context_dir,
    emit,
    event,
    outputs,
    params,
    progress,
    set_output,
)
from toban.step.workflow_result import WorkflowResult

__all__ = [
    "AIDriverError",
    "Context",
    "DaemonError",
    "Emitter",
    "Event",
    "FatalError",
    "NetworkError",
    "NonRetryableError",
    "NotInAStepError",
    "RateLimitError",
    "Scheduler",
    "StepError",
    "StorageError",
    "TransientError",
    "ValidationError",
    "WorkflowError",
    "WorkflowResult",
    "WorkflowTimeoutError",
    "context_dir",
    "emit",
    "event",
    "outputs",
    "params",
    "progress",
    "set_output",
]
