"""Enforcement of a step's limits on this machine, or why it is impossible."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("these are the limits of POSIX systems")

import contextlib
import os
import pwd
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toban.definition import Resources, format_size
from toband.supervise.shim import privileges
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
    no_users: str = ""
    """Why it cannot start steps as other users; empty if it can."""
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
    setuid_programs: bool = False
    """Whether a step of another user may use them."""
    no_new_privileges: bool = False
    apart: bool = False
    """Whether no step may be a member of the daemon's group."""
    sandbox: Mapping[str, Any] | None = None

    @property
    def in_child(self) -> bool:
        """Whether the child must set something up itself before exec.

        With a limit of processes it must enter its cgroup itself; otherwise its supervisor would count too.
        """
        own = (self.data, self.processes, self.nice, self.cgroup.get("pids.max"))
        return (
            bool(self.user)
            or self.no_new_privileges
            or self.sandbox is not None
            or any(value is not None for value in own)
        )

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
            "sudo": (self.user and self.setuid_programs) or None,
            "no_new_privileges": self.no_new_privileges or None,
            "apart": (self.user and self.apart) or None,
            "sandbox": self.sandbox,
            "in_child": self.in_child or None,
        }
        return {key: value for key, value in found.items() if value is not None}


def of_this_process(cgroups: Cgroups) -> Capabilities:
    uid = os.geteuid()
    allowed = resource.getrlimit(resource.RLIMIT_NICE)[0]
    by_limit = -20 if allowed == resource.RLIM_INFINITY else 20 - allowed
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    return Capabilities(
        controllers=cgroups.controllers,
        no_cgroup=cgroups.reason,
        root=uid == 0,
        no_users=_no_users(),
        names=own_names(),
        nicest=-20 if uid == 0 else min(mine, max(-20, by_limit)),
    )


def own_names() -> frozenset[str]:
    """Number and, if it has one, name of the daemon's user."""
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    return frozenset(names)


def _no_users() -> str:
    missing = privileges.missing()
    if not missing:
        return ""
    if len(missing) < len(privileges.NEEDED):
        return f"it lacks {', '.join(missing)}"
    return "it is neither root nor has the capabilities that the systemd unit gives it"


def plan(
    can: Capabilities,
    resources: Resources | None,
    user: str,
    *,
    setuid_programs: bool = False,
    no_new_privileges: bool = False,
    apart: bool = False,
    sandbox: Mapping[str, Any] | None = None,
) -> Limits | None:
    """The plan for a step; None if it has no limits. Raises LimitError."""
    as_user = "" if not user or user in can.names else user
    if as_user and can.no_users:
        # The name, if it has one, comes behind its number.
        own = sorted(can.names)[-1]
        raise LimitError(f"cannot run it as {user}: the daemon is {own}, and {can.no_users}")
    confined = Limits(
        user=as_user,
        setuid_programs=setuid_programs,
        no_new_privileges=no_new_privileges,
        apart=apart,
        sandbox=sandbox,
    )
    limits = confined if resources is None else _limited(can, resources, confined)
    return limits if limits.message() else None


def _limited(can: Capabilities, resources: Resources, confined: Limits) -> Limits:
    """Raises LimitError."""
    as_user = confined.user
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
    return replace(
        confined,
        cgroup=files,
        data=data,
        memory=memory,
        processes=processes,
        nice=resources.nice,
        words=words,
    )


def _without(what: str, can: Capabilities) -> str:
    why = can.no_cgroup or f"there is no {what} controller"
    return f"cannot keep resources.{what}: that takes a cgroup with the {what} controller, and {why}"
