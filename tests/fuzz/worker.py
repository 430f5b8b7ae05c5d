"""Runs one target in its own process: an input that hangs, crashes or eats memory ends only this process.

Each input is written to a file before it is read, so that the session finds it when the process is gone. Exits with 0,
or with FOUND and the reason on standard error; one that hangs exits with 1, one that crashes with its signal.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import resource
import sys
import time
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

from fuzz.findings import grow_corpus
from fuzz.growth import Growth
from fuzz.target import Check, Target

FOUND = 3
INPUT = "input"
ADDRESS_SPACE = 4 * 1024**3
POOL = 400
_VARYING = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"|`[^`]*`")


class Finding(Exception):  # noqa: N818 - it is what is looked for, not a failure of the fuzzer
    """An input that cost too much."""


class Feeder:
    """Draws inputs; one with a new outcome becomes a sample itself."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._random = Random(f"{seed} {target.name}")
        self._samples = target.inputs()
        self._outcomes: set[str] = set()
        self.new: list[bytes] = []

    @property
    def first(self) -> list[bytes]:
        return list(self._samples)

    @property
    def outcomes(self) -> int:
        return len(self._outcomes)

    def draw(self) -> bytes:
        data = self._random.choice(self._samples)
        for _ in range(self._random.choice((1, 1, 2, 3))):
            data = self._target.mutate(self._random, data, self._samples)
        return data

    def learn(self, data: bytes, outcome: str) -> None:
        key = _VARYING.sub("#", outcome)[:120]
        if key not in self._outcomes and len(self._samples) < POOL:
            self._outcomes.add(key)
            self._samples.append(data)
            self.new.append(data)


def feed(target: Target, *, seed: int, seconds: float, work: Path, grow: Path | None) -> None:
    """All samples, then new inputs until the time is over. Raises what an input makes the check raise."""
    feeder = Feeder(target, seed)
    count = 0
    growth = Growth(os.getpid())
    with _opened(target, work) as check, (work / INPUT).open("wb", buffering=0) as noted:
        until = time.monotonic() + seconds
        waiting = feeder.first
        while waiting or time.monotonic() < until:
            data = waiting.pop() if waiting else feeder.draw()
            noted.seek(0)
            noted.truncate()
            noted.write(data)
            feeder.learn(data, _bounded(target, check, data))
            growth.expect_none()
            count += 1
    if grow is not None:
        grow_corpus(feeder.new, grow)
    print(json.dumps({"inputs": count, "outcomes": feeder.outcomes}))


def _opened(target: Target, work: Path) -> AbstractContextManager[Check]:
    own = work / "t"
    own.mkdir(exist_ok=True)
    return target.opened(own)


def _bounded(target: Target, check: Check, data: bytes) -> str:
    """Runs the check; a hang ends the process, with a traceback of where it was."""
    spent, peak = time.process_time(), _peak()
    if target.seconds is not None:
        faulthandler.dump_traceback_later(target.seconds, exit=True)
    try:
        outcome = check(data)
    finally:
        faulthandler.cancel_dump_traceback_later()
    spent, grown = time.process_time() - spent, _peak() - peak
    if spent > target.processor_seconds:
        raise Finding(f"it took {spent:.1f} s of processor time")
    if grown > target.memory:
        raise Finding(f"it took {grown >> 20} MiB of memory")
    return outcome


def _peak() -> int:
    """Bytes. Not `ru_maxrss`, which begins with that of the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--table", default="fuzz.table")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--grow", type=Path)
    given = parser.parse_args()
    module = __import__(given.table, fromlist=["TARGETS"])
    target: Target = module.TARGETS[given.target]
    if target.seconds is not None:
        # What would eat all memory fails here, and not on the machine of whoever runs this.
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    try:
        if given.input is None:
            feed(target, seed=given.seed, seconds=given.seconds, work=given.work, grow=given.grow)
        else:
            with _opened(target, given.work) as check:
                print(_bounded(target, check, given.input.read_bytes()))
    except Exception:
        traceback.print_exc()
        return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main())
