"""Measures the CPU time and memory of the daemon itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque

from toband.ports import DaemonUse

SAMPLE_EVERY = 1.0
SAMPLES = 6
"""The use of CPU is that of the time between the first and the last of them."""


class DaemonMeter:
    """Implements `ports.OwnMeter`."""

    def __init__(self) -> None:
        self._samples = deque([_now()], SAMPLES)
        self._rss = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_EVERY)
            self._samples.append(_now())

    def read(self) -> DaemonUse:
        at, spent = _now()
        first_at, first_spent = self._samples[0]
        cores = (spent - first_spent) / max(at - first_at, 0.001)
        # A daemon without a free descriptor still answers, with what it knew last.
        with contextlib.suppress(OSError):
            self._rss = _resident()
        return DaemonUse(cpu=cores, cpu_time=spent, rss_bytes=self._rss)


def _now() -> tuple[float, float]:
    """The monotonic time, and the seconds of CPU that this process has used."""
    return time.monotonic(), time.process_time()


if sys.platform == "linux":
    _PAGE = os.sysconf("SC_PAGE_SIZE")

    def _resident() -> int:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE

else:

    def _resident() -> int:
        import psutil

        return int(psutil.Process().memory_info().rss)
