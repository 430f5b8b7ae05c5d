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
import resource
import signal
from typing import Any, NamedTuple, NoReturn

from toband import failpoints
from toband.supervise.shim import acl, cgroups, env_files, private_memory, privileges, secret_files, trusted_path

# A step starts with default signal handling, whatever the daemon inherited.
_ALL_SIGNALS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
# The system is short of something: that passes, and is not the step's fault.
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EDQUOT)


_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


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
            return Started(_fork(boot, limits, streams), True)
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
                _found(argv[0], env),
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, standard) for standard, fd in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=_ALL_SIGNALS,
            )
    finally:
        os.chdir("/")


def _found(program: str, env: dict[str, str]) -> str:
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


def _cannot_start(boot: dict[str, Any], error: Exception) -> str:
    program, cwd = boot["argv"][0], boot.get("cwd")
    if isinstance(error, OSError):
        if cwd and error.filename == cwd:
            return f"cannot start {program}: cannot enter the workspace {cwd}: {error.strerror}"
        return f"cannot start {program}: {error.strerror}"
    return f"cannot start {program}: {error}"


# -- steps that need setup in the child before exec


def _fork(boot: dict[str, Any], limits: dict[str, Any], streams: Streams) -> int:
    """Raises StartError, OSError."""
    who = person(limits["user"]) if "user" in limits else None
    if who is not None:
        open_up(boot, who)
    most = limits.get("processes")
    if most is not None:
        uid = os.geteuid() if who is None else who.uid
        if uid == 0:
            raise StartError(f"cannot start {boot['argv'][0]}: resources.pids holds for no process of root's here")
        most += tasks_of(uid)
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _become(boot, limits, who, most, streams, writer)
    os.close(writer)
    told = b""
    while part := os.read(reader, 4096):
        told += part
    os.close(reader)
    if told:
        os.waitpid(pid, 0)
        raise StartError(told.decode(errors="replace"))
    return pid


def _become(
    boot: dict[str, Any],
    limits: dict[str, Any],
    who: Person | None,
    most: int | None,
    streams: Streams,
    told: int,
) -> NoReturn:
    """In the child: applies user, limits and directory, then execs the step. Errors go back through `told`."""
    argv, cwd = boot["argv"], boot.get("cwd")
    guarded = privileges.separates_users()
    doing = ""
    try:
        signal.set_wakeup_fd(-1)
        for signum in _ALL_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        private_memory.restore_limit()
        for standard, fd in enumerate(streams):
            os.dup2(fd, standard)
        if boot.get("cgroup"):
            doing = "enter its cgroup: "
            cgroups.enter(boot["cgroup"]["path"])
        if "nice" in limits:
            doing = f"give it the niceness {limits['nice']}: "
            os.setpriority(os.PRIO_PROCESS, 0, limits["nice"])
        doing = "limit it: "
        if "data" in limits:
            _limit(resource.RLIMIT_DATA, limits["data"])
        if most is not None:
            _limit(resource.RLIMIT_NPROC, most)
        if who is not None:
            doing = f"become {who.name}: "
            for fd in streams[1:]:
                # So that the step can open /dev/stdout and /dev/stderr. No other process reaches these pipes.
                os.fchmod(fd, 0o622)
            privileges.become(who.uid, who.gid, who.groups, setuid_programs="sudo" in limits)
            doing = f"let {who.name} reach the state directory, which must not lie in a closed one: "
            os.stat(boot["output"])
        if cwd:
            doing = f"enter the workspace {cwd}: "
            trusted_path.enter(cwd, guarded=who is not None or guarded)
        if "no_new_privileges" in limits:
            doing = "give up new privileges: "
            privileges.forbid_new()
        doing = ""
        # By now as the step's user, so that it can read no more than that.
        env = env_files.environment(boot, guarded=who is None and guarded)
        program = _found(argv[0], env)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program, argv, env)  # noqa: S606 - the command of the definition
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) else str(error) or repr(error)
        what = f"cannot {doing}{reason}" if doing else reason
        os.write(told, f"cannot start {argv[0]}: {what}".encode(errors="replace"))
    finally:
        os._exit(127)


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
