"""`scripts/fuzz`: runs the targets in turns until the time is over, and saves findings to the corpus."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from fuzz.findings import keep_finding
from fuzz.session import fuzz, smaller
from fuzz.table import TARGETS
from fuzz.target import CORPUS

TURN = 60.0
"""Seconds. A daemon that grows with each input needs some thousand of them to show it."""


def main() -> int:
    given = _parser().parse_args()
    names = given.target or list(TARGETS)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    if given.input is not None:
        return _one(names, given.input, seed)
    return _turns(names, given.minutes * 60.0, seed, given.grow)


def _one(names: list[str], path: Path, seed: int) -> int:
    found = [fuzz(TARGETS[name], seed=seed, seconds=0, input_file=path).finding for name in names]
    for finding in filter(None, found):
        print(finding.reason)
    return 1 if any(found) else 0


def _turns(names: list[str], seconds: float, seed: int, grow: bool) -> int:
    until = time.monotonic() + seconds
    found = 0
    waiting = list(names)
    turn = min(TURN, seconds / len(names))
    while waiting and time.monotonic() < until:
        for name in list(waiting):
            print(f"fuzz: {name}, seed {seed}", end="", flush=True)
            report = fuzz(TARGETS[name], seed=seed, seconds=turn, grow=CORPUS / name if grow else None)
            if report.finding is None:
                print(f": {report.inputs} inputs, {report.outcomes} outcomes")
                continue
            finding = smaller(TARGETS[name], report.finding)
            path = keep_finding(name, finding.data, finding.reason, seed)
            print(f": FOUND\n{finding.reason}\nfuzz: kept as {path}")
            found += 1
            # It would be found again and again.
            waiting.remove(name)
        seed += 1
    print(f"fuzz: {found} findings" if found else "fuzz: nothing found")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Feeds mutated input to everything that Toban reads."
    )
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="how long in all")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of the first round")
    parser.add_argument("--input", type=Path, metavar="FILE", help="only this input, once")
    parser.add_argument("--grow", action="store_true", help="keep small inputs with a new outcome in the corpus")
    return parser


if __name__ == "__main__":
    sys.exit(main())
