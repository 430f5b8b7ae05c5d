"""The retention policy of ended runs, and the result of a garbage collection."""

from __future__ import annotations

from dataclasses import dataclass, field

from toban.definition import Retention as OwnRules
from toband.ports import EndedRun

LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Limits; ages in seconds, None for no limit. A workflow may override the first three."""

    age: float | None = None
    runs: int | None = None
    bytes: int | None = None
    total_runs: int | None = None
    total_bytes: int | None = None
    compress_after: float | None = None
    total_logs: int | None = None

    def of_workflow(self, own: OwnRules | None) -> OwnRules:
        """The effective limits of a workflow with its own `retention`."""
        if own is None:
            return OwnRules(age=self.age, runs=self.runs, bytes=self.bytes)
        return OwnRules(
            age=self.age if own.age is None else own.age,
            runs=self.runs if own.runs is None else own.runs,
            bytes=self.bytes if own.bytes is None else own.bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A run that was or would be removed, and why."""

    run: EndedRun
    bytes: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Collected:
    """What a pass did or would do. `runs` lists the first ones only; `run_count` counts all."""

    runs: list[Removed] = field(default_factory=list)
    run_count: int = 0
    bytes: int = 0
    strays: int = 0
    compressed_logs: int = 0

    def add(self, removed: Removed) -> None:
        self.run_count += 1
        self.bytes += removed.bytes
        if len(self.runs) < LISTED:
            self.runs.append(removed)
