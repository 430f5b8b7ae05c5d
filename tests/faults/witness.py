"""The record that steps write about themselves in a file that no daemon knows: a line at their start, and at their end.

    B RUN STEP TOKEN
    E RUN STEP TOKEN CODE [DIGEST-OF-STDOUT DIGEST-OF-STDERR]
    X RUN STEP TOKEN LOCK

X is a clash: the lock of the kernel that stands beside a lock was taken.

Each line is one append of one write, so that lines never mix and their order is the order of what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    at: int
    """Number of the line: what has a lower one happened before."""
    run: str
    step: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """`digests` are those of both streams, if the step gave them."""

    at: int
    run: str
    step: str
    token: str
    code: int
    digests: tuple[str, str] | None = None


@dataclass(slots=True)
class Witness:
    """All lines, by run and step."""

    begins: dict[tuple[str, str], list[Begin]] = field(default_factory=dict)
    ends: dict[tuple[str, str], list[End]] = field(default_factory=dict)
    clashes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Witness:
        return cls.parse(path.read_text().splitlines())

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Witness:
        """Raises ValueError for a line that no step wrote."""
        witness = cls()
        for at, line in enumerate(lines):
            match line.split():
                case ["B", run, step, token]:
                    begin = Begin(at=at, run=run, step=step, token=token)
                    witness.begins.setdefault((run, step), []).append(begin)
                case ["E", run, step, token, code, *digests] if len(digests) in (0, 2):
                    end = End(
                        at=at,
                        run=run,
                        step=step,
                        token=token,
                        code=int(code),
                        digests=(digests[0], digests[1]) if digests else None,
                    )
                    witness.ends.setdefault((run, step), []).append(end)
                case ["X", run, step, token, lock]:
                    witness.clashes.append(f"{step} of run {run} ({token}) began while lock {lock} was taken")
                case _:
                    raise ValueError(f"cannot read line {at + 1} of the witness file: {line!r}")
        return witness

    def begins_of(self, run: str, step: str) -> Sequence[Begin]:
        return self.begins.get((run, step), ())

    def ends_of(self, run: str, step: str) -> Sequence[End]:
        return self.ends.get((run, step), ())

    def lines_of(self, run: str) -> list[Begin | End]:
        """All of one run."""
        found: list[Begin | End] = []
        for lines in (self.begins, self.ends):
            for (of, _), some in lines.items():
                found += some if of == run else ()
        return found

    def runs(self) -> set[str]:
        return {run for run, _ in (*self.begins, *self.ends)}
