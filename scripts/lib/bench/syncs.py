"""Traces which files a daemon and its processes sync, and when, with strace."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.bench.daemon import Daemon, running
from scripts.lib.bench.errors import BenchError

# 1700000000.123456 fsync(7</state/runs/…/.s0.1.ab.log.77>(deleted)) = 0 <0.000210>
_LINE = re.compile(r"^(\d+\.\d+) f(?:data)?sync\(\d+<(.*?)>(?:\(deleted\))?\) = 0 <(\d+\.\d+)>$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A successful sync; `took` is in seconds, and a little longer than without strace."""

    process: int
    at: float
    path: Path
    took: float


class Tracer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def syncs(self, began: float, ended: float) -> list[Sync]:
        """In the order of each process; of all processes between two moments of the wall clock."""
        return [sync for sync in self._all() if began <= sync.at <= ended]

    def _all(self) -> Iterator[Sync]:
        for file in sorted(self._directory.iterdir()):
            for line in file.read_text(errors="replace").splitlines():
                if match := _LINE.match(line):
                    yield Sync(
                        process=int(file.suffix[1:]),
                        at=float(match[1]),
                        path=Path(match[2].removesuffix(" (deleted)")),
                        took=float(match[3]),
                    )


@contextlib.contextmanager
def traced(work: Path, name: str) -> Iterator[tuple[Daemon, Tracer]]:
    """A daemon whose syncs are traced, with those of its spawner, shims and steps. Raises BenchError."""
    strace = shutil.which("strace")
    if strace is None:
        raise BenchError("cannot count syncs: strace is missing; on Debian: apt-get install strace")
    directory = work / f"{name}.syncs"
    directory.mkdir()
    # One file per process, so that lines do not mix. Only syncs stop the processes.
    words = [strace, "-qq", "-ff", "-y", "-ttt", "-T", "--seccomp-bpf", "-e", "signal=none"]
    words += ["-e", "trace=fsync,fdatasync", "-o", str(directory / "of")]
    with running(work, name, under=words) as daemon:
        yield daemon, Tracer(directory)
