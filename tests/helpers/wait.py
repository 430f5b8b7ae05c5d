"""Waiting for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 30.0
"""Generous, since it costs nothing when all is well: a busy machine must not fail a test."""
_PAUSE = 0.005


async def wait_for(condition: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """The first truthy answer of `condition`. Raises AssertionError when the deadline passes."""
    until = time.monotonic() + deadline
    while not (answer := condition()):
        assert time.monotonic() < until, f"waited {deadline:g} seconds in vain: {what}"
        await asyncio.sleep(_PAUSE)
    return answer


def wait_until(condition: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """The same, for tests without a loop."""
    until = time.monotonic() + deadline
    while not (answer := condition()):
        assert time.monotonic() < until, f"waited {deadline:g} seconds in vain: {what}"
        time.sleep(_PAUSE)
    return answer
