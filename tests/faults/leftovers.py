"""Processes that are still there when every run has ended."""

from __future__ import annotations

import os
from pathlib import Path

from faults.checker import Defect, Kind
from helpers.processes import Process, alive, describe, kill, marked, users_of
from helpers.wait import DEADLINE, wait_until


def of_steps(state_dir: Path) -> list[Process]:
    """Whoever has a step's environment, or works or holds anything open below the runs' directories."""
    by_environment = marked(f"TOBAN_SERVER=unix://{state_dir}/")
    return sorted({*by_environment, *users_of(state_dir / "runs")})


def check_left(state_dir: Path, *, patience: float = DEADLINE) -> list[Defect]:
    """Called when all runs have ended. Shims get a moment to exit after their last word."""
    try:
        wait_until(lambda: not of_steps(state_dir), "steps are left", patience)
    except AssertionError:
        return [
            Defect(kind=Kind.LEFT, text=f"{describe(process)} in {_directory(process)}")
            for process in of_steps(state_dir)
        ]
    return []


def end_all(state_dir: Path, *also: Process) -> int:
    """Kills the daemon of a state directory and all that it ever started; how many there were.

    What is killed may have a child that is found only in the next round.
    """
    seen: set[Process] = set()

    def none_left() -> bool:
        found = {*of_steps(state_dir), *users_of(state_dir), *filter(alive, also)}
        seen.update(found)
        for process in found:
            kill(process)
        return not found

    wait_until(none_left, "processes cannot be killed")
    return len(seen)


def _directory(process: Process) -> str:
    try:
        return os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:
        return "gone"
