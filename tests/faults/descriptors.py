"""A process that may open nothing more, for a while."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

from helpers.processes import look_inside


@contextlib.contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Whatever it opens next fails with EMFILE; what it closes meanwhile it may use again."""
    look_inside(pid)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    # The lowest number that is free is the next one to be given, and is not allowed any more.
    lowest = next(n for n in range(len(used) + 1) if n not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
