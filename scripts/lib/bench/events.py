"""Measures events: deciding which of many workflows one starts, and the time until its run is at work."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import run_module, running, spawning
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import Sizes

NAMES: Final = ("resolve", "emit")
TYPE: Final = "BENCH"
SPAWNS: Final = 100
"""The number of programs that the floor of `emit` starts for one figure."""


class Events:
    """Measures on one database with all the workflows, and on a daemon with two."""

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        measures = (("resolve", self._resolve), ("emit", self._emit))
        return [measure() for name, measure in measures if name in names]

    # -- listeners, and whose condition is true

    def _resolve(self) -> Result:
        sizes = self._sizes
        self._say(f"resolve: storing {sizes.listening} workflows")
        database = self._work / "listening" / "toban.db"
        database.parent.mkdir()
        run_module("event_resolution", database, "fill", sizes.listening, sizes.candidates)
        floor, ours, first, first_of_type = [], [], [], []
        for _ in self._rounds("resolve"):
            # Each round is a new process, with empty caches.
            said = run_module("event_resolution", database, "measure", sizes.candidates, sizes.resolved)
            took = json.loads(said)
            floor.append(_milliseconds(took["floor"]))
            ours.append(_milliseconds(took["ours"]))
            first.append(took["first"] * 1000)
            first_of_type.append(took["first_of_type"] * 1000)
        return Result(
            name="resolve",
            what=f"what an event starts of {sizes.listening} workflows, {sizes.candidates} of which listen to its "
            f"type; floor: {sizes.candidates} bare evaluations; each the median of {sizes.resolved}",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=3),
            more={
                "the first event after a start": Series(unit="ms", samples=first),
                "the first event of another type": Series(unit="ms", samples=first_of_type),
            },
            compared=False,
        )

    # -- from the event to the first process

    def _emit(self) -> Result:
        sizes = self._sizes
        floor, ours, started = [], [], []
        with running(self._work, "emitting") as daemon:
            texts = {
                "listening": workflows.listening(self._program, TYPE),
                "single": workflows.single(self._program),
            }
            for name, text in texts.items():
                (self._work / f"{name}.yaml").write_text(text)
            daemon.drive("apply", *(self._work / f"{name}.yaml" for name in texts))
            daemon.drive("emit", TYPE, 1)
            for _ in self._rounds("emit"):
                floor.append(spawning(self._program, SPAWNS) / SPAWNS * 1000)
                ours.append(_milliseconds(daemon.drive("emit", TYPE, sizes.triggers)["seconds"]))
                alone = daemon.drive("trigger", "single", sizes.triggers)["seconds"]
                started.append(_milliseconds(alone))
        return Result(
            name="emit",
            what=f"from EmitEvent until the step of its run runs; floor: posix_spawn and wait; each the median of "
            f"{sizes.triggers}",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=25),
            more={"from StartRun instead": Series(unit="ms", samples=started)},
        )

    def _rounds(self, name: str) -> range:
        rounds = self._sizes.rounds
        self._say(f"{name}: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)


def _milliseconds(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
