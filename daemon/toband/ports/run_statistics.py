"""Statistics of runs, at a cost that depends on what is asked for, and not on how much is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from toband.domain.emitted_events import Emitted
from toband.domain.identity import Visible
from toband.domain.run_model import Run, RunState, StepState


class GridCell(NamedTuple):
    """A step of a run in a grid."""

    step: str
    state: StepState
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A run without steps, and the cells of its steps in their order, without instances."""

    run: Run
    cells: Sequence[GridCell]


class RunStatisticsStore(Protocol):
    async def count_created(
        self, bounds: Sequence[datetime], *, workflow: str = "", visible: Visible = None
    ) -> Sequence[Mapping[RunState, int]]:
        """For each time but the last: the runs that were created from then until the next one, by state."""
        ...

    async def run_grid(
        self, workflow: str, *, before: str = "", limit: int, most_cells: int
    ) -> tuple[Sequence[GridRow], bool]:
        """The newest runs with an id below `before`, and whether there are more: as many as have at most so many cells,
        and at least one.
        """
        ...

    async def events_of_runs(self, run_ids: Sequence[str], *, limit: int) -> Sequence[Emitted]:
        """The events whose source is one of these runs, oldest first, with their runs."""
        ...

    async def headers(self, run_ids: Sequence[str]) -> Sequence[Run]:
        """Those runs that are stored, without steps, oldest first."""
        ...
