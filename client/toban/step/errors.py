"""Exceptions with which a python step says how its failure is to be treated.

StepError                          as any other exception: tried again where the step says so
├── TransientError                 may pass by itself
│   ├── RateLimitError             may pass after a longer while, which the other side may have named
│   ├── NetworkError
│   ├── StorageError
│   ├── AIDriverError
│   └── WorkflowTimeoutError       is a TimeoutError of Python's too
├── NonRetryableError              is the same every time
│   ├── ValidationError
│   └── WorkflowError
└── FatalError                     the whole run is to end, whatever the step's policy is

Toban itself only looks at the attribute `toban_error_class`: exceptions of your own may have it too, and then need
nothing of this package.
"""

from __future__ import annotations

from typing import Any


class StepError(Exception):
    toban_error_class = "RETRYABLE_TRANSIENT"


class TransientError(StepError):
    pass


class RateLimitError(TransientError):
    """`retry_after`: seconds that the other side asked to be left alone for."""

    toban_error_class = "RETRYABLE_RATE_LIMIT"

    def __init__(self, *args: Any, retry_after: float | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class NetworkError(TransientError):
    pass


class StorageError(TransientError):
    pass


class AIDriverError(TransientError):
    pass


class WorkflowTimeoutError(TransientError, TimeoutError):
    pass


class NonRetryableError(StepError):
    toban_error_class = "NON_RETRYABLE"


class ValidationError(NonRetryableError):
    pass


class WorkflowError(NonRetryableError):
    pass


class FatalError(StepError):
    toban_error_class = "FATAL"
