"""Proves, before any measurement, that the daemon syncs its files: counts the calls of a short chain."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.bench import workflows
from scripts.lib.bench.errors import NotDurableError
from scripts.lib.bench.syncs import Sync, traced

STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of syncs of one kind, and the required minimum."""

    what: str
    counted: int
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    steps: int
    journal_mode: str
    counts: tuple[Count, ...]


def prove(work: Path, program: str) -> Proof:
    """Raises NotDurableError with the missing syncs, BenchError if they cannot be counted."""
    definition = work / "proof.yaml"
    definition.write_text(workflows.chain(program, STEPS))
    with traced(work, "proof") as (daemon, tracer):
        daemon.drive("apply", definition)
        done = daemon.drive("run", "chain", STEPS)
        mode = _journal_mode(daemon.state / "toban.db")
        state, run = daemon.state, str(done["run"])
    proof = Proof(
        steps=STEPS,
        journal_mode=mode,
        counts=tuple(_counts(tracer.syncs(done["began"], done["ended"]), state, run)),
    )
    missing = [
        f"{count.what}: {count.counted} of at least {count.least}"
        for count in proof.counts
        if count.counted < count.least
    ]
    if mode != "wal":
        missing.append(f"the database's journal mode is {mode!r}, expected 'wal'")
    if missing:
        lines = "".join(f"\n    {line}" for line in missing)
        raise NotDurableError(f"the daemon does not sync what it must, nothing was timed:{lines}")
    return proof


def _counts(syncs: Sequence[Sync], state: Path, run: str) -> list[Count]:
    directory = state / "runs" / run
    attempts = directory / "attempts"
    commits = sum(sync.path == state / "toban.db-wal" for sync in syncs)
    made = {sync.path for sync in syncs} & {state / "runs", directory}
    # A step's supervisor is a separate process: file and directory for its claim, then the file for the end.
    claims = ends = 0
    for _, group in itertools.groupby(syncs, key=lambda sync: sync.process):
        kinds = [
            "directory" if sync.path == attempts else "file"
            for sync in group
            if attempts in (sync.path, sync.path.parent)
        ]
        if "directory" in kinds:
            place = kinds.index("directory")
            claims += "file" in kinds[:place]
            ends += "file" in kinds[place:]
    return [
        # The acknowledged start, and for each step at least the commit of its end.
        Count(what="commits of the database", counted=commits, least=STEPS + 1),
        Count(what="directories of the run", counted=len(made), least=2),
        Count(what="claims, file and then directory", counted=claims, least=STEPS),
        Count(what="end records, after the claim", counted=ends, least=STEPS),
    ]


def _journal_mode(database: Path) -> str:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])
    finally:
        connection.close()
