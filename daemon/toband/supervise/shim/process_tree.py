"""The process tree below this process: finding it, signalling it, and proving that it is gone.

This process must be a subreaper, so that orphans of its descendants become its children. Walks only choose targets;
only the kernel proves that nothing is left, when there is no child to wait for.

Standard library only: the shim and the spawner use it.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("process trees are walked by the POSIX shim")

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_MOST = 100_000
_PF_EXITING = 0x4

_libc = ctypes.CDLL(None, use_errno=True)


class Target(NamedTuple):
    """A process as it was seen: its pid can be reused, its start time beside it cannot."""

    pid: int
    parent: int
    start: int


def boot_id() -> str:
    """The boot id of the machine. TOBAN_BOOT_ID replaces it in tests."""
    given = os.environ.get("TOBAN_BOOT_ID")
    return given or _read("/proc/sys/kernel/random/boot_id").decode().strip()


def _read(path: str) -> bytes:
    """A small file of /proc. Not `open`, which costs a fresh fork a hundred pages. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def become_subreaper() -> None:
    """Raises OSError."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot become a subreaper: {os.strerror(code)}")


def stat_of(pid: int) -> tuple[int, int, str] | None:
    """Parent, start time in clock ticks since boot, and state of a process; None if it is gone."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) < 20:
        return None
    return int(fields[1]), int(fields[19]), fields[0].decode()


def arguments() -> tuple[int, int] | None:
    """Address and size of this process's arguments; None if the system does not tell."""
    fields = _read("/proc/self/stat").rpartition(b")")[2].split()
    if len(fields) < 47:
        return None
    start, end = int(fields[45]), int(fields[46])
    return (start, end - start) if 0 < start < end else None


def children_of(pid: int) -> list[int]:
    """Direct children at this moment."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            # A thread that is gone by now says nothing of the others.
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                break
    else:
        return found
    # A kernel without the list of children: read the parent of every process.
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = stat_of(int(name))
            if seen is not None and seen[0] == pid:
                found.append(int(name))
    return found


def descendants(skip: Iterable[int] = (), below: int = 0) -> list[Target]:
    """Everything below this process, or that one, but `skip` and what is below that, parents before their children."""
    skipped = set(skip)
    found: list[Target] = []
    queue = [below or os.getpid()]
    while queue and len(found) < _MOST:
        parent = queue.pop(0)
        for pid in children_of(parent):
            if pid in skipped:
                continue
            seen = stat_of(pid)
            if seen is not None and seen[0] == parent:
                found.append(Target(pid, parent, seen[1]))
                queue.append(pid)
    return found


def memory(enough: int) -> int:
    """Bytes that the processes below this one hold together.

    A quick sum counts what they share once for each. Only if that is more than `enough` is it shared out among them,
    which takes the kernel a walk through their memory.
    """
    pids = [target.pid for target in descendants()]
    page = os.sysconf("SC_PAGE_SIZE")
    resident = {pid: _resident(pid) * page for pid in pids}
    total = sum(resident.values())
    if total <= enough:
        return total
    return sum(_share(pid, resident[pid]) for pid in pids)


def _resident(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1])
    except (OSError, IndexError):
        return 0


def _share(pid: int, otherwise: int) -> int:
    """A process's part of the memory that it holds; `otherwise` where the kernel will not say."""
    try:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0 if stat_of(pid) is None else otherwise
    except OSError:
        return otherwise
    return 0


def exiting(pid: int) -> bool:
    """Whether it is on its way out, so that no signal reaches it any more."""
    try:
        flags = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6])
    except (OSError, IndexError):
        return True
    return bool(flags & _PF_EXITING)


def dies_of(pid: int, signum: int) -> bool:
    """Whether it neither catches, ignores nor blocks that signal: then one that reaches it ends it, visibly."""
    masks = 0
    try:
        for line in _read(f"/proc/{pid}/status").splitlines():
            name, _, value = line.partition(b":")
            if name in (b"SigBlk", b"SigIgn", b"SigCgt"):
                masks |= int(value, 16)
    except (OSError, ValueError):
        return False
    return not masks >> (signum - 1) & 1


def living_below(pid: int) -> list[Target]:
    """What is below that process and has not ended, whether it was reaped or not."""
    found = []
    for target in descendants(below=pid):
        seen = stat_of(target.pid)
        if seen is not None and seen[2] not in "ZX":
            found.append(target)
    return found


def kill_below(pid: int, patience: float) -> bool:
    """KILLs all below a subreaper, at most that many seconds. True when only those are left that it has to reap."""
    deadline = time.monotonic() + patience
    while found := living_below(pid):
        for target in found:
            send(target, signal.SIGKILL, pid)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def send(target: Target, signum: int, reaper: int = 0) -> bool:
    """Signals exactly that process, never one that reused its pid. False if it is gone.

    `reaper` is who gets what is orphaned: this process if it is not given.
    """
    try:
        fd = os.pidfd_open(target.pid)
    except OSError:
        return False
    try:
        seen = stat_of(target.pid)
        if seen is None or seen[1] != target.start or seen[2] == "Z":
            return False
        if seen[0] not in (target.parent, reaper or os.getpid()):
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def signal_all(signum: int, skip: Iterable[int] = ()) -> int:
    """Signals the tree as it is seen now, parents first; how many were reached."""
    return sum(send(target, signum) for target in descendants(skip))


def reap(ended: Callable[[int, int], None]) -> bool:
    """Takes up every child that has ended. True when the kernel has no child left: the tree is empty."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        ended(pid, status)


def kill_all(ended: Callable[[int, int], None], patience: float) -> bool:
    """KILLs until the tree is empty, at most that many seconds. True when the kernel says it is.

    Those who fork while they are killed are caught by going round without a pause as long as anything moves.
    """
    deadline = time.monotonic() + patience
    pause = 0.0
    while True:
        moved = signal_all(signal.SIGKILL)
        before = _Counter(ended)
        if reap(before):
            return True
        if time.monotonic() >= deadline:
            return False
        pause = 0.0 if moved or before.count else min(0.05, pause + 0.001)
        if pause:
            time.sleep(pause)


class _Counter:
    __slots__ = ("_ended", "count")

    def __init__(self, ended: Callable[[int, int], None]) -> None:
        self._ended = ended
        self.count = 0

    def __call__(self, pid: int, status: int) -> None:
        self.count += 1
        self._ended(pid, status)
