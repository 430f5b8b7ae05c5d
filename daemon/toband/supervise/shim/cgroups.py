"""A cgroup per attempt, below the cgroup that was delegated to the daemon.

A process tree cannot leave its cgroup by forking, and a cgroup outlives shim and spawner: killing it ends the whole
tree, and the kernel reports when it is empty. It also enforces limits of memory, cpu and processes where those
controllers are available.

The daemon creates cgroups only in one that a service manager marked as delegated, or that its user, if not root, may
write to.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("cgroups are Linux's")

import contextlib
import fcntl
import os
import signal
import time
from typing import NamedTuple

from toband.backoff import Backoff

CONTROLLERS = ("memory", "cpu", "pids")
ATTEMPTS = "attempts"
_LEAF = "toband"
_FRESH = 60.0
"""Seconds. A shim may be about to use a younger empty cgroup."""
_MARKS = ("trusted.delegate", "user.delegate")
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Cgroups(NamedTuple):
    """Where attempts get their cgroups; `attempts` is empty where they get none, and `reason` says why.

    With `attempts` but without `controllers`, `reason` says why limits cannot be kept by cgroups.
    """

    attempts: str = ""
    home: str = ""
    controllers: frozenset[str] = frozenset()
    reason: str = ""
    mount: str = ""
    namespace: str = ""

    def of(self, token: str) -> str:
        return f"{self.attempts}/{token}"

    def knows(self, path: str, namespace: str, token: str) -> bool:
        """Whether a path that a claim names means the same here as it did to the shim that wrote it."""
        return (
            bool(self.mount)
            and namespace == self.namespace
            and path.startswith(f"{self.mount}/")
            and path.endswith(f"/{ATTEMPTS}/{token}")
            and "/../" not in path
        )


def find(setting: str = "auto", *, own: str | None = None) -> Cgroups:
    """Finds the cgroup of this process and prepares it for attempts. `own` replaces it in tests."""
    mount = _mount()
    if mount is None:
        return Cgroups(reason="there is no cgroup v2 hierarchy here")
    where, root = mount
    here = Cgroups(mount=where, namespace=_namespace())
    if setting == "off":
        return here._replace(reason="switched off by the configuration")
    own = own or _own(where, root)
    if own is None:
        return here._replace(reason="this process is in no cgroup that can be seen from here")
    base, reason = _ours(own, where)
    if not base:
        return here._replace(reason=reason)
    try:
        _make(f"{base}/{ATTEMPTS}")
    except OSError as error:
        return here._replace(reason=f"cannot make a cgroup in {base}: {error.strerror}")
    home, controllers, reason = _divide(base, own)
    return here._replace(attempts=f"{base}/{ATTEMPTS}", home=home, controllers=controllers, reason=reason)


def _mount() -> tuple[str, str] | None:
    """Where the v2 hierarchy is mounted, and which cgroup is its root there."""
    try:
        lines = _read("/proc/self/mountinfo").splitlines()
    except OSError:
        return None
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            words = fields.split(" ")
            return _unescaped(words[4]).rstrip("/"), _unescaped(words[3])
    return None


def _unescaped(text: str) -> str:
    for code, character in _ESCAPES.items():
        text = text.replace(code, character)
    return text


def _own(where: str, root: str) -> str | None:
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            path = line[3:].rstrip("/")
            inside = root.rstrip("/")
            if path.startswith("/..") or not (path + "/").startswith(inside + "/"):
                return None
            return where + path[len(inside) :]
    return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/cgroup")
    except OSError:
        return ""


def _ours(own: str, where: str) -> tuple[str, str]:
    """The cgroup that may be divided; or none, and why."""
    if _delegated(own):
        return own, ""
    parent = os.path.dirname(own)
    if own != where and _delegated(parent):
        return parent, ""
    if os.geteuid() == 0:
        return "", f"{own} was not delegated to this service (Delegate=yes in its unit does that)"
    if os.access(own, os.W_OK | os.X_OK) and os.access(f"{own}/cgroup.procs", os.W_OK):
        return own, ""
    return "", f"{own} is not this user's (Delegate=yes in the service's unit would make it so)"


def _delegated(path: str) -> bool:
    for name in _MARKS:
        try:
            if os.getxattr(path, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _divide(base: str, own: str) -> tuple[str, frozenset[str], str]:
    """Hands controllers down to attempts if that is safe: where supervisors live, which controllers, why not all.

    A cgroup that hands controllers down may hold no process. systemd before 254 starts a service's main process right
    in the unit's cgroup, and then could not start it again: so for a service this is done only when DelegateSubgroup
    keeps its processes below.
    """
    offered = frozenset(_read_or_nothing(f"{base}/cgroup.controllers").split())
    wanted = offered.intersection(CONTROLLERS)
    if not wanted:
        return own, frozenset(), f"{base} has no controllers to hand down"
    home = own
    if own == base:
        if base.endswith(".service"):
            reason = (
                f"{base} holds the daemon itself: DelegateSubgroup in the unit, which systemd has "
                "since 254, lets it hand down controllers"
            )
            return own, frozenset(), reason
        if _processes(base) - {os.getpid()}:
            return own, frozenset(), f"{base} holds processes that are not the daemon's"
        home = f"{base}/{_LEAF}"
        try:
            _make(home)
            _write(f"{home}/cgroup.procs", "0")
        except OSError as error:
            return own, frozenset(), f"cannot move into {home}: {error.strerror}"
    if _processes(base):
        return home, frozenset(), f"{base} holds processes of its own"
    got = frozenset(name for name in wanted if _hand_down(base, name))
    missing = [name for name in CONTROLLERS if name not in got]
    return home, got, f"{base} has no {', '.join(missing)} controller" if missing else ""


def _hand_down(base: str, controller: str) -> bool:
    try:
        for path in (base, f"{base}/{ATTEMPTS}"):
            _write(f"{path}/cgroup.subtree_control", f"+{controller}")
    except OSError:
        return False
    return True


# -- one attempt


def make(path: str) -> int | None:
    """A new cgroup, and a descriptor whose lock says that its supervisor lives. None: it could not be made."""
    fd = -1
    try:
        _make(os.path.dirname(path))
        os.mkdir(path, 0o755)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if fd >= 0:
            os.close(fd)
        return None
    return fd


def limit(path: str, settings: dict[str, str]) -> None:
    """Sets what the controllers are to keep. Raises OSError."""
    for name, value in settings.items():
        try:
            _write(f"{path}/{name}", value)
        except FileNotFoundError:
            # Kernels without swap accounting have no file for it, and nothing to limit.
            if name != "memory.swap.max":
                raise


def enter(path: str) -> None:
    """Moves this process there. Raises OSError."""
    _write(f"{path}/cgroup.procs", "0")


def events(path: str, name: str) -> dict[str, int]:
    """The counters of `name`, such as memory.events; empty where there are none."""
    words = [line.split() for line in _read_or_nothing(f"{path}/{name}").splitlines()]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}


def populated(path: str) -> bool:
    """Whether a living process is in it, or in a cgroup below it. Raises OSError if there is no such cgroup."""
    return "populated 1" in _read(f"{path}/cgroup.events")


def kill(path: str) -> bool:
    """Kills everything in it and below it at once. False: this kernel (before 5.14) cannot, or there is none."""
    try:
        # Not created if missing: a cgroup directory takes no ordinary files.
        _write(f"{path}/cgroup.kill", "1")
    except OSError:
        return False
    return True


def kill_all(path: str) -> None:
    """The same with any kernel."""
    if not kill(path):
        _kill_each(path)


def end(path: str, patience: float) -> str:
    """Ends all processes in it and removes it. Returns `none` (it was empty), `ended`, `left` or `unknown`."""
    deadline = time.monotonic() + patience
    backoff = Backoff(0.0005, 0.02)
    was = False
    try:
        while populated(path):
            was = True
            kill_all(path)
            if time.monotonic() > deadline:
                return "left"
            time.sleep(backoff.pause())
    except (FileNotFoundError, NotADirectoryError):
        pass  # another process found it empty and removed it
    except OSError:
        # ENODEV: removed between opening and reading; anything else will not be known.
        if os.path.isdir(path):
            return "unknown"
    remove(path)
    return "ended" if was else "none"


def remove(path: str) -> bool:
    """Removes an empty cgroup and those that a step made below it. False: it is not empty."""
    for directory, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not os.path.isdir(path)


def sweep(attempts: str) -> tuple[int, int]:
    """Ends and removes what dead supervisors left; how many cgroups went, and how many would not."""
    gone = left = 0
    try:
        names = os.listdir(attempts)
    except OSError:
        return 0, 0
    for name in names:
        path = f"{attempts}/{name}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not populated(path) and time.time() - os.fstat(fd).st_ctime < _FRESH:
                continue
            found = end(path, 5.0)
        except OSError:
            continue  # its supervisor lives, or it is already gone
        finally:
            os.close(fd)
        if found in ("none", "ended"):
            gone += 1
        else:
            left += 1
    return gone, left


def _kill_each(path: str) -> None:
    """For kernels without cgroup.kill: by pid, each looked up again once it cannot be reused any more."""
    for pid in _below(path):
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if pid in _below(path):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:
            continue
        finally:
            os.close(fd)


def _below(path: str) -> set[int]:
    found: set[int] = set()
    for directory, _, _ in os.walk(path):
        found |= _processes(directory)
    return found


def _processes(path: str) -> set[int]:
    return {int(word) for word in _read_or_nothing(f"{path}/cgroup.procs").split()}


def _make(path: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts).decode(errors="surrogateescape")
    finally:
        os.close(fd)


def _read_or_nothing(path: str) -> str:
    try:
        return _read(path)
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
