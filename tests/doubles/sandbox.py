"""A sandbox without processes. Implements `ports.Sandbox`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class InlineSandbox:
    """Implements `ports.Sandbox`; `asked` has the name of each function that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, function: Callable[..., _Result], *args: Any, key: str, seconds: float) -> _Result:
        self.asked.append(function.__name__)
        return function(*args)
