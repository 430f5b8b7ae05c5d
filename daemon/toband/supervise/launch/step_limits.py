"""Enforcement of a step's limits on this machine, or why it is impossible."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("these are the limits of POSIX systems")

import contextlib
import os
import pwd
import resource
from dataclasses import dataclass, field
from typing import Any

from toban.definition import Resources, format_size
from toband.supervise.shim.cgroups import Cgroups

CPU_PERIOD = 100_000
"""Period of the CPU quota in microseconds, the kernel's default."""
_LEAST_QUOTA = 1000
_ROOT = ("root", "0")


class LimitError(Exception):
    """A limit cannot be kept here, or a user not be taken on; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What this daemon can enforce. `no_cgroup` says why cgroup controllers are missing."""

    controllers: frozenset[str] = frozenset()
    no_cgroup: str = ""
    root: bool = False
    names: frozenset[str] = frozenset()
    """Name and number of the daemon's own user."""
    nicest: int = 0
    """The lowest niceness that it may give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How to limit a step: by its cgroup, in its process before exec, and while it runs."""

    user: str = ""
    """Empty: as the daemon itself."""
    cgroup: dict[str, str] = field(default_factory=dict)
    data: int | None = None
    """Bytes of memory that each process may have for itself."""
    memory: int | None = None
    """Memory limit of the whole tree in bytes, checked by the shim."""
    processes: int | None = None
    """Processes that the user may have beyond those it has."""
    nice: int | None = None
    words: dict[str, str] = field(default_factory=dict)
    """The limits as people write them, for what is said when one is met."""

    @property
    def in_child(self) -> bool:
        """Whether the child must set something up itself before exec.

        With a limit of processes it must enter its cgroup itself; otherwise its supervisor would count too.
        """
        own = (self.data, self.processes, self.nice, self.cgroup.get("pids.max"))
        return bool(self.user) or any(value is not None for value in own)

    def message(self) -> dict[str, Any]:
        """For the shim; what is not set is left out."""
        found = {
            "user": self.user or None,
            "cgroup": self.cgroup or None,
            "data": self.data,
            "memory": self.memory,
            "processes": self.processes,
            "nice": self.nice,
            "words": self.words or None,
            "in_child": self.in_child or None,
        }
        return {key: value for key, value in found.items() if value is not None}


def of_this_process(cgroups: Cgroups) -> Capabilities:
    uid = os.geteuid()
    names = {str(uid)}
    with contextlib.suppress(KeyError):  # a user without an entry has only its number
        names.add(pwd.getpwuid(uid).pw_name)
    allowed = resource.getrlimit(resource.RLIMIT_NICE)[0]
    by_limit = -20 if allowed == resource.RLIM_INFINITY else 20 - allowed
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    return Capabilities(
        controllers=cgroups.controllers,
        no_cgroup=cgroups.reason,
        root=uid == 0,
        names=frozenset(names),
        nicest=-20 if uid == 0 else min(mine, max(-20, by_limit)),
    )


def plan(can: Capabilities, resources: Resources | None, user: str) -> Limits | None:
    """The plan for a step with these limits; None if it has none. Raises LimitError."""
    as_user = "" if not user or user in can.names else user
    if as_user and not can.root:
        # The name, if it has one, comes behind its number.
        own = sorted(can.names)[-1]
        raise LimitError(f"cannot run it as {user}: the daemon is {own} and not root, and so can take on no other user")
    if resources is None:
        return Limits(user=as_user) if as_user else None
    files: dict[str, str] = {}
    words: dict[str, str] = {}
    data = memory = processes = None
    if resources.memory is not None:
        words["memory"] = format_size(resources.memory)
        if "memory" in can.controllers:
            files["memory.max"] = str(resources.memory)
            # What is swapped out is not freed: the limit is on what the step uses, wherever it lies.
            files["memory.swap.max"] = "0"
            files["memory.oom.group"] = "1"
        else:
            data = memory = resources.memory
    if resources.cpu is not None:
        words["cpu"] = f"{resources.cpu:g}"
        if "cpu" not in can.controllers:
            raise LimitError(_without("cpu", can))
        quota = max(_LEAST_QUOTA, round(resources.cpu * CPU_PERIOD))
        files["cpu.max"] = f"{quota} {CPU_PERIOD}"
    if resources.pids is not None:
        words["pids"] = str(resources.pids)
        if "pids" in can.controllers:
            files["pids.max"] = str(resources.pids)
        elif can.root and (not as_user or as_user in _ROOT):
            raise LimitError(f"{_without('pids', can)}; without one only users other than root can be limited")
        else:
            processes = resources.pids
    if resources.nice is not None and resources.nice < can.nicest:
        raise LimitError(f"cannot give it the niceness {resources.nice}: this daemon may give {can.nicest} and more")
    found = Limits(
        user=as_user,
        cgroup=files,
        data=data,
        memory=memory,
        processes=processes,
        nice=resources.nice,
        words=words,
    )
    return found if found.message() else None


def _without(what: str, can: Capabilities) -> str:
    why = can.no_cgroup or f"there is no {what} controller"
    return f"cannot keep resources.{what}: that takes a cgroup with the {what} controller, and {why}"
