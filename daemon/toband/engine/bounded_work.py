"""Bounded work: ends at a timeout or when it is stopped, whichever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from toband.ports import StoppedError

T = TypeVar("T")


async def bounded(work: Coroutine[Any, Any, T], *, seconds: float, stop: asyncio.Event, grace: float = 0.0) -> T:
    """Returns the result of the work, also if it finishes while it is being ended, for which it has `grace` seconds.

    Raises TimeoutError, StoppedError, and whatever the work raises.
    """
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if grace and stop.is_set() and not task.done():
            await asyncio.wait({task}, timeout=grace)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            return task.result()
        raise StoppedError if stop.is_set() else TimeoutError
    finally:
        stopping.cancel()
        task.cancel()
