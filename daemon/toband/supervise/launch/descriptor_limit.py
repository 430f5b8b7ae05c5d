"""Descriptors: the daemon may have as many as the system lets it; what it starts begins with what it was given."""

from __future__ import annotations

import contextlib
import os
import sys

_PLACE = "/proc/self/fd"


_given: tuple[int, int] | None = None
"""The soft and hard limits that this process was started with."""


def raise_limit() -> None:
    """Lifts this process's soft limit to the hard one."""
    global _given
    if sys.platform == "win32":
        return
    import resource

    _given = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Without permission the limit stays as it was.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_given[1], _given[1]))


def restore_limit_of(pid: int) -> None:
    """Gives a child what this process was given: programs that go through all of them, or use select, rely on it."""
    if sys.platform != "win32" and _given is not None:
        import resource

        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)


class OwnDescriptors:
    """Implements `ports.Descriptors`."""

    def open_and_most(self) -> tuple[int, int] | None:
        if sys.platform == "win32":
            return None
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most == resource.RLIM_INFINITY or not os.path.isdir(_PLACE):
            return None
        try:
            # One of them is of this look itself.
            return len(os.listdir(_PLACE)) - 1, most
        except OSError:
            return most, most
