"""Removes, truncates and replaces files of active attempts while no daemon runs, and records what it did.

A file that lost or changed its first name is found under its second one: that costs nothing. Only what was truncated,
or lost both names, may be LOST.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faults.history import AttemptOnDisk, file_name
from toban.v1 import run_pb2
from toband.supervise.shim import frames

_MOST = 3
_REASONS = (
    "its attempt file is gone",
    "its attempt file is damaged or forged",
    "the machine went down",
)


class Active(NamedTuple):
    """An attempt that the database has as STARTING or RUNNING."""

    id: str
    run_id: str
    step: str
    number: int
    token: str
    state: str


class Saboteur:
    def __init__(self, state_dir: Path, seed: float) -> None:
        self.ways: Counter[str] = Counter()
        self._state_dir = state_dir
        self._rng = random.Random(seed)
        self._destroyed: set[str] = set()

    def strike(self) -> None:
        """The daemon is dead; shims may live."""
        found = self._active()
        for attempt in self._rng.sample(found, min(len(found), self._rng.randint(1, _MOST))):
            name = f"{file_name(attempt.step)}.{attempt.number}.{attempt.token[:8]}.log"
            log = self._state_dir / "runs" / attempt.run_id / "attempts" / name
            if log.exists():
                self.ways[self._damage(attempt, log)] += 1

    def _damage(self, attempt: Active, log: Path) -> str:
        second = self._state_dir / "runs" / ".claims" / attempt.token
        ways = ["removed", "replaced", "truncated"]
        if attempt.state == "RUNNING":
            # Of one that is STARTING nothing else proves that it began; docs/launch-protocol.md tells of that.
            ways.append("removed twice")
        # So that a short run has all of them.
        way = min(ways, key=lambda each: (self.ways[each], self._rng.random()))
        if way == "replaced":
            self._replace(log)
        elif way == "truncated":
            self._destroyed.add(attempt.id)
            with log.open("r+b") as file:
                file.truncate(self._rng.choice((0, 10)))
        else:
            log.unlink()
            if way == "removed twice":
                self._destroyed.add(attempt.id)
                second.unlink(missing_ok=True)
        return way

    def _replace(self, log: Path) -> None:
        void = {"format": frames.FORMAT, "attempt": "another", "void": True}
        texts = (b"", b"\xff" * 100, frames.encode_json(frames.CLAIM, 1, void))
        new = log.with_suffix(".sabotage")
        new.write_bytes(self._rng.choice(texts))
        new.rename(log)

    def _active(self) -> Sequence[Active]:
        """In no order that depends on the machine, as far as that is possible."""
        query = (
            "SELECT id, run_id, step, number, token, state FROM process_executions"
            " WHERE state IN ('STARTING', 'RUNNING') AND NOT child ORDER BY id"
        )
        database = self._state_dir / "toban.db"
        with contextlib.closing(sqlite3.connect(database, timeout=20)) as connection:
            return [Active(*row) for row in connection.execute(query)]

    # -- what the checker may excuse

    def lost(self, process: run_pb2.ProcessExecution, _file: AttemptOnDisk | None) -> str:
        if process.id not in self._destroyed:
            return "its file was not destroyed"
        if not process.error_message.startswith(_REASONS):
            return "it does not say why"
        return ""
