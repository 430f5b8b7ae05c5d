"""From a bootstrap message to the step's process.

The quick way is posix_spawn, which copies no memory. A step that runs as another user, or with limits that a process
can only set for itself, is forked: the child becomes what it is to be, and then the step.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX shim needs fork")

import errno
import fcntl
import os
from typing import Any, NamedTuple

from toband import failpoints
from toband.supervise.shim import cgroups, env_files, private_memory, privileges, secret_files, trusted_path
from toband.supervise.shim.step_child import ALL_SIGNALS, StartError, Streams, fork, located, person

# The system is short of something: that passes, and is not the step's fault.
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EDQUOT)


_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Started(NamedTuple):
    """`outside`: this process is in no cgroup of the step's, which may be killed whole."""

    pid: int
    outside: bool


def start(boot: dict[str, Any], out: int, err: int) -> Started:
    """Starts the step in a session of its own, its output in these pipes. Raises StartError."""
    limits = boot.get("limits") or {}
    cgroup = boot.get("cgroup")
    given = -1
    try:
        failpoints.hit("shim.start")
        if cgroup and "cgroup" in limits:
            _limit_cgroup(boot, cgroup["path"], limits["cgroup"])
        if "secrets" in boot:
            who = person(limits["user"]) if "user" in limits else None
            secret_files.place(boot, None if who is None else (who.uid, who.gid))
        given = _standard_input(boot.get("stdin"))
        streams = Streams(given, out, err)
        if limits.get("in_child"):
            return Started(fork(boot, limits, streams), True)
        boot = {**boot, "env": env_files.environment(boot, guarded=privileges.separates_users())}
        if cgroup:
            return _spawn_inside(boot, cgroup, streams)
        return Started(_spawn(boot, streams), True)
    except (OSError, ValueError) as error:
        passing = isinstance(error, OSError) and error.errno in _PASSING
        raise StartError(_cannot_start(boot, error), passing=passing) from None
    finally:
        if given >= 0:
            os.close(given)


def _standard_input(text: str | None) -> int:
    """A sealed memory file for standard input: a step that does not read blocks no writer.

    Raises OSError.
    """
    if not text:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("toban-stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = memoryview(text.encode(errors="surrogateescape"))
        while left:
            left = left[os.write(fd, left) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def _limit_cgroup(boot: dict[str, Any], path: str, settings: dict[str, str]) -> None:
    try:
        cgroups.limit(path, settings)
    except OSError as error:
        raise StartError(f"cannot start {boot['argv'][0]}: cannot set its limits in {path}: {error.strerror}") from None


def _spawn_inside(boot: dict[str, Any], cgroup: dict[str, str], streams: Streams) -> Started:
    """The child is born where its parent is: going in and out again is cheaper than a fork."""
    try:
        cgroups.enter(cgroup["path"])
    except OSError as error:
        raise StartError(f"cannot start {boot['argv'][0]}: cannot enter its cgroup: {error.strerror}") from None
    outside = False
    try:
        pid = _spawn(boot, streams)
    finally:
        try:
            cgroups.enter(cgroup["home"])
            outside = True
        except OSError:
            pass  # killing the cgroup would then kill this process, so it must not be killed
    return Started(pid, outside)


def _spawn(boot: dict[str, Any], streams: Streams) -> int:
    """Python's own descriptors are all close-on-exec, so that nothing but these three is passed on.

    posix_spawn rather than subprocess: it copies no memory, and the spawner stays small enough to be forked quickly.
    """
    argv, env, cwd = boot["argv"], boot["env"], boot.get("cwd")
    if cwd:
        trusted_path.enter(cwd, guarded=privileges.separates_users())
    try:
        with private_memory.limit_restored():
            return os.posix_spawn(
                located(argv[0], env),
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, standard) for standard, fd in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=ALL_SIGNALS,
            )
    finally:
        os.chdir("/")


def _cannot_start(boot: dict[str, Any], error: Exception) -> str:
    program, cwd = boot["argv"][0], boot.get("cwd")
    if isinstance(error, OSError):
        if cwd and error.filename == cwd:
            return f"cannot start {program}: cannot enter the workspace {cwd}: {error.strerror}"
        return f"cannot start {program}: {error.strerror}"
    return f"cannot start {program}: {error}"
