"""The cost of a run for the daemon: its processor time, and the rows written for it."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from scripts.lib.bench.daemon import Daemon


def processor_time(daemon: Daemon) -> float:
    """Processor time of the daemon itself, in seconds."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def rows(daemon: Daemon, run: str) -> int:
    """Rows inserted and updated: those of the start, and the changes that each history entry lists."""
    uri = f"file:{daemon.state}/toban.db?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        (steps,) = connection.execute("SELECT count(*) FROM step_runs WHERE run_id = ?", (run,)).fetchone()
        changes = connection.execute("SELECT change FROM run_history WHERE run_id = ?", (run,)).fetchall()
    written = 1 + steps
    for (change,) in changes:
        touched = json.loads(change)["steps"]
        written += 2 + len(touched) + sum("attempt" in step for step in touched)
    return int(written)
