"""Processes that survived SIGKILL: reported to health as long as they exist."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("a job object leaves none")

import asyncio

from toband.domain.attempt_model import Attempt
from toband.ports import Conditions, HealthStatus
from toband.supervise.launch.end_record import EndRecord
from toband.supervise.shim import process_tree

LOOK_EVERY = 5.0
UNKILLABLE = "unkillable"


class Survivors:
    """Belongs to a running event loop."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._known: dict[tuple[int, int], str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self, attempt: Attempt, record: EndRecord) -> None:
        """Takes the survivors named in an end record."""
        count = record.event.ending.survivors
        if not count:
            return
        pids = ", ".join(str(pid) for pid, _ in record.survivors)
        text = f"step {attempt.step} of run {attempt.run_id} left {count} processes that do not die: pids {pids}"
        self._known |= dict.fromkeys(record.survivors, text)
        self._look()

    def _look(self) -> None:
        for pid, start in list(self._known):
            seen = process_tree.stat_of(pid)
            if seen is None or seen[1] != start or seen[2] in "ZX":
                del self._known[pid, start]
        self.close()
        if not self._known:
            self._conditions.well(UNKILLABLE)
            return
        detail = "; ".join(sorted(set(self._known.values())))
        self._conditions.trouble(UNKILLABLE, HealthStatus.DEGRADED, detail)
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)
