"""Returns freed memory to the system after a burst of work.

glibc keeps freed memory in an arena per thread. In a daemon that lives for months, the memory of a few hundred
streams would stay resident for good. With another C library these functions do nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sys
from typing import Any

TRIM_AFTER = 2.0
ENOUGH = 500
"""Trim after this many calls; a stream counts as STREAM calls."""
STREAM = 25

_M_ARENA_MAX = -8

ARENAS = 2


def set_up() -> None:
    """Limits the number of arenas. Call it before starting threads."""
    with contextlib.suppress(AttributeError, OSError):
        _libc().mallopt(_M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Returns all free memory. Takes milliseconds: do not call it in the event loop."""
    with contextlib.suppress(AttributeError, OSError):
        _libc().malloc_trim(0)


class Trimmer:
    """Gives memory back a moment after many calls have ended."""

    def __init__(self) -> None:
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, weight: int = 1) -> None:
        self._ended += weight
        if self._ended >= ENOUGH and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TRIM_AFTER, self._trim)

    def _trim(self) -> None:
        self._ended, self._timer = 0, None
        asyncio.get_running_loop().run_in_executor(None, give_back)


def _libc() -> Any:
    """Raises OSError on other systems than Linux."""
    if sys.platform != "linux":
        raise OSError("no such library")
    return ctypes.CDLL(None)
