"""`scripts/soak`: the daemon lives for a year on a virtual clock; nothing may grow, and no due time may be missed."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from soak.year import Year, in_memory
from toband import memory_trim
from toband.__main__ import SWITCH_INTERVAL


def main() -> int:
    given = _parser().parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    # As the daemon does.
    memory_trim.set_up()
    sys.setswitchinterval(SWITCH_INTERVAL)
    print(f"soak: seed {seed}, {given.days:g} days, {given.workflows} workflows", flush=True)
    parent = given.directory or in_memory()
    with tempfile.TemporaryDirectory(prefix="toban-soak-", dir=parent) as directory:
        year = Year(
            root=Path(directory) / "state",
            seed=seed,
            days=given.days,
            workflows=given.workflows,
            tell=lambda line: print(line, flush=True),
        )
        report = year.run()
    print(f"soak: {report.runs:,} runs and {report.due_times:,} due times in {report.seconds / 60:.1f} minutes")
    print("soak: requests: " + ", ".join(f"{count} {name}" for name, count in sorted(report.done.items())))
    for each in report.wrong:
        print(f"soak: {each}")
    print("soak: failed" if report.wrong else "soak: passed")
    return 1 if report.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="A year of schedules on a virtual clock: nothing may grow, and each due time is decided once.",
    )
    parser.add_argument("--days", type=float, default=365.0, help="virtual days (default: 365)")
    parser.add_argument("--workflows", type=int, default=500, help="number of workflows (default: 500)")
    parser.add_argument("--seed", type=int, help="repeats a soak; printed first")
    parser.add_argument("--directory", type=Path, help="where the state directory is made (default: in memory)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
