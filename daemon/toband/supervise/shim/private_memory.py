"""Closes the memory of daemon, spawner and shims to others: no core dumps, no debuggers, no /proc/PID/mem.

The kernel then treats the files in /proc/PID as root's, which also keeps other processes of the same user from reading
open descriptors, the environment and the memory. What the daemon itself needs to know of a shim is in `stat`, `cmdline`
and `comm`, which everybody may read. A step is an ordinary process again: execve makes it dumpable.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("processes of other users are closed on Windows")

import contextlib
import ctypes
import resource
from collections.abc import Iterator

_PR_SET_DUMPABLE = 4

_given: int | None = None
"""The soft limit of core dumps that this process was started with; None: nothing to give back."""


def close_memory(given: int | None = None) -> None:
    """Makes this process not dumpable. What it forks inherits that. `given` is the limit of core dumps for steps."""
    global _given
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    _given = soft if given is None else given
    with contextlib.suppress(OSError, ValueError):
        # The hard limit stays, so that steps can get theirs.
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def limit_for_steps() -> int:
    """The soft limit of core dumps that steps start with: the one that the daemon was started with."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0] if _given is None else _given


@contextlib.contextmanager
def limit_restored() -> Iterator[None]:
    """Processes that are started inside have the limit for steps."""
    if not _given:
        yield
        return
    restore_limit()
    try:
        yield
    finally:
        _set(0)


def restore_limit() -> None:
    """In the child that becomes a step."""
    if _given:
        _set(_given)


def _set(soft: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (soft, resource.getrlimit(resource.RLIMIT_CORE)[1]))
