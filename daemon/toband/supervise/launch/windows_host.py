"""The Windows side of the attempt probe: file locks, shims by process handle, leftovers by job object."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    raise ImportError("this is the host for Windows")

from typing import Any, NamedTuple

from toband.domain.attempt_model import Attempt, Orphans
from toband.supervise.launch.end_record import Claim
from toband.supervise.shim.windows import win32
from toband.supervise.shim.windows.attempt_file import claim


class WindowsShim(NamedTuple):
    """A living shim, and a handle of its process."""

    pid: int
    process: int


class WindowsHost:
    """Implements `attempt_probe.ProbedHost`."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id

    def open(self, path: str) -> int:
        return win32.open_to_read(path)

    def claim(self, directory: str, name: str, facts: dict[str, Any], second: str) -> int | None:
        return claim(directory, name, facts, second)

    def locked(self, fd: int) -> bool:
        if not win32.try_lock(fd):
            return True
        win32.unlock(fd)
        return False

    def shim(self, claim: Claim) -> WindowsShim | None:
        process = win32.open_process(claim.pid)
        if process is None:
            return None
        if win32.created(process) == claim.start and win32.lives(process):
            return WindowsShim(claim.pid, process)
        win32.close(process)
        return None

    def holder(self, path: str) -> WindowsShim | None:
        """None: an open file keeps its name on Windows, so the claim was found by name."""
        return None

    def let_go(self, shim: WindowsShim) -> None:
        win32.close(shim.process)

    def end_left(self, attempt: Attempt, claim: Claim | None) -> Orphans:
        """Windows ends a job when its last handle is closed, and the shim had the only one."""
        return Orphans.ENDED
