"""The POSIX side of the attempt probe: locks with flock, shims by pidfd, leftovers by cgroup."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("Windows has its own host")

import fcntl
import os
from typing import Any, NamedTuple

from toband.domain.attempt_model import Attempt, Orphans
from toband.supervise.launch.claim_holders import Holders
from toband.supervise.launch.end_record import Claim
from toband.supervise.shim import cgroups, process_tree
from toband.supervise.shim.attempt_file import claim
from toband.supervise.shim.cgroups import Cgroups

CGROUP_PATIENCE = 5.0
"""Seconds that the processes in the cgroup of a killed shim may take to end."""


class PosixShim(NamedTuple):
    """A living shim, and its claim if it is readable."""

    pid: int
    pidfd: int
    claim: Claim | None


class PosixHost:
    """Implements `attempt_probe.ProbedHost`."""

    def __init__(self, boot_id: str, cgroups: Cgroups) -> None:
        self.boot_id = boot_id
        self._cgroups = cgroups
        self._holders = Holders()

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def claim(self, directory: str, name: str, facts: dict[str, Any], second: str) -> int | None:
        return claim(directory, name, facts, second)

    def locked(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False

    def shim(self, claim: Claim) -> PosixShim | None:
        return self._shim(claim.pid, claim.start, claim)

    def _shim(self, pid: int, start: int, claim: Claim | None) -> PosixShim | None:
        try:
            pidfd = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError):
            return None
        seen = process_tree.stat_of(pid)
        if seen is not None and seen[1] == start and seen[2] != "Z":
            return PosixShim(pid, pidfd, claim)
        os.close(pidfd)
        return None

    def holder(self, path: str) -> PosixShim | None:
        pid = self._holders.of(path)
        seen = process_tree.stat_of(pid) if pid is not None else None
        return self._shim(pid, seen[1], None) if pid is not None and seen is not None else None

    def let_go(self, shim: PosixShim) -> None:
        os.close(shim.pidfd)

    def end_left(self, attempt: Attempt, claim: Claim | None) -> Orphans:
        """Ends the processes in the cgroup of a dead shim, so that none is left.

        Without a claim that names the cgroup, it is the one that this daemon would have given the attempt.
        """
        if claim is None:
            path = self._cgroups.of(attempt.token) if self._cgroups.attempts else ""
            return Orphans(cgroups.end(path, CGROUP_PATIENCE)) if path and os.path.isdir(path) else Orphans.UNKNOWN
        path, namespace = claim.cgroup, claim.cgroup_namespace
        if not path or not self._cgroups.knows(path, namespace, attempt.token):
            return Orphans.UNKNOWN
        return Orphans(cgroups.end(path, CGROUP_PATIENCE))
