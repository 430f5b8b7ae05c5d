"""Observes runs that schedules start, as another reader of the database."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from scripts.lib.bench.daemon import Daemon
from scripts.lib.bench.errors import BenchError

LOOK_EVERY = 0.005
COME_WITHIN = 60.0
END_WITHIN = 120.0
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Seconds after the due time: when each run was seen, so it was committed; its own creation time; and when all had
    ended.
    """

    seen: tuple[float, ...]
    created: tuple[float, ...]
    ended: float


def last_row(daemon: Daemon) -> int:
    """Of the runs. Rows of later runs have higher numbers, since they are never reused while this one stays."""
    with _reading(daemon) as connection:
        return int(connection.execute("SELECT coalesce(max(rowid), 0) FROM runs").fetchone()[0])


def await_runs(daemon: Daemon, *, at: int, count: int, after: int) -> Arrivals:
    """Watches until `count` runs due at `at` have started and ended. Raises BenchError if they do not."""
    time.sleep(max(0.0, at - time.time() - LOOK_EVERY))
    seen: list[float] = []
    created: list[float] = []
    last = after
    with _reading(daemon) as connection:
        while len(seen) < count:
            now = time.time()
            rows = connection.execute(
                "SELECT rowid, scheduled_at, created_at FROM runs WHERE rowid > ? ORDER BY rowid",
                (last,),
            ).fetchall()
            for row, scheduled, made in rows:
                if scheduled != at * _SECOND:
                    raise BenchError(f"cannot measure: a run was due at {scheduled}, not at {at}")
                last = row
                # A row was committed by now at the latest, and after the previous read.
                seen.append(time.time() - at)
                created.append(made / _SECOND - at)
            if now > at + COME_WITHIN:
                raise BenchError(f"cannot measure: only {len(seen)} of {count} runs were started")
            time.sleep(LOOK_EVERY)
        while _active(connection, after):
            if time.time() > at + END_WITHIN:
                raise BenchError("cannot measure: runs of schedules do not end")
            time.sleep(LOOK_EVERY * 10)
        ended = time.time() - at
        check_outcome(connection, at, after, count)
    return Arrivals(seen=tuple(seen), created=tuple(created), ended=ended)


def await_calm(daemon: Daemon) -> None:
    """Waits until nothing is due and no run is active. Raises BenchError if that does not happen."""
    until = time.time() + END_WITHIN
    with _reading(daemon) as connection:
        while _overdue(connection) or _active(connection, 0):
            if time.time() > until:
                raise BenchError("cannot measure: runs of schedules do not end")
            time.sleep(LOOK_EVERY * 10)


def check_outcome(connection: sqlite3.Connection, at: int, after: int, count: int) -> None:
    """Checks that each has succeeded, and has a ledger line. Raises BenchError."""
    (succeeded,) = connection.execute(
        "SELECT count(*) FROM runs WHERE rowid > ? AND state = 'SUCCEEDED'", (after,)
    ).fetchone()
    (fired,) = connection.execute(
        "SELECT count(*) FROM fires WHERE due_at = ? AND outcome = 'FIRED'", (at * _SECOND,)
    ).fetchone()
    if (succeeded, fired) != (count, count):
        raise BenchError(
            f"cannot measure: of {count} runs that were due {succeeded} succeeded, and {fired} are in the ledger"
        )


def _overdue(connection: sqlite3.Connection) -> int:
    """Schedules whose run is not stored yet: the run and the next due time are one transaction."""
    (overdue,) = connection.execute(
        "SELECT count(*) FROM schedules WHERE alarm <= ?", (int(time.time() * _SECOND),)
    ).fetchone()
    return int(overdue)


def _active(connection: sqlite3.Connection, after: int) -> int:
    (active,) = connection.execute(
        "SELECT count(*) FROM runs WHERE rowid > ? AND finished_at IS NULL", (after,)
    ).fetchone()
    return int(active)


@contextmanager
def _reading(daemon: Daemon) -> Iterator[sqlite3.Connection]:
    uri = f"file:{daemon.state}/toban.db?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield connection
