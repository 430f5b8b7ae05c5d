"""The measurements. Each alternates between floor and ours, so that disturbances of the machine affect both."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import shlex
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.lib.bench import (
    client,
    events,
    log_search,
    masked_output,
    memory,
    scheduled,
    stored_runs,
    workflows,
    written,
)
from scripts.lib.bench.daemon import (
    DRIVE_WITHIN,
    FLOORS,
    Daemon,
    run_module,
    run_program,
    running,
    spawning,
)
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import MB, Sizes

_OWN: Final = ("memory", "chain", "fanout", "graph", "rows", "items", "log", "trigger")
NAMES: Final = (
    *_OWN,
    *masked_output.NAMES,
    *log_search.NAMES,
    *client.NAMES,
    *events.NAMES,
    *scheduled.NAMES,
    *stored_runs.NAMES,
)
SMALL_CHUNK: Final = 64 * 1024
LARGE_CHUNK: Final = 1024 * 1024
LINE: Final = 100
ITEM_ROUNDS: Final = 2
"""Each of them takes about a minute."""


class Bench:
    """Measures in one working directory, where both sides have their files. `say` gets the progress."""

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say
        self._source = work / "source"

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        results = self._work_done(names) if names & set(_OWN) else []
        if names & set(masked_output.NAMES):
            results += masked_output.MaskedOutput(self._work, self._program, self._sizes, self._say).run(names)
        if names & set(log_search.NAMES):
            results += log_search.LogSearch(self._work, self._sizes, self._say).run(names)
        if names & set(client.NAMES):
            results += client.Client(self._work, self._program, self._sizes, self._say).run(names)
        if names & set(events.NAMES):
            results += events.Events(self._work, self._program, self._sizes, self._say).run(names)
        if names & set(scheduled.NAMES):
            schedules = scheduled.Schedules(self._work, self._program, self._sizes, self._say)
            results += schedules.run(names)
        if names & set(stored_runs.NAMES):
            results += stored_runs.StoredRuns(self._work, self._program, self._sizes, self._say).run(names)
        return results

    def _work_done(self, names: set[str]) -> list[Result]:
        results = []
        fresh = self._fresh() if "memory" in names else None
        with running(self._work, "main") as daemon:
            self._prepare(daemon)
            for name, measure in (
                ("chain", self._chain),
                ("fanout", self._fanout),
                ("items", self._items),
                ("log", self._log),
                ("trigger", self._trigger),
            ):
                if name in names:
                    results.append(measure(daemon))
            if names & {"graph", "rows"}:
                results += [one for one in self._graph(daemon) if one.name in names]
            if fresh is not None:
                time.sleep(self._sizes.settle)
                results.append(self._memory(fresh, daemon))
        return results

    def _prepare(self, daemon: Daemon) -> None:
        """Stores the workflows and runs the shortest once, so that one-time costs are not measured."""
        sizes = self._sizes
        files = []
        for name, text in (
            ("chain", workflows.chain(self._program, sizes.chain)),
            ("fanout", workflows.fanout(self._program, sizes.fanout)),
            ("log", workflows.log(self._source)),
            ("single", workflows.single(self._program)),
            ("graph", workflows.layers(self._program, "graph", sizes.graph, sizes.width)),
            ("part", workflows.layers(self._program, "part", sizes.part, sizes.width)),
            ("many", workflows.items(self._program, "many", sizes.items)),
            ("few", workflows.items(self._program, "few", sizes.few_items)),
        ):
            files.append(self._work / f"{name}.yaml")
            files[-1].write_text(text)
        daemon.drive("apply", *files)
        daemon.drive("run", "single", 1)

    # -- one after the other

    def _chain(self, daemon: Daemon) -> Result:
        count = self._sizes.chain
        floor, ours = [], []
        for _ in self._rounds("chain"):
            floor.append(spawning(self._program, count) / count * 1000)
            ours.append(daemon.drive("run", "chain", count)["seconds"] / count * 1000)
        return Result(
            name="chain",
            what=f"a step of a chain of {count}; floor: posix_spawn and wait",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=8),
        )

    # -- side by side

    def _fanout(self, daemon: Daemon) -> Result:
        count, width = self._sizes.fanout, workflows.CONCURRENCY
        floor, ours = [], []
        for _ in self._rounds("fanout"):
            floor.append(count / self._xargs(count, width))
            ours.append(count / daemon.drive("run", "fanout", count)["seconds"])
        return Result(
            name="fanout",
            what=f"{count} steps, {width} at a time; floor: xargs -P{width}",
            floor=Series(unit="steps/s", samples=floor),
            ours=Series(unit="steps/s", samples=ours),
            target=Target(at_least=0.15),
        )

    def _xargs(self, count: int, width: int) -> float:
        command = f"seq {count} | xargs -P{width} -n1 {shlex.quote(self._program)}"
        began = time.perf_counter()
        run_program("xargs", ["/bin/sh", "-c", command])
        return time.perf_counter() - began

    # -- many steps in one run

    def _graph(self, daemon: Daemon) -> list[Result]:
        """A step of a large run against one of a small one, with the same total number of steps."""
        sizes = self._sizes
        small, large, small_rows, large_rows = [], [], [], []
        for _ in self._rounds("graph"):
            runs = sizes.graph // sizes.part
            used, rows = self._cost(daemon, "part", sizes.part, runs)
            small.append(used)
            small_rows.append(rows)
            used, rows = self._cost(daemon, "graph", sizes.graph, 1)
            large.append(used)
            large_rows.append(rows)
        shape = f"{sizes.graph} steps, {sizes.width} wide; floor: of {sizes.part} steps"
        return [
            Result(
                name="graph",
                what=f"processor time of the daemon per step of {shape}",
                floor=Series(unit="ms", samples=small),
                ours=Series(unit="ms", samples=large),
                target=Target(at_most=1.3),
            ),
            Result(
                name="rows",
                what=f"rows written per step of {shape}",
                floor=Series(unit="rows", samples=small_rows),
                ours=Series(unit="rows", samples=large_rows),
                target=Target(at_most=1.3),
            ),
        ]

    def _cost(self, daemon: Daemon, name: str, steps: int, runs: int) -> tuple[float, float]:
        """Processor time in ms and rows, per step."""
        before = written.processor_time(daemon)
        done = [daemon.drive("run", name, steps)["run"] for _ in range(runs)]
        used = written.processor_time(daemon) - before
        rows = sum(written.rows(daemon, run) for run in done)
        return max(used, 0.001) / (steps * runs) * 1000, rows / (steps * runs)

    # -- one step for many items

    def _items(self, daemon: Daemon) -> Result:
        """An item of a large `for_each` against one of a small one."""
        few, many = self._sizes.few_items, self._sizes.items
        floor, ours, floor_took, took = [], [], [], []
        for _ in self._rounds("items")[:ITEM_ROUNDS]:
            # Enough of them for the resolution of the processor clock.
            used, seconds = self._of_items(daemon, "few", few, max(1, many // few // 5))
            floor.append(used)
            floor_took.append(seconds)
            used, seconds = self._of_items(daemon, "many", many, 1)
            ours.append(used)
            took.append(seconds)
        return Result(
            name="items",
            what=f"processor time of the daemon per item of {many:,}; floor: of {few}",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=1.3),
            more={
                f"from StartRun to the end, per item of {many:,}": Series(unit="ms", samples=took),
                f"the same, of {few}": Series(unit="ms", samples=floor_took),
            },
        )

    def _of_items(self, daemon: Daemon, name: str, count: int, runs: int) -> tuple[float, float]:
        """Processor time of the daemon, and time, in ms per item."""
        before = written.processor_time(daemon)
        seconds = sum(daemon.drive("run", name, 1)["seconds"] for _ in range(runs))
        used = written.processor_time(daemon) - before
        return max(used, 0.001) / (count * runs) * 1000, seconds / (count * runs) * 1000

    # -- the log

    def _log(self, daemon: Daemon) -> Result:
        self._say("log: preparing")
        self._make_source()
        size = self._sizes.log / MB
        floor, ours, large, pipe = [], [], [], []
        for _ in self._rounds("log"):
            floor.append(size / self._tail(SMALL_CHUNK))
            ours.append(size / daemon.drive("log", "log", self._source)["seconds"])
            large.append(size / self._tail(LARGE_CHUNK))
            pipe.append(size / self._fill())
        return Result(
            name="log",
            what=f"{size:g} MB until a follower has them; floor: pipe, file, tail, gRPC",
            floor=Series(unit="MB/s", samples=floor),
            ours=Series(unit="MB/s", samples=ours),
            target=Target(at_least=0.4),
            more={
                "the floor in chunks of 1 MiB instead of 64 KiB": Series(unit="MB/s", samples=large),
                "only through a pipe into a file": Series(unit="MB/s", samples=pipe),
            },
        )

    def _make_source(self) -> None:
        """Numbered lines, so that a lost, repeated or moved one is found."""
        with self._source.open("wb") as file:
            for first in range(0, self._sizes.log // LINE, 10_000):
                last = min(first + 10_000, self._sizes.log // LINE)
                lines = (b"%012d" % number for number in range(first, last))
                file.write(b"".join(line.ljust(LINE - 1, b".") + b"\n" for line in lines))
        run_program("sync", ["sync", str(self._source)])

    def _tail(self, chunk: int) -> float:
        socket, target = self._work / "floor.sock", self._work / "floor.log"
        words = [
            sys.executable,
            "-m",
            f"{__package__}.log_floor",
            "serve",
            socket,
            self._source,
            target,
            chunk,
        ]
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                if not server.stdout.readline():
                    raise BenchError("cannot measure: the floor's server did not start")
                took = float(run_module("log_floor", "follow", socket, self._source))
                server.wait(DRIVE_WITHIN)
            finally:
                server.kill()
        target.unlink()
        socket.unlink(missing_ok=True)
        return took

    def _fill(self) -> float:
        target = self._work / "floor.log"
        words = [sys.executable, "-I", "-S", FLOORS, "fill", str(self._source), str(target)]
        took = run_program("the pipe into a file", words, given="\n")
        target.unlink()
        return float(took.split()[-1])

    # -- from the call to the first process

    def _trigger(self, daemon: Daemon) -> Result:
        delays = []
        for _ in self._rounds("trigger"):
            seconds = daemon.drive("trigger", "single", self._sizes.triggers)["seconds"]
            delays.append(statistics.median(seconds) * 1000)
        return Result(
            name="trigger",
            what=f"from StartRun until the step runs; each the median of {self._sizes.triggers}",
            ours=Series(unit="ms", samples=delays),
        )

    # -- memory

    def _fresh(self) -> list[tuple[float, float, float]]:
        """Of daemons that have served one call: daemon, spawner, and both without sharing with other processes."""
        found = []
        for number in self._rounds("memory"):
            with running(self._work, f"fresh{number}") as daemon:
                daemon.drive("hello")
                time.sleep(self._sizes.settle)
                both = (daemon.pid, daemon.spawner)
                found.append((*map(memory.pss, both), memory.without_neighbours(both)))
        return [(first, second, third) for first, second, third in found]

    def _memory(self, fresh: list[tuple[float, float, float]], used: Daemon) -> Result:
        after = memory.pss(used.pid) + memory.pss(used.spawner)
        daemons, spawners, alone = zip(*fresh, strict=True)
        sums = [daemon + spawner for daemon, spawner, _ in fresh]
        return Result(
            name="memory",
            what="PSS of a fresh idle daemon and its spawner",
            ours=Series(unit="MB", samples=sums),
            target=Target(at_most=90),
            more={
                "the daemon": Series(unit="MB", samples=daemons),
                "the spawner": Series(unit="MB", samples=spawners),
                "both, if nothing else shared their libraries, at most": Series(unit="MB", samples=alone),
                "both, idle after the work of this bench": Series(unit="MB", samples=[after]),
            },
        )

    def _rounds(self, name: str) -> range:
        rounds = self._sizes.rounds
        self._say(f"{name}: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)
