"""Summaries of workflows and jobs for lists, at a cost that does not grow with the number of stored runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from toban.definition import DefinitionKind
from toband.domain.identity import Visible
from toband.domain.run_model import Run
from toband.ports.records import StoredWorkflow

RATED_RUNS: Final = 20
"""The success rate is that of the last runs that succeeded, failed or timed out: so many of them."""
FAILURES_COUNTED: Final = 1000
"""Failed runs are counted up to this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSummary:
    """A workflow or a job with its runs in short. `last_run` has no steps.

    `rated` is the number of last runs that the success rate is about, `succeeded` how many of them succeeded.
    `next_due` is the earliest due time of the schedules of the definition, and `zone` the time zone of that schedule.
    """

    stored: StoredWorkflow
    last_run: Run | None
    running: int
    waiting: int
    rated: int
    succeeded: int
    next_due: datetime | None
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """All workflows and runs in short. `failures` are counted up to FAILURES_COUNTED."""

    disabled: int
    running: int
    waiting: int
    failures: int


class SummaryStore(Protocol):
    async def list_summaries(
        self,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        text: str = "",
        kind: DefinitionKind | None = None,
        visible: Visible = None,
    ) -> Sequence[WorkflowSummary]:
        """By name, with a name above `after`: those with all of the labels, and `text` in any case in name or title."""
        ...

    async def relevant_summaries(
        self, *, failed_since: datetime, limit: int, visible: Visible = None
    ) -> Sequence[WorkflowSummary]:
        """Those that matter most now: with active runs, newest first; with runs that failed since then, latest first;
        with schedules, earliest due time first; then by name. Without jobs that never ran and have no schedule.
        """
        ...

    async def failed_runs(self, *, since: datetime, limit: int, visible: Visible = None) -> Sequence[Run]:
        """Runs that failed or timed out since then, latest end first, without steps."""
        ...

    async def run_totals(self, *, failed_since: datetime, visible: Visible = None) -> RunTotals: ...
