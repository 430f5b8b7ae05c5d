"""Measures many schedules: the daemon's start, memory and idle time; and the delay of runs when many are due."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scripts.lib.bench import due, memory
from scripts.lib.bench.daemon import Daemon, running
from scripts.lib.bench.due import Arrivals
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import Sizes

NAMES: Final = ("start", "loaded", "idle", "due")
SPARE: Final = 1000.0
"""Milliseconds that a start may take beyond its share of an empty daemon's."""
PASSES: Final = 300.0
"""Seconds between two passes of retention."""
MOVES: Final = 5
"""The number of tries to move schedules before they are due."""


class Schedules:
    """Measures on one state directory with all the schedules, and on an empty one beside it."""

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        took = self._fill()
        results = []
        if names & {"start", "loaded"}:
            results += [one for one in self._starts() if one.name in names]
        if names & {"idle", "due"}:
            with running(self._work, "scheduled") as daemon:
                daemon.drive("ready", self._sizes.scheduled)
                time.sleep(self._sizes.settle)
                if "idle" in names:
                    results.append(self._idle(daemon))
                if "due" in names:
                    results.append(self._due(daemon, took / self._sizes.scheduled))
        return results

    def _fill(self) -> float:
        """Seconds to store them all."""
        count = self._sizes.scheduled
        self._say(f"schedules: storing {count} workflows")
        with running(self._work, "scheduled") as daemon:
            return float(daemon.drive("schedule", self._program, count)["seconds"])

    # -- a start

    def _starts(self) -> list[Result]:
        count = self._sizes.scheduled
        floor, ours, empty, loaded, alone = [], [], [], [], []
        with running(self._work, "unscheduled") as daemon:
            daemon.drive("hello")  # it has created its database: a one-time cost
        for _ in self._rounds("start"):
            with running(self._work, "unscheduled") as daemon:
                floor.append(daemon.started_in * 1000)
                daemon.drive("hello")
                time.sleep(self._sizes.settle)
                empty.append(_pss(daemon))
            with running(self._work, "scheduled") as daemon:
                ours.append(daemon.started_in * 1000)
                daemon.drive("ready", count)
                time.sleep(self._sizes.settle)
                loaded.append(_pss(daemon))
                alone.append(memory.without_neighbours((daemon.pid, daemon.spawner)))
        return [
            Result(
                name="start",
                what=f"until a daemon with {count} schedules is served; floor: with none",
                floor=Series(unit="ms", samples=floor),
                ours=Series(unit="ms", samples=ours),
                target=Target(at_most=3, plus=SPARE),
            ),
            Result(
                name="loaded",
                what=f"PSS of a fresh idle daemon with {count} schedules and its spawner",
                ours=Series(unit="MB", samples=loaded),
                target=Target(at_most=160),
                more={
                    "the same without a schedule": Series(unit="MB", samples=empty),
                    "both, if nothing else shared their libraries, at most": Series(unit="MB", samples=alone),
                },
            ),
        ]

    # -- nothing is due

    def _idle(self, daemon: Daemon) -> Result:
        used, passes = [], []
        for _ in self._rounds("idle"):
            before, began = _computed(daemon), time.monotonic()
            time.sleep(self._sizes.idle)
            share = (_computed(daemon) - before) / (time.monotonic() - began)
            # It runs too seldom to be measured by chance.
            before = _computed(daemon)
            daemon.drive("collect")
            one = _computed(daemon) - before
            used.append((share + one / PASSES) * 100)
            passes.append(one * 1000)
        return Result(
            name="idle",
            what=f"of a processor, {self._sizes.scheduled} schedules and none due; daemon and spawner, "
            f"{self._sizes.idle:g} s at a time, and their part of a pass of retention",
            ours=Series(unit="%", samples=used),
            target=Target(at_most=1),
            more={"a pass of retention, processor time": Series(unit="ms", samples=passes)},
        )

    # -- many are due

    def _due(self, daemon: Daemon, per_workflow: float) -> Result:
        count = self._sizes.due
        rounds = [self._due_once(daemon, per_workflow) for _ in self._rounds("due")]
        late = [[seen * 1000 for seen in arrivals.seen] for arrivals in rounds]
        created = [[at * 1000 for at in arrivals.created] for arrivals in rounds]
        return Result(
            name="due",
            what=f"{count} of {self._sizes.scheduled} schedules due in one second: "
            "until the run is in the database, 99 of 100",
            ours=Series(unit="ms", samples=[_percentile(one, 99) for one in late]),
            target=Target(at_most=1500),
            more={
                "the median run": Series(unit="ms", samples=list(map(statistics.median, late))),
                "the last run": Series(unit="ms", samples=list(map(max, late))),
                "99 of 100 by the run's own `created_at`": Series(
                    unit="ms", samples=[_percentile(one, 99) for one in created]
                ),
                "until all of them had ended": Series(
                    unit="ms", samples=[arrivals.ended * 1000 for arrivals in rounds]
                ),
            },
        )

    def _due_once(self, daemon: Daemon, per_workflow: float) -> Arrivals:
        """Moves the schedules of some workflows to one near second, and watches their runs.

        The time to move them is a guess. If it was too short and the second has passed, a later one is tried.
        """
        count = self._sizes.due
        ahead = self._sizes.calm + 2 * per_workflow * count
        for _ in range(MOVES):
            known = due.last_row(daemon)
            at = math.ceil(time.time() + ahead)
            daemon.drive("postpone", self._program, count, at)
            if time.time() < at:
                return due.await_runs(daemon, at=at, count=count, after=known)
            due.await_calm(daemon)
            ahead = 2 * ahead + 1
        raise BenchError("cannot measure: schedules were still being changed when they were due")

    def _rounds(self, name: str) -> range:
        rounds = self._sizes.rounds
        self._say(f"{name}: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)


def _pss(daemon: Daemon) -> float:
    return memory.pss(daemon.pid) + memory.pss(daemon.spawner)


def _computed(daemon: Daemon) -> float:
    """Processor time of daemon and spawner in seconds; the ticks of /proc are too coarse for so little."""
    return sum(time.clock_gettime(~pid << 3 | _SCHEDULED) for pid in (daemon.pid, daemon.spawner))


_SCHEDULED: Final = 2
"""clock_getcpuclockid(3) of another process: its pid, and the kind of clock, which is that of the scheduler."""


def _percentile(samples: Sequence[float], percent: int) -> float:
    return sorted(samples)[math.ceil(len(samples) * percent / 100) - 1]
