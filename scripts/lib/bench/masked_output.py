"""Measures what masking costs: a step that prints as much with twenty secrets, and with none."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the daemon does not run on Windows yet")

import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from scripts.lib.bench import workflows
from scripts.lib.bench.daemon import FLOORS, Daemon, run_program, running
from scripts.lib.bench.errors import BenchError
from scripts.lib.bench.results import Result, Series, Target
from scripts.lib.bench.sizes import MB, Sizes

NAMES: Final = ("plain", "masked")
SECRETS: Final = 20
EVERY: Final = 500
"""Lines, of which one has a secret in it."""
MASK: Final = 3
"""Bytes that replace a secret."""


class MaskedOutput:
    """Measures from the start of the step's process to its end, as its supervisor records them."""

    def __init__(self, work: Path, program: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._work = work
        self._program = program
        self._sizes = sizes
        self._say = say
        self._source = work / "lines"
        self._values = secret_values()

    def run(self, names: set[str]) -> list[Result]:
        """Raises BenchError."""
        self._say("masked: preparing")
        size, covered = self._make_source()
        floor, plain, masked = [], [], []
        with running(self._work, "masking") as daemon:
            for name, secrets in (("warm", 0), ("plain", 0), ("masked", SECRETS)):
                source = Path("/dev/null") if name == "warm" else self._source
                (self._work / f"{name}.yaml").write_text(workflows.printing(name, source, secrets))
            for number, value in enumerate(self._values):
                daemon.drive("secret", workflows.secret_name(number), value, "masked")
            daemon.drive("apply", *(self._work / f"{name}.yaml" for name in ("warm", "plain", "masked")))
            daemon.drive("printed", "warm")
            for _ in self._rounds():
                floor.append(size / MB / self._fill())
                plain.append(self._printed(daemon, "plain", size, size))
                masked.append(self._printed(daemon, "masked", size, size - covered))
        results = [
            Result(
                name="plain",
                what=f"{size / MB:.0f} MB printed by a step without secrets; floor: pipe, file",
                floor=Series(unit="MB/s", samples=floor),
                ours=Series(unit="MB/s", samples=plain),
                target=Target(at_least=0.5),
            ),
            Result(
                name="masked",
                what=f"the same with {SECRETS} secrets, one in {EVERY} lines; floor: without secrets",
                floor=Series(unit="MB/s", samples=plain),
                ours=Series(unit="MB/s", samples=masked),
                target=Target(at_least=50, of_ours=True),
            ),
        ]
        return [result for result in results if result.name in names]

    def _make_source(self) -> tuple[int, int]:
        """Its size, and by how much masking shortens it."""
        chance = random.Random(11)  # noqa: S311 - the same lines in every run
        lines: list[str] = []
        size = covered = 0
        while size < self._sizes.log // 4:
            number = len(lines)
            line = f"2026-11-19T04:{number // 60 % 60:02}:{number % 60:02}Z INFO request {number} took "
            line += f"{chance.randrange(1000)}ms user=user{chance.randrange(5000)} path=/api/v1/items/{number * 7919}"
            if number % EVERY == 0:
                value = chance.choice(self._values)
                line += f" password={value}"
                covered += len(value) - MASK
            lines.append(line + "\n")
            size += len(lines[-1])
        self._source.write_text("".join(lines), "ascii")
        run_program("sync", ["sync", str(self._source)])
        return size, covered

    def _printed(self, daemon: Daemon, workflow: str, size: int, stored: int) -> float:
        """MB/s. Raises BenchError if anything else was stored than the output with its secrets masked."""
        done = daemon.drive("printed", workflow)
        if done["stored"] != stored:
            raise BenchError(f"cannot measure: the log of {workflow} has {done['stored']} bytes instead of {stored}")
        return size / MB / float(done["seconds"])

    def _fill(self) -> float:
        target = self._work / "floor.log"
        words = [sys.executable, "-I", "-S", FLOORS, "fill", str(self._source), str(target)]
        took = run_program("the pipe into a file", words, given="\n")
        target.unlink()
        return float(took.split()[-1])

    def _rounds(self) -> range:
        rounds = self._sizes.rounds
        self._say(f"masked: {rounds} round{'' if rounds == 1 else 's'}")
        return range(rounds)


def secret_values() -> Sequence[str]:
    """Of several lengths and with the characters that make most of the forms under which a secret may appear."""
    chance = random.Random(7)  # noqa: S311 - the same in every run
    alphabet = string.ascii_letters + string.digits + "!#$%&()*+-/=@_"
    return ["".join(chance.choices(alphabet, k=12 + 3 * number)) for number in range(SECRETS)]
