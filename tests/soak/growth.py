"""What the daemon uses of the machine, sampled over the year, and whether any of it grew."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sqlite3
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY_MOST = 0.05
SPREAD = 0.15
"""By how much the size of the database may exceed its size at the end of the first part: the load varies."""
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    day: float
    rss: int
    descriptors: int
    threads: int
    tasks: int
    objects: int
    active: int
    runs: int
    database: int
    pages_free: int
    files: int

    def __str__(self) -> str:
        return (
            f"day {self.day:5.0f}: {self.runs:7,} runs, rss {self.rss / MIB:6.1f} MiB, {self.descriptors} descriptors, "
            f"{self.threads} threads, {self.tasks} tasks, {self.objects:,} objects, {self.active} active, "
            f"database {self.database / MIB:.1f} MiB ({self.pages_free} pages free), {self.files:,} files"
        )


def sample(day: float, root: Path, *, runs: int, active: int) -> Sample:
    gc.collect()
    if sys.platform == "linux":
        # Memory that the allocator holds without using it is not growth.
        ctypes.CDLL(None).malloc_trim(0)
    database = root / "toban.db"
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    connection.close()
    return Sample(
        day=day,
        rss=_resident(),
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        tasks=len(asyncio.all_tasks()),
        objects=len(gc.get_objects()),
        active=active,
        runs=runs,
        database=database.stat().st_size,
        pages_free=free,
        files=sum(len(files) + len(directories) for _, directories, files in os.walk(root)),
    )


def growth(samples: Sequence[Sample], settled: float) -> list[str]:
    """What grew after the first part, `settled`, of the time: from its highest sample then to the lowest at the end."""
    days = samples[-1].day
    first = [each for each in samples if each.day <= max(days * settled, samples[0].day)]
    early, late = first[-2:], samples[-3:]
    wrong = []
    for name, most, slack in (
        ("rss", MEMORY_MOST, 0),
        ("descriptors", 0.0, 0),
        ("threads", 0.0, 2),
        ("tasks", 0.10, 5),
        ("objects", MEMORY_MOST, 2000),
        ("database", SPREAD, 0),
        ("files", SPREAD, 500),
    ):
        before = max(getattr(each, name) for each in early)
        after = min(getattr(each, name) for each in late)
        if after > before * (1 + most) + slack:
            wrong.append(f"{name} grew from {before:,} to {after:,}, by {after / before - 1:.1%}; at most {most:.0%}")
    return wrong


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
