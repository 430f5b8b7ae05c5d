"""Whether events wait as long as the daemon drains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faults.event_outcome import Outcome, shown
from toban.v1 import event_pb2


@dataclass(frozen=True, slots=True)
class Drained:
    """From the answer to Drain until Resume was asked for, or the daemon was to die."""

    begun: float
    ended: float

    def has(self, event: event_pb2.Event) -> bool:
        """Whether it came meanwhile."""
        return self.begun < event.emitted_at.ToMicroseconds() / 1e6 < self.ended


def held_back(drains: Sequence[Drained], outcome: Outcome) -> int:
    """How many events came while the daemon drained."""
    return sum(drained.has(event) for drained in drains for event in outcome.events)


def check_drains(drains: Sequence[Drained], outcome: Outcome) -> Iterator[str]:
    """What comes while the daemon drains is decided afterwards."""
    for drained in drains:
        for event in filter(drained.has, outcome.events):
            early = drained.ended - event.resolved_at.ToMicroseconds() / 1e6
            if early > 0:
                yield f"{shown(event)} was decided while the daemon drained, {early:.3f} s too early"
