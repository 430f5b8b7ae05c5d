"""Measures lists with many stored runs: pages of runs, the status, the stream of all runs, and the daemon's start."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import Daemon, running
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import Sizes

NAMES: Final = ("pages", "status", "changes", "grid", "days", "boot")
DAYS: Final = 500.0
"""Milliseconds in which the runs of a year are counted by day."""
BOOT: Final = 3000.0
"""Milliseconds in which the daemon serves."""
BYTES_EACH: Final = 2_000
"""The size of a stored run in the database, with its entry in the history and all indexes."""
_FAILED_EACH: Final = 10
"""One run of so many failed."""
_APART: Final = 1_000_000
"""Microseconds between the creation of two runs: a million of them take less than two weeks."""


class StoredRuns:
    """Two state directories with the same workflows: one with few runs, the floor, and one with many.

    A template run goes through a real daemon; its rows are copied in the database while no daemon runs.
    """

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        for state, count in (("few", self._sizes.few_stored), ("many", self._sizes.stored)):
            self._fill(state, count)
        results = [self._boot()] if "boot" in names else []
        if names & self._measures.keys():
            with running(self._work, "few") as few, running(self._work, "many") as many:
                results += [measure(few, many) for name, measure in self._measures.items() if name in names]
        return results

    @property
    def _measures(self) -> Mapping[str, Callable[[Daemon, Daemon], Result]]:
        return {
            "pages": self._pages,
            "status": self._status,
            "changes": self._changes,
            "grid": self._grid,
            "days": self._days,
        }

    def _fill(self, state: str, count: int) -> None:
        self._say(f"runs: storing {count} of {self._sizes.stored_workflows} workflows")
        file = self._work / "stored.yaml"
        file.write_text(workflows.scheduled(self._program, 0, workflows.far(0, datetime.now(UTC).date())))
        with running(self._work, state) as daemon:
            daemon.drive("apply", file)
            daemon.drive("run", workflows.scheduled_name(0), 1)
        with closing(sqlite3.connect(self._work / state / "toban.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("BEGIN")
            _copy_workflows(connection, self._sizes.stored_workflows)
            _copy_runs(connection, self._sizes.stored_workflows, count)
            connection.execute("COMMIT")
            _check(connection, "workflows", self._sizes.stored_workflows)
            _check(connection, "runs", count)

    def _boot(self) -> Result:
        floor: list[float] = []
        ours: list[float] = []
        for _ in self._rounds("boot"):
            for state, samples in (("few", floor), ("many", ours)):
                with running(self._work, state) as daemon:
                    samples.append(daemon.started_in * 1000)
                    daemon.drive("hello")
        return Result(
            name="boot",
            what=f"until a daemon with {self._sizes.stored} stored runs serves",
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=BOOT),
            more={f"the same with {self._sizes.few_stored} runs": Series(unit="ms", samples=floor)},
        )

    def _pages(self, few: Daemon, many: Daemon) -> Result:
        """The slower of the first page and the last one that was asked for."""
        calls, far = self._sizes.list_calls, self._sizes.far_page
        near = min(far, self._sizes.few_stored // 50)
        floor, ours, first, last = [], [], [], []
        for _ in self._rounds("pages"):
            small = few.drive("pages", near, calls)
            large = many.drive("pages", far, calls)
            floor.append(max(small["first"], small["far"]) * 1000)
            first.append(large["first"] * 1000)
            last.append(large["far"] * 1000)
            ours.append(max(first[-1], last[-1]))
        return Result(
            name="pages",
            what=f"ListRuns, the slower of the first page and page {far} of {self._sizes.stored} runs; "
            f"floor: of the first page and page {near} of {self._sizes.few_stored}",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=3),
            more={
                "the first page": Series(unit="ms", samples=first),
                f"page {far}": Series(unit="ms", samples=last),
            },
        )

    def _status(self, few: Daemon, many: Daemon) -> Result:
        return self._compared(
            few,
            many,
            "status",
            f"the calls of `toban status` for {self._sizes.stored_workflows} workflows",
            {"a page of ListWorkflowSummaries": "summaries"},
        )

    def _changes(self, few: Daemon, many: Daemon) -> Result:
        return self._compared(
            few,
            many,
            "changes",
            "WatchRuns, from the call to the end of the active runs",
            {"from the call to the first change, with a position": "resumed"},
        )

    def _grid(self, few: Daemon, many: Daemon) -> Result:
        return self._compared(few, many, "grid", "ListRunGrid, the newest 25 runs of a workflow", {})

    def _days(self, few: Daemon, many: Daemon) -> Result:
        floor, ours = [], []
        for _ in self._rounds("days"):
            floor.append(few.drive("days", self._sizes.list_calls)["seconds"] * 1000)
            ours.append(many.drive("days", self._sizes.list_calls)["seconds"] * 1000)
        return Result(
            name="days",
            what=f"CountRunsByDay of a year, with {self._sizes.stored} runs",
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=DAYS),
            more={f"the same with {self._sizes.few_stored} runs": Series(unit="ms", samples=floor)},
        )

    def _compared(self, few: Daemon, many: Daemon, name: str, what: str, others: Mapping[str, str]) -> Result:
        floor, ours = [], []
        more: dict[str, list[float]] = {text: [] for text in others}
        for _ in self._rounds(name):
            floor.append(few.drive(name, self._sizes.list_calls)["seconds"] * 1000)
            found = many.drive(name, self._sizes.list_calls)
            ours.append(found["seconds"] * 1000)
            for text, key in others.items():
                more[text].append(found[key] * 1000)
        return Result(
            name=name,
            what=f"{what}, with {self._sizes.stored} runs; floor: with {self._sizes.few_stored}",
            floor=Series(unit="ms", samples=floor),
            ours=Series(unit="ms", samples=ours),
            target=Target(at_most=3),
            more={text: Series(unit="ms", samples=samples) for text, samples in more.items()},
        )

    def _rounds(self, name: str) -> range:
        rounds = self._sizes.rounds
        self._say(f"{name}: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)


def _check(connection: sqlite3.Connection, table: str, count: int) -> None:
    """Raises BenchError unless the table has so many rows."""
    (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a constant
    if found != count:
        raise BenchError(f"cannot measure: there are {found} {table}, not {count}")


def _copy_workflows(connection: sqlite3.Connection, count: int) -> None:
    """Copies of the template, which counts, with their versions and schedules."""
    own = workflows.scheduled_name(0)
    name = f"'{own[:-5]}' || substr('0000' || n, -5)"
    renamed = "replace({}, '%s', %s)" % (own, name)  # noqa: UP031 - the braces are for later
    for table, key, other in (
        ("workflow_versions", "workflow", ("source", "parsed")),
        ("workflows", "name", ()),
        ("schedules", "workflow", ("id",)),
    ):
        changed = {key: name} | {column: renamed.format(column) for column in other}
        _copy(connection, table, f"{key} = '{own}'", changed, 1, count - 1)


def _copy_runs(connection: sqlite3.Connection, count: int, runs: int) -> None:
    """Copies of the template run with one entry of the history each, older than it, in turns of the workflows."""
    first, at = connection.execute("SELECT id, created_at FROM runs").fetchone()
    ended = connection.execute("SELECT finished_at FROM runs").fetchone()[0] - at
    last = connection.execute("SELECT max(position), max(sequence) FROM run_history").fetchone()
    name = f"'{workflows.scheduled_name(0)[:-5]}' || substr('0000' || (n % {count}), -5)"
    created = f"{at} - ({runs} - n) * {_APART}"
    digits = f"printf('%012x', ({created}) / 1000)"
    run_id = f"substr({digits}, 1, 8) || '-' || substr({digits}, 9) || '-7000-8000-' || printf('%012x', n)"
    copied = {
        "id": run_id,
        "workflow": name,
        "number": f"n / {count} + 2",
        "created_at": created,
        "started_at": created,
        "finished_at": f"{created} + {ended}",
        "state": f"CASE (n + n / {count}) % {_FAILED_EACH} WHEN 0 THEN 'FAILED' ELSE 'SUCCEEDED' END",
    }
    _copy(connection, "runs", f"id = '{first}'", copied, 1, runs - 1)
    change = {"run_id": run_id, "at": created, "position": f"{last[0]} + n"}
    _copy(connection, "run_history", f"run_id = '{first}' AND sequence = {last[1]}", change, 1, runs - 1)
    connection.execute("INSERT INTO run_sizes SELECT id, 0, 0 FROM runs WHERE id NOT IN (SELECT run_id FROM run_sizes)")


def _copy(
    connection: sqlite3.Connection, table: str, which: str, changed: Mapping[str, str], first: int, last: int
) -> None:
    """Copies a row once for each n from `first` to `last`, with other values in some columns."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(column, f'"{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    connection.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT {first} WHERE {first} <= {last} "  # noqa: S608 - constants
        f"UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) "
        f"INSERT INTO {table} ({names}) SELECT {values} FROM numbers, (SELECT * FROM {table} WHERE {which})"
    )
