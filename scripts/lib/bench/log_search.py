"""Measures a search in a large log, and reading lines from its middle."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import Daemon, run_program, running
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import MB, Sizes

NAMES: Final = ("search", "lines")
SEARCH: Final = 300.0
LINES: Final = 100.0
"""Milliseconds in which a call answers."""


class LogSearch:
    """The floor is `grep -c` over the attempt file: bytes of the same log, without frames, lines or an index."""

    def __init__(self, work: Path, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._sizes = sizes
        self._say = say
        self._source = work / "searched"

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        self._say("search: preparing")
        with self._source.open("w") as file:
            file.writelines(f"{_line(number)}\n" for number in range(1, self._sizes.lines + 1))
        text = _line(self._sizes.lines)
        floor, search, lines, first = [], [], [], []
        with running(self._work, "search") as daemon:
            (self._work / "searched.yaml").write_text(workflows.printing("searched", self._source, 0))
            daemon.drive("apply", self._work / "searched.yaml")
            daemon.drive("printed", "searched")
            log = _attempt_file(daemon)
            for number in range(self._sizes.rounds):
                floor.append(_grep(text, log) * 1000)
                done = daemon.drive("search", "searched", text, self._sizes.lines, self._sizes.list_calls)
                search.append(done["seconds"] * 1000)
                lines.append(done["lines"] * 1000)
                if not number:
                    first.append(done["first"] * 1000)
        size = self._source.stat().st_size / MB
        what = f"of a log of {self._sizes.lines:,} lines, {size:.0f} MB; floor: grep -c over the attempt file"
        ours = Series(unit="ms", samples=search)
        results = [
            Result(
                name="search",
                what=f"SearchLogs for the last line {what}",
                floor=Series(unit="ms", samples=floor),
                ours=ours,
                target=Target(at_most=SEARCH, of_ours=True),
                more={"the first search, which makes the index": Series(unit="ms", samples=first)},
            ),
            Result(
                name="lines",
                what=f"ReadLog of 1,000 lines in the middle {what}",
                floor=Series(unit="ms", samples=floor),
                ours=Series(unit="ms", samples=lines),
                target=Target(at_most=LINES, of_ours=True),
            ),
        ]
        return [result for result in results if result.name in names]


def _line(number: int) -> str:
    return f"2026-11-19T04:00:00Z INFO request {number} took {number % 977} ms path=/api/v1/items/{number * 7919}."


def _attempt_file(daemon: Daemon) -> Path:
    """Raises BenchError."""
    found = list(daemon.state.glob("runs/*/attempts/*.log"))
    if len(found) != 1:
        raise BenchError(f"cannot measure: there are {len(found)} attempt files, not one")
    return found[0]


def _grep(text: str, log: Path) -> float:
    began = time.perf_counter()
    run_program("grep", ["grep", "-acF", text, str(log)])
    return time.perf_counter() - began
