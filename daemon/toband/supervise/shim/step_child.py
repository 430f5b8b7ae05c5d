"""The child that becomes a step: what posix_spawn cannot set up between fork and exec.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX shim needs fork")

import errno
import os
import resource
import signal
from typing import Any, NamedTuple, NoReturn

from toband.supervise.shim import (
    acl,
    cgroups,
    confinement,
    env_files,
    private_memory,
    private_tmp,
    privileges,
    secret_files,
    trusted_path,
)

# A step starts with default signal handling, whatever the daemon inherited.
ALL_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class StartError(Exception):
    """The step cannot be started; the text says why. `passing`: it may be possible a little later."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class Person(NamedTuple):
    """A user as the system knows it."""

    name: str
    uid: int
    gid: int
    groups: list[int]


class Streams(NamedTuple):
    """Descriptors of what become the step's standard ones."""

    stdin: int
    stdout: int
    stderr: int


class _Setup(NamedTuple):
    """What the child is to become; `who` None: this process's user, `most`: its limit of processes."""

    limits: dict[str, Any]
    who: Person | None
    most: int | None
    sandbox: dict[str, Any] | None


class _Ends(NamedTuple):
    """The child's ends of pipes: for its error, and to wait until its users are mapped."""

    error: int
    ready: int
    go: int


def fork(boot: dict[str, Any], limits: dict[str, Any], streams: Streams) -> int:
    """Raises StartError, OSError."""
    who = person(limits["user"]) if "user" in limits else None
    if who is not None:
        _refuse_member(limits, who)
        open_up(boot, who)
    most = limits.get("processes")
    if most is not None:
        uid = os.geteuid() if who is None else who.uid
        if uid == 0:
            raise StartError(f"cannot start {boot['argv'][0]}: resources.pids holds for no process of root's here")
        most += tasks_of(uid)
    sandbox = limits.get("sandbox")
    if sandbox is not None:
        _prepare_sandbox(boot, sandbox, who)
    return _forked(boot, streams, _Setup(limits, who, most, sandbox))


def _forked(boot: dict[str, Any], streams: Streams, setup: _Setup) -> int:
    apart = setup.sandbox is not None and not setup.sandbox["network"] and confinement.needs_user_namespace()
    error, error_end = os.pipe()
    ready, ready_end = os.pipe() if apart else (-1, -1)
    go_end, go = os.pipe() if apart else (-1, -1)
    ours, theirs = (error, ready, go), _Ends(error_end, ready_end, go_end)
    try:
        pid = os.fork()
    except OSError:
        _close(*ours, *theirs)
        raise
    if pid == 0:
        _close(ready, go)
        _become(boot, streams, setup, theirs)
    _close(*theirs)
    if apart and os.read(ready, 1):
        os.write(go, b"\0" if _mapped(pid, setup.who) else b"\1")
    told = b""
    while part := os.read(error, 4096):
        told += part
    _close(*ours)
    if told:
        os.waitpid(pid, 0)
        raise StartError(told.decode(errors="replace"))
    return pid


def _close(*descriptors: int) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)


def _mapped(pid: int, who: Person | None) -> bool:
    """Whether the child's user exists in its user namespace now."""
    uid = os.geteuid() if who is None else who.uid
    try:
        confinement.map_users(pid, uid, () if who is None else (who.gid, *who.groups), privileged=who is not None)
    except OSError:
        return False
    return True


def _prepare_sandbox(boot: dict[str, Any], sandbox: dict[str, Any], who: Person | None) -> None:
    """Makes what the step may write to, which it cannot make itself. Raises StartError."""
    if directory := boot["env"].get(secret_files.VARIABLE):
        sandbox["own_read"].append(directory)
    try:
        if sandbox["tmp"]:
            private_tmp.make(boot, sandbox["tmp"], None if who is None else who.uid)
        for path in (boot["output"], boot["result"]) if who is None else ():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StartError(f"cannot sandbox it: cannot make {error.filename}: {error.strerror}") from None


def _become(boot: dict[str, Any], streams: Streams, setup: _Setup, ends: _Ends) -> NoReturn:
    """In the child: applies user, limits, directory and sandbox, then execs the step. Errors go back."""
    argv, doing = boot["argv"], _Doing()
    try:
        _reset(streams)
        _limit_all(boot, setup, doing)
        if setup.sandbox is not None and not setup.sandbox["network"]:
            doing.what = "sandbox it: "
            confinement.leave_network(ends.ready, ends.go)
        env = _enter(boot, streams, setup, doing)
        program = located(argv[0], env)
        if setup.sandbox is not None or "no_new_privileges" in setup.limits:
            doing.what = "give up new privileges: "
            privileges.forbid_new()
        if setup.sandbox is not None:
            doing.what = "sandbox it: "
            confinement.confine_files(setup.sandbox)
        doing.what = ""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program, argv, env)  # noqa: S606 - the command of the definition
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) else str(error) or repr(error)
        what = f"cannot {doing.what}{reason}" if doing.what else reason
        os.write(ends.error, f"cannot start {argv[0]}: {what}".encode(errors="replace"))
    finally:
        os._exit(127)


class _Doing:
    """The action that the child begins, for its error; empty: to execute the program."""

    what = ""


def _reset(streams: Streams) -> None:
    """A session, signals and standard descriptors of its own. Raises OSError."""
    signal.set_wakeup_fd(-1)
    for signum in ALL_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    os.setsid()
    private_memory.restore_limit()
    for standard, fd in enumerate(streams):
        os.dup2(fd, standard)


def _limit_all(boot: dict[str, Any], setup: _Setup, doing: _Doing) -> None:
    """Raises OSError."""
    limits = setup.limits
    if boot.get("cgroup"):
        doing.what = "enter its cgroup: "
        cgroups.enter(boot["cgroup"]["path"])
    if "nice" in limits:
        doing.what = f"give it the niceness {limits['nice']}: "
        os.setpriority(os.PRIO_PROCESS, 0, limits["nice"])
    doing.what = "limit it: "
    if "data" in limits:
        _limit(resource.RLIMIT_DATA, limits["data"])
    if setup.most is not None:
        _limit(resource.RLIMIT_NPROC, setup.most)


def _enter(boot: dict[str, Any], streams: Streams, setup: _Setup, doing: _Doing) -> dict[str, str]:
    """Becomes the user and enters the workspace; returns the environment. Raises OSError, EnvFileError."""
    who, cwd, guarded = setup.who, boot.get("cwd"), privileges.separates_users()
    if who is not None:
        doing.what = f"become {who.name}: "
        for fd in streams[1:]:
            # So that the step can open /dev/stdout and /dev/stderr. No other process reaches these pipes.
            os.fchmod(fd, 0o622)
        privileges.become(who.uid, who.gid, who.groups, setuid_programs="sudo" in setup.limits)
        doing.what = f"let {who.name} reach the state directory, which must not lie in a closed one: "
        os.stat(boot["output"])
    if cwd:
        doing.what = f"enter the workspace {cwd}: "
        trusted_path.enter(cwd, guarded=who is not None or guarded)
    doing.what = ""
    # By now as the step's user, so that it can read no more than that.
    return env_files.environment(boot, guarded=who is None and guarded)


def _limit(what: int, value: int) -> None:
    """Hard and soft, so that the step cannot raise it; never more than it was."""
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def person(user: str) -> Person:
    """Looks a user up by name or number. Raises StartError."""
    import pwd

    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        raise StartError(f"cannot run it as {user}: there is no such user") from None
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return Person(found.pw_name, found.pw_uid, found.pw_gid, groups)


def _refuse_member(limits: dict[str, Any], who: Person) -> None:
    """A member of the daemon's group may open its files. Raises StartError."""
    if "apart" in limits and who.uid != 0 and os.getegid() in (who.gid, *who.groups):
        raise StartError(f"cannot run it as {who.name}: that user is a member of the daemon's group")


def open_up(boot: dict[str, Any], who: Person) -> None:
    """Lets the user reach what this attempt needs, and no more. Raises StartError."""
    try:
        acl.open_run(boot["reach"], who.uid)
        for path in (boot["output"], boot["result"]):
            acl.make_file(path, who.uid)
    except OSError as error:
        hint = " (its file system has no access control lists)"
        raise StartError(
            f"cannot run it as {who.name}: cannot let it reach {error.filename}: {error.strerror}"
            f"{hint if error.errno == errno.EOPNOTSUPP else ''}"
        ) from None


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has now, which is what the system counts."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


def located(program: str, env: dict[str, str]) -> str:
    """Where the program is, by the PATH that the step is given. Raises OSError as exec would."""
    if "/" in program:
        return program
    denied = False
    for directory in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory or ".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        denied = denied or os.path.exists(path)
    code = errno.EACCES if denied else errno.ENOENT
    raise OSError(code, os.strerror(code), program)
