"""Breaks down the time of a chained step, from the times that the daemon and the shims record anyway."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import itertools
import os
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import Daemon, running
from scripts.lib.bench.syncs import Sync, traced

from toband.supervise.shim import frames

PHASES = (
    ("decided", "claimed", "commit, hand-over to the spawner, fork, the claim's file"),
    ("claimed", "started", "two syncs, posix_spawn"),
    ("started", "ended", "the program itself, its pipes, the proof that nothing is left"),
    ("ended", "recorded", "side files, the end record is put together"),
    ("recorded", "next decided", "a sync, the shim's exit, the daemon wakes and reads the record"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A part of a step's time, in ms."""

    name: str
    what: str
    median: float
    p90: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    steps: int
    runs: int
    per_step: float
    phases: tuple[Line, ...]
    syncs: tuple[Line, ...]
    processor: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        def lines(found: Sequence[Line]) -> list[dict[str, Any]]:
            return [
                {
                    "name": line.name,
                    "what": line.what,
                    "median_ms": round(line.median, 4),
                    "p90_ms": round(line.p90, 4),
                    "mean_ms": round(line.mean, 4),
                }
                for line in found
            ]

        return {
            "steps": self.steps,
            "runs": self.runs,
            "per_step_ms": round(self.per_step, 4),
            "phases": lines(self.phases),
            "syncs": lines(self.syncs),
            "processor_ms": {name: round(used, 4) for name, used in self.processor.items()},
        }


def of_chain(work: Path, program: str, steps: int, runs: int) -> StepTimes:
    """Raises BenchError."""
    definition = work / "chain.yaml"
    definition.write_text(workflows.chain(program, steps))
    with running(work, "times") as daemon:
        daemon.drive("apply", definition)
        daemon.drive("run", "chain", steps)
        before = _processor_times(daemon)
        done = [daemon.drive("run", "chain", steps) for _ in range(runs)]
        used = {name: value - before[name] for name, value in _processor_times(daemon).items()}
        used["client"] = sum(one["processor"] for one in done)
    with traced(work, "syncs") as (daemon, tracer):
        daemon.drive("apply", definition)
        looked_at = daemon.drive("run", "chain", steps)
    state = work / "times"
    taken: dict[str, list[float]] = defaultdict(list)
    for one in done:
        for marks in _marks(state, one["run"]):
            for start, end, _ in PHASES:
                taken[start].append((marks[end] - marks[start]) / 1000)
    return StepTimes(
        steps=steps,
        runs=runs,
        per_step=statistics.median(one["seconds"] for one in done) / steps * 1000,
        phases=tuple(_line(f"{start} -> {end}", what, taken[start]) for start, end, what in PHASES),
        syncs=tuple(_sync_lines(tracer.syncs(looked_at["began"], looked_at["ended"]), steps)),
        processor={name: value / (runs * steps) * 1000 for name, value in used.items()},
    )


def _marks(state: Path, run: str) -> Iterator[dict[str, int]]:
    """Moments of each step but the last, in microseconds."""
    with closing(sqlite3.connect(f"file:{state}/toban.db?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT step, number, created_at FROM process_executions WHERE run_id = ? ORDER BY ordinal",
            (run,),
        ).fetchall()
    for (step, number, decided), (_, _, following) in itertools.pairwise(rows):
        (path,) = (state / "runs" / run / "attempts").glob(f"{step}.{number}.*.log")
        marks = {"decided": decided, "next decided": following}
        fd = os.open(path, os.O_RDONLY)
        try:
            for frame in frames.frames_of(fd):
                match frame.kind:
                    case frames.CLAIM:
                        marks["claimed"] = frame.at
                    case frames.STARTED:
                        marks["started"] = frame.at
                    case frames.END:
                        marks["recorded"] = frame.at
                    case _:
                        pass
            record = frames.read_end(fd)
        finally:
            os.close(fd)
        assert record is not None
        marks["ended"] = record["finished_at"]
        yield marks


def _sync_lines(syncs: Sequence[Sync], steps: int) -> Iterator[Line]:
    kinds: dict[str, list[float]] = defaultdict(list)
    for _, group in itertools.groupby(syncs, key=lambda sync: sync.process):
        claimed = False
        for sync in group:
            if sync.path.name == "toban.db-wal":
                kinds["database"].append(sync.took)
            elif sync.path.name == "attempts":
                kinds["claim's directory"].append(sync.took)
                claimed = True
            elif sync.path.parent.name == "attempts":
                kinds["end record" if claimed else "claim's file"].append(sync.took)
    for name, taken in kinds.items():
        what = f"{len(taken) / steps:.2f} per step"
        yield _line(name, what, [one * 1000 for one in taken])


def _line(name: str, what: str, samples: Sequence[float]) -> Line:
    ordered = sorted(samples)
    return Line(
        name=name,
        what=what,
        median=statistics.median(ordered),
        p90=ordered[int(len(ordered) * 0.9)],
        mean=statistics.fmean(ordered),
    )


def _processor_times(daemon: Daemon) -> dict[str, float]:
    """Processor time in seconds. The spawner's children are the shims, with the steps that they awaited."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for name, pid in (("daemon", daemon.pid), ("spawner", daemon.spawner)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system, child_user, child_system = map(int, fields[11:15])
        found[name] = (user + system) / tick
        if name == "spawner":
            found["shims and steps"] = (child_user + child_system) / tick
    return found
