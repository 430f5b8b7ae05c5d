"""Overlap: whether a new run of a workflow starts, waits in the queue, is skipped, or replaces runs that are active.

Every way to create a run asks here: the API, schedules, events, parent steps and retries. The queue only orders runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban.definition import Overlap, Workflow
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run, Trigger

QUEUE_LIMIT = 100
"""Runs that may wait in the queue of one workflow. Runs that events or parent steps start are never refused."""


@dataclass(frozen=True, slots=True)
class OverlapRule:
    """How one run treats other runs of its workflow. Runs of a backfill count for `limit` and not for `skip_limit`.

    `limit` is the number of runs that may be active at once, this one included; None: any number.
    """

    mode: Overlap
    limit: int | None
    queue_limit: int | None

    @property
    def skip_limit(self) -> int | None:
        """Active runs, this one included, above which the run is skipped; None: it is never skipped."""
        return self.limit if self.mode is Overlap.SKIP else None

    def overflows(self, *, active: int, waiting: int, ahead: int) -> bool:
        """Whether the queue has no room for the run. `ahead` runs are going to enter the queue before it."""
        if self.queue_limit is None:
            return False
        free = max(0, (self.limit or 0) - active)
        return waiting + max(0, ahead - free) >= self.queue_limit


def rule_for(workflow: Workflow, run: Run) -> OverlapRule:
    if run.parent_run:
        # Its parent is active and waits for it: a child is never skipped, and its queue is not limited.
        return OverlapRule(Overlap.QUEUE, workflow.max_active_runs, None)
    if run.trigger is Trigger.BACKFILL:
        # There may be many: they take the slots that others leave, whatever the policy for others is.
        return OverlapRule(Overlap.QUEUE, workflow.max_active_runs, None)
    mode = workflow.event_overlap if run.by_event else workflow.overlap
    limit = None if mode is Overlap.ALLOW else workflow.max_active_runs
    return OverlapRule(mode, limit, QUEUE_LIMIT if mode is Overlap.QUEUE else None)


def scheduled_limit(definition: Mapping[str, Any]) -> int | None:
    """The limit for scheduled runs, read from a stored definition."""
    return None if definition.get("overlap") == Overlap.ALLOW else int(definition.get("max_active_runs", 1))


def is_full(limit: int | None, active: int) -> bool:
    """Whether `active` runs leave no slot for another."""
    return limit is not None and active >= limit


def may_queue(workflow: Workflow | None, run: Run) -> bool:
    """Whether a run that has not started may be waiting in the queue."""
    # With `skip` it waits for a run of a backfill.
    queues = workflow is not None and workflow.overlap is not Overlap.ALLOW
    return queues or bool(run.parent_run) or run.event is not None or run.trigger is Trigger.BACKFILL


def replacements(
    rule: OverlapRule, run: Run, waiting: Sequence[Run], begun: Sequence[Run]
) -> Iterator[tuple[str, Run]]:
    """The ids of the runs that are cancelled when `run` joins the others, each with the run that replaces it.

    None unless runs replace each other; then the newest stays. `begun` are in start order. Run numbers decide, not ids:
    the clock may have been set back before a restart. A backfill has one run for each due time: none replaces another.
    """
    if rule.mode is not Overlap.REPLACE or rule.limit is None:
        return
    waiting = [other for other in waiting if other.trigger is not Trigger.BACKFILL]
    begun = [other for other in begun if other.trigger is not Trigger.BACKFILL]
    newer = next((other for other in (*waiting, *begun) if other.number > run.number), None)
    if newer is not None:
        yield run.id, newer
    oldest = begun[: max(0, len(begun) - rule.limit + 1)]
    for other in (*waiting, *oldest):
        if other.number < run.number:
            yield other.id, run


def skipped(active_run: str) -> NotStarted:
    """Why a run was skipped, as the ledger of a schedule or an event shows it. `active_run` is a name: `nightly#12`."""
    return NotStarted(NotStartedReason.OVERLAP, f"run {active_run} is active")
