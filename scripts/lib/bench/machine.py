"""Describes the machine of a measurement."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

_SYNCS = 50


def facts(directory: Path) -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "filesystem": filesystem(directory),
        "sync_ms": round(_sync_time(directory) * 1000, 3),
        "load": round(os.getloadavg()[0], 2),
    }


def filesystem(directory: Path) -> str:
    """The file system type of a directory."""
    found, kind = "", "unknown"
    place = str(directory.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, this, *_ = line.split()
        mount = mount.encode().decode("unicode_escape")
        below = mount == "/" or place == mount or place.startswith(f"{mount}/")
        if below and len(mount) >= len(found):
            found, kind = mount, this
    return kind


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _sync_time(directory: Path) -> float:
    """Of 4 KiB appended to a file: the unavoidable cost of one commit."""
    path = directory / "sync"
    taken = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(fd, bytes(4096))
            began = time.perf_counter()
            os.fdatasync(fd)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(taken)
