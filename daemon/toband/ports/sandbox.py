"""Where work is done that may take long, or much memory, for what somebody wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class OverLimitError(Exception):
    """The work passed a limit and was ended; the text says which, as in "it took longer than 2 s"."""


class Sandbox(Protocol):
    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        """What a function gives that can be found by its name, with arguments that can be sent to another process.

        It may take so many seconds of processor time, and a fixed amount of memory. Requests of different keys take
        turns. If the caller is cancelled, so is the work. Raises what the function raises, OverLimitError, and OSError
        if the system has no process for it.
        """
        ...
