"""Resource use of process trees, read with psutil."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from toband.ports import MeterReading

if TYPE_CHECKING:
    import psutil

PROCESSES_MOST = 2000
"""At most this many processes of a tree are read, so that a fork bomb does not keep the daemon busy."""


class ProcessMeter:
    """Implements `ports.Meter`; `supervisors` gives the pid of each live attempt's supervisor, by attempt id."""

    def __init__(self, supervisors: Callable[[], Mapping[str, int]]) -> None:
        self._supervisors = supervisors

    def live(self) -> Collection[str]:
        return self._supervisors().keys()

    async def read(self, attempt_ids: Collection[str]) -> Mapping[str, MeterReading]:
        supervisors = self._supervisors()
        wanted = {one: supervisors[one] for one in attempt_ids if one in supervisors}
        return await asyncio.to_thread(_read_all, wanted)


def _read_all(supervisors: Mapping[str, int]) -> dict[str, MeterReading]:
    # Not before it is needed: an idle daemon does without the memory.
    import psutil

    found = {}
    for attempt_id, pid in supervisors.items():
        try:
            reading = _read(psutil.Process(pid))
        except psutil.Error:
            continue
        if reading is not None:
            found[attempt_id] = reading
    return found


def _read(supervisor: psutil.Process) -> MeterReading | None:
    """Counts what the supervisor has reaped, but not the supervisor. None if it has no processes."""
    import psutil

    rss = processes = read = written = 0
    counted = False
    try:
        times = supervisor.cpu_times()
        cpu = _of_children(times)
        pids = _below(supervisor)
    except psutil.Error:
        return None
    for pid in pids:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                cpu += times.user + times.system + _of_children(times)
                rss += process.memory_info().rss
            processes += 1
        except psutil.Error:
            continue
        try:
            io = process.io_counters()
        except (psutil.Error, AttributeError):
            continue
        counted = True
        read += io.read_bytes
        written += io.write_bytes
    if not processes:
        return None
    return MeterReading(cpu, rss, processes, read if counted else None, written if counted else None)


def _of_children(times: object) -> float:
    """Of children that were waited for; Windows does not count them."""
    user: float = getattr(times, "children_user", 0.0)
    system: float = getattr(times, "children_system", 0.0)
    return user + system


if sys.platform == "linux":

    def _below(supervisor: psutil.Process) -> list[int]:
        """Uses each process's list of children; psutil would scan every process of the machine."""
        from toband.supervise.shim import process_tree

        found: list[int] = []
        queue = [supervisor.pid]
        while queue and len(found) < PROCESSES_MOST:
            for pid in process_tree.children_of(queue.pop()):
                found.append(pid)
                queue.append(pid)
        return found

else:

    def _below(supervisor: psutil.Process) -> list[int]:
        return [process.pid for process in supervisor.children(recursive=True)[:PROCESSES_MOST]]
