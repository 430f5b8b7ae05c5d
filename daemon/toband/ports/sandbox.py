"""A sandbox for work on user input that may take long, or much memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class OverLimitError(Exception):
    """The work exceeded a limit and was ended; the text says which, as in "it took longer than 2 s"."""


class Sandbox(Protocol):
    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        """Calls a module-level function in another process, with arguments that can be pickled.

        The call may take that many seconds of processor time, and a fixed amount of memory. Calls of different keys
        take turns. Cancelling the caller cancels the call. Raises the function's exception, OverLimitError, and OSError
        if no process can be started.
        """
        ...
