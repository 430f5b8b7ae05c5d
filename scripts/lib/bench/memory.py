"""Memory of processes, as the kernel counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_MB_PER_KIB = 1024 / 1_000_000


def pss(pid: int) -> float:
    """Proportional set size in MB: private memory, and a share of the shared memory."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss") * _MB_PER_KIB


def without_neighbours(pids: Iterable[int]) -> float:
    """In MB, the maximum memory of these processes if no other process had their libraries mapped.

    PSS falls when another program of the same interpreter runs. Here shared memory counts in full, once per file.
    """
    private = 0
    shared: Counter[str] = Counter()
    for pid in pids:
        own: Counter[str] = Counter()
        for name, sizes in _mappings(Path(f"/proc/{pid}/smaps").read_text()):
            private += _kib(sizes, "Private_Clean") + _kib(sizes, "Private_Dirty")
            own[name] += _kib(sizes, "Shared_Clean") + _kib(sizes, "Shared_Dirty")
        shared |= own
    return (private + shared.total()) * _MB_PER_KIB


def _mappings(smaps: str) -> Iterable[tuple[str, str]]:
    """Name and block of each mapping; a mapping is named by its file and the offset in it."""
    name, block = "", ""
    for line in smaps.splitlines(keepends=True):
        if line[0].isupper():
            block += line
            continue
        if block:
            yield name, block
        words = line.split()
        name, block = f"{words[2]} {words[-1]}", ""
    if block:
        yield name, block


def _kib(text: str, name: str) -> int:
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
