"""Growth of a process under many inputs: of its memory and of its descriptors."""

from __future__ import annotations

import os
from pathlib import Path

MIB = 1024 * 1024
WARM_AFTER = 300
"""Inputs after which caches, pools and workers are there."""
DESCRIPTORS_MORE = 60
"""Connections and streams that are ending, and helper processes."""
MEMORY_MORE = 96 * MIB


class Growth:
    """Compares with the most that the process had during its first inputs."""

    def __init__(self, pid: int, *, warm_after: int = WARM_AFTER) -> None:
        self._pid = pid
        self._warm_after = warm_after
        self._inputs = 0
        self._descriptors = self._memory = 0

    def expect_none(self) -> None:
        """To be called after each input. Raises AssertionError."""
        self._inputs += 1
        descriptors, memory = descriptors_of(self._pid), memory_of(self._pid)
        if self._inputs <= self._warm_after:
            self._descriptors = max(self._descriptors, descriptors)
            self._memory = max(self._memory, memory)
            return
        since = f"more at input {self._inputs} than during the first {self._warm_after}"
        more = descriptors - self._descriptors
        assert more <= DESCRIPTORS_MORE, f"{more} descriptors {since}"
        grown = memory - self._memory
        assert grown <= MEMORY_MORE, f"{grown // MIB} MiB of memory {since}"


def descriptors_of(pid: int) -> int:
    """0 where only root may look inside the process."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return 0


def memory_of(pid: int) -> int:
    """Resident bytes of its own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say RssAnon")
