"""Measures `toban` itself: the processor time of a call, and the time that a person waits for a trivial run."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import DRIVE_WITHIN, running
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import Sizes

NAMES: Final = ("help", "list", "tab", "first")
FLOOR: Final = (sys.executable, "-c", "pass")
WAIT: Final = 150.0
"""Milliseconds that a trivial run may take beyond an empty Python process."""


class Client:
    """The floor is an empty process of the same Python. Each sample is the median of several calls."""

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say
        self._toban = str(Path(sys.executable).with_name("toban"))

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        with running(self._work, "client") as daemon:
            file = self._work / "first.yaml"
            file.write_text(workflows.single(self._program))
            environment = {**os.environ, "TOBAN_SERVER": f"unix://{daemon.socket}"}
            _call([self._toban, "apply", str(file)], environment)
            _call([self._toban, "run", "single", "--wait"], environment)
            typing = {"_TOBAN_COMPLETE": "complete_bash", "COMP_WORDS": "toban run s", "COMP_CWORD": "2"}
            results = []
            for name, what, words, variables, target in (
                ("help", "toban --help", ["--help"], {}, 6),
                ("list", "toban runs list", ["runs", "list"], {}, 12),
                ("tab", "completing the name of a workflow", [], typing, 12),
            ):
                if name in names:
                    results.append(self._processor(name, what, words, {**environment, **variables}, target))
            if "first" in names:
                results.append(self._wall(environment))
        return results

    def _processor(
        self, name: str, what: str, words: Sequence[str], environment: Mapping[str, str], target: float
    ) -> Result:
        floor, ours = [], []
        for _ in self._rounds(name):
            floor.append(self._median(FLOOR, environment, _processor_time))
            ours.append(self._median([self._toban, *words], environment, _processor_time))
        return Result(
            name=name,
            what=f"processor time of {what}; floor: python -c pass",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=target),
        )

    def _wall(self, environment: Mapping[str, str]) -> Result:
        floor, ours = [], []
        for _ in self._rounds("first"):
            floor.append(self._median(FLOOR, environment, time.perf_counter))
            ours.append(self._median([self._toban, "run", "single", "--wait"], environment, time.perf_counter))
        return Result(
            name="first",
            what="`toban run --wait` of one trivial step; floor: python -c pass",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=1, plus=WAIT),
        )

    def _median(self, words: Sequence[str], environment: Mapping[str, str], clock: Callable[[], float]) -> float:
        """Milliseconds on this clock."""
        took = []
        for _ in range(self._sizes.calls):
            before = clock()
            _call(words, environment)
            took.append((clock() - before) * 1000)
        return max(statistics.median(took), 0.001)

    def _rounds(self, name: str) -> range:
        rounds = self._sizes.rounds
        self._say(f"{name}: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)


def _processor_time() -> float:
    """Of all processes that were awaited."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _call(words: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=DRIVE_WITHIN, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"cannot measure: {' '.join(words)} failed:\n    {done.stderr.decode(errors='replace')}")
