"""Looking at processes from outside, through /proc."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import termios
from typing import NamedTuple

import pytest


class Process(NamedTuple):
    """A process with its start time: the pid alone may belong to another process by now."""

    pid: int
    start: int


class Stat(NamedTuple):
    state: str
    parent: int
    cpu_ticks: int
    start: int


def stat_of(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def seen(pid: int) -> Process:
    """The living process of that pid. Raises AssertionError if there is none."""
    found = stat_of(pid)
    assert found is not None, f"there is no process {pid}"
    assert found.state != "Z", f"process {pid} is dead"
    return Process(pid, found.start)


def alive(process: Process) -> bool:
    found = stat_of(process.pid)
    return found is not None and found.start == process.start and found.state not in "ZX"


def state_of(pid: int) -> str:
    """`Z` is dead and not taken up by its parent yet; empty is gone altogether."""
    found = stat_of(pid)
    return found.state if found is not None else ""


def gone(process: Process) -> bool:
    return not alive(process)


def children_of(pid: int) -> list[Process]:
    """Direct children, zombies included."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            child = stat_of(int(name))
            if child is not None and child.parent == pid:
                found.append(Process(int(name), child.start))
    return found


def marked(marker: str) -> list[Process]:
    """Living processes, this one apart, that carry the marker in their arguments or environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        if any(marker.encode() in _read(f"/proc/{name}/{part}") for part in ("cmdline", "environ")):
            stat = stat_of(int(name))
            if stat is not None and stat.state not in "ZX":
                found.append(Process(int(name), stat.start))
    return found


def users_of(directory: str | os.PathLike[str]) -> list[Process]:
    """Living processes, this one apart, that work in the directory or hold a file there open."""
    top = os.path.realpath(directory)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        if any(link == top or link.startswith(f"{top}/") for link in _links(name)):
            stat = stat_of(int(name))
            if stat is not None and stat.state not in "ZX":
                found.append(Process(int(name), stat.start))
    return found


def _links(pid: str) -> list[str]:
    """Where a process works, and what it holds open."""
    links = []
    with contextlib.suppress(OSError):
        links.append(os.readlink(f"/proc/{pid}/cwd"))
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return [link.removesuffix(" (deleted)") for link in links]


def command_of(pid: int) -> str:
    """Its arguments in one line; empty if it is gone."""
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")


def describe(process: Process) -> str:
    return f"{process.pid}: {command_of(process.pid)[:200]}"


def kill(process: Process, signum: int = signal.SIGKILL) -> None:
    """Signals exactly that process; one that is gone is none of our business."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(process.pid)
        try:
            if alive(process):
                signal.pidfd_send_signal(fd, signum)
        finally:
            os.close(fd)


def look_inside(pid: int) -> None:
    """Skips the test where this user may not: the memory and the descriptors of daemon and shims are closed to all but
    root.
    """
    if not os.access(f"/proc/{pid}/fd", os.R_OK):
        pytest.skip("only root may look inside a process that is not dumpable")


def unread(pid: int, fd: int) -> int:
    """How many bytes are in a pipe that the process writes to, and were not taken out yet."""
    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return int.from_bytes(fcntl.ioctl(own, termios.FIONREAD, bytes(4)), sys.byteorder)
    finally:
        os.close(own)


def proportional_bytes(pid: int) -> int:
    """The memory that a process accounts for, shared pages divided among those who share them."""
    return _memory(pid, "Pss")


def written_bytes(pid: int) -> int:
    """The memory that a process, or the one it is a copy of, wrote to: however many share it by now."""
    return _memory(pid, "Anonymous")


def _memory(pid: int, name: str) -> int:
    look_inside(pid)
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name} of {pid}")


def memory_holds(pid: int, needle: bytes) -> bool:
    """Whether the bytes are anywhere in what a process can read of its own memory. Raises PermissionError."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            if "r" not in mode or "[v" in line:
                continue
            first, last = (int(part, 16) for part in span.split("-"))
            with contextlib.suppress(OSError, OverflowError):
                memory.seek(first)
                if needle in memory.read(last - first):
                    return True
    return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
