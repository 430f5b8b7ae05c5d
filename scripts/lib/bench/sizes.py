"""The amount of work per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MB: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`calls` of `toban` are one sample. `scheduled` workflows have a schedule, and `due` of them are due together.
    `listening` ones listen to events, `candidates` to each type; a round resolves `resolved` events.

    `stored` runs of `stored_workflows` are compared with `few_stored` of as many; `far_page` is a page of their list.

    In seconds: how long a daemon is left idle before its memory is read (`settle`), the time between the last change of
    a schedule and the second in which it is due (`calm`), and how long the processor time of an `idle` one is measured.
    """

    rounds: int
    chain: int = 100
    fanout: int = 500
    graph: int = 2000
    part: int = 200
    width: int = 40
    items: int = 10_000
    few_items: int = 100
    log: int = 200 * MB
    lines: int = 1_000_000
    triggers: int = 20
    calls: int = 10
    scheduled: int = 10_000
    due: int = 500
    listening: int = 10_000
    candidates: int = 100
    resolved: int = 200
    stored: int = 1_000_000
    few_stored: int = 1_000
    stored_workflows: int = 10_000
    far_page: int = 1_000
    list_calls: int = 20
    idle: float = 10.0
    settle: float = 1.0
    calm: float = 2.0

    @classmethod
    def quick(cls) -> Sizes:
        return cls(
            rounds=1,
            chain=10,
            fanout=24,
            graph=40,
            part=20,
            width=10,
            items=40,
            few_items=20,
            log=4 * MB,
            lines=5_000,
            triggers=2,
            calls=2,
            scheduled=20,
            due=5,
            listening=40,
            candidates=10,
            resolved=3,
            stored=400,
            few_stored=100,
            stored_workflows=20,
            far_page=6,
            list_calls=2,
            idle=0.2,
            settle=0.1,
            calm=0.5,
        )
