"""Exceptions of python steps, which determine how their failure is handled.

StepError                          as any other exception: retried if the step has retries
├── TransientError                 may pass on its own
│   ├── RateLimitError             may pass after a longer delay, which the other side may have named
│   ├── NetworkError
│   ├── StorageError
│   ├── AIDriverError
│   └── WorkflowTimeoutError       also a TimeoutError of Python
├── NonRetryableError              a retry would fail in the same way
│   ├── ValidationError
│   └── WorkflowError
└── FatalError                     ends the whole run, regardless of the step's policy

Toban itself reads only the attribute `toban_error_class`: your own exceptions may have it too, and then do not need
this package.
"""

from __future__ import annotations

from typing import Any


class StepError(Exception):
    toban_error_class = "RETRYABLE_TRANSIENT"


class TransientError(StepError):
    pass


class RateLimitError(TransientError):
    """`retry_after`: seconds to wait before a retry, as the other side requested."""

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
