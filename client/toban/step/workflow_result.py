"""The result of a python step as an object, by the names that other systems use. Standard library only."""

from __future__ import annotations

from typing import Any


class WorkflowResult(Exception):  # noqa: N818 - it is also returned
    """The result of a step's function: returned, or raised from anywhere in it.

    With `success` the step has the result `output`. Without, it fails with exit code 1, and `error`, a text or an
    exception, is its error message; the attributes `toban_error_class` and `retry_after` of an exception count as if it
    had been raised. `output` is kept then too. `context` is accepted and ignored.
    """

    def __init__(self, success: bool, output: Any = None, error: Any = None, *, context: Any = None) -> None:
        super().__init__(success, output, error)
        self.success = success
        self.output = output
        self.error = error
        self.context = context
