"""Processes that steps of ended runs left behind: finds them by the token in their environment, and ends them.

Only those are ours that the spawner, or a process above the daemon, adopted: any other parent started them on purpose.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from toband.ports import StepProcess
from toband.supervise.files.file_user import FileUser, file_user

if TYPE_CHECKING:
    import psutil

if sys.platform != "win32":
    import select
    import signal

    from toband.supervise.shim import process_tree

POLITE = 5.0
"""Seconds between TERM and KILL, and after KILL until a process counts as a survivor."""


class StrayProcesses:
    """Those with a token of a step whose output is below `root`."""

    def __init__(self, root: str, *, step_user: str, spawner: Callable[[], int | None]) -> None:
        self._root = root
        self._step_user = step_user
        self._spawner = spawner

    def find(self) -> Sequence[StepProcess]:
        # Imported only when it is needed, to save memory in an idle daemon.
        import psutil

        below = self._root + os.sep
        user = _known_user(self._step_user)
        found: dict[int, tuple[float, str, str]] = {}
        parents: dict[int, int] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                parents[process.pid] = process.ppid()
                environment = _environment_of(process, user)
                token = environment.get("TOBAN_ATTEMPT_TOKEN", "")
                output = environment.get("TOBAN_OUTPUT", "")
                start = start_of(process.pid)
                if token and output.startswith(below) and start is not None:
                    found[process.pid] = start, token, output[len(below) :].split(os.sep)[0]
        adopters = self._adopters(parents)
        processes = []
        for pid, (start, token, run_id) in found.items():
            parent = _first_outside(pid, parents, found)
            marked = StepProcess(
                pid=pid,
                start=start,
                token=token,
                run_id=run_id,
                command=_command(pid),
                parent=_command(parent),
                ours=parent in adopters,
            )
            processes.append(marked)
        return processes

    def _adopters(self, parents: dict[int, int]) -> set[int]:
        """The processes that adopt a step whose supervisor has died: the spawner, or one above the daemon, or init."""
        adopters = {0, 1, os.getpid(), self._spawner() or 0}
        pid = os.getpid()
        while pid in parents and parents[pid] not in adopters:
            pid = parents[pid]
            adopters.add(pid)
        return adopters


def end(processes: Sequence[StepProcess]) -> Sequence[StepProcess]:
    """Ends exactly these; returns those that are still alive."""
    held = [(process, _hold(process)) for process in processes]
    living = {process.pid: (process, hold) for process, hold in held if hold is not None}
    try:
        for hard in (False, True):
            for _, hold in living.values():
                hold.signal(hard)
            until = time.monotonic() + POLITE
            while living and time.monotonic() < until:
                for pid in [pid for pid, (_, hold) in living.items() if hold.gone(0.05)]:
                    living.pop(pid)[1].close()
    finally:
        for _, hold in living.values():
            hold.close()
    return [process for process, _ in living.values()]


def _hold(process: StepProcess) -> _Hold | None:
    """Exactly that process; None if it has ended."""
    hold = _open(process.pid)
    if hold is not None and start_of(process.pid) != process.start:
        hold.close()
        return None
    return hold


def _known_user(name: str) -> FileUser | None:
    with contextlib.suppress(OSError):
        return file_user(name)
    return None


def _environment_of(process: psutil.Process, user: FileUser | None) -> Mapping[str, str]:
    """Raises psutil.Error, OSError."""
    # A daemon that is not root may not look at processes of another user; that user may.
    if sys.platform == "win32" or user is None or process.uids().real != user.uid:
        return process.environ()
    with user:
        return process.environ()


def _first_outside(pid: int, parents: dict[int, int], marked: Collection[int]) -> int:
    """The nearest ancestor that is not one of them."""
    for _ in range(len(parents)):
        pid = parents.get(pid, 0)
        if pid not in marked:
            break
    return pid


def _command(pid: int) -> str:
    import psutil

    try:
        process = psutil.Process(pid)
        return " ".join(process.cmdline())[:200] or process.name()
    except (psutil.Error, OSError):
        return ""


if sys.platform == "win32":

    def start_of(pid: int) -> float | None:
        import psutil

        try:
            return psutil.Process(pid).create_time()
        except psutil.Error:
            return None

    class _Hold:
        """psutil compares the creation time before every action."""

        def __init__(self, pid: int) -> None:
            import psutil

            self._process = psutil.Process(pid)

        def signal(self, hard: bool) -> None:
            import psutil

            with contextlib.suppress(psutil.Error):
                self._process.kill()

        def gone(self, within: float) -> bool:
            time.sleep(within)
            return not self._process.is_running()

        def close(self) -> None:
            return None

    def _open(pid: int) -> _Hold | None:
        import psutil

        try:
            return _Hold(pid)
        except psutil.Error:
            return None

else:

    def start_of(pid: int) -> float | None:
        found = process_tree.stat_of(pid)
        return float(found[1]) if found is not None and found[2] not in "ZX" else None

    class _Hold:
        """A pidfd: refers to this process even if its pid is reused."""

        def __init__(self, fd: int) -> None:
            self._fd = fd

        def signal(self, hard: bool) -> None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL if hard else signal.SIGTERM)

        def gone(self, within: float) -> bool:
            return bool(select.select([self._fd], [], [], within)[0])

        def close(self) -> None:
            os.close(self._fd)

    def _open(pid: int) -> _Hold | None:
        try:
            return _Hold(os.pidfd_open(pid))
        except OSError:
            return None
