"""The removal plan: which runs the retention policy removes, and why.

One query gives the range of run numbers and times per workflow. Few workflows have anything to remove by that range,
and only their runs are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from toban.definition import Retention as OwnRules
from toban.definition import format_duration, format_size
from toband.domain.run_ids import first_id
from toband.engine.retention.retention_policy import Removed, RetentionRules
from toband.engine.retention.run_sizes import RunSizes
from toband.ports import Clock, EndedRun, RetentionStore, RunSpan

ROWS_AT_ONCE = 2000
"""Rows removed per transaction, unless a single run has more."""
PAGE = 500


@dataclass(slots=True, kw_only=True)
class RemovalPlan:
    """Runs to remove. Those in `left_out` could not be removed in this pass."""

    limit: int
    left_out: Collection[str] = ()
    chosen: dict[str, Removed] = field(default_factory=dict)
    _bytes: dict[str, int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.chosen) >= self.limit

    def add(self, run: EndedRun, size: int, reason: str) -> None:
        self.chosen[run.id] = Removed(run=run, bytes=size, reason=reason)
        self._bytes[run.workflow] = self._bytes.get(run.workflow, 0) + size

    def bytes_of(self, workflow: str = "") -> int:
        return self._bytes.get(workflow, 0) if workflow else sum(self._bytes.values())

    def batches(self) -> list[list[Removed]]:
        """Groups small enough that removing one does not block the database for long."""
        batches: list[list[Removed]] = []
        rows = ROWS_AT_ONCE
        for each in sorted(self.chosen.values(), key=lambda each: each.run.id):
            rows += each.run.rows
            if rows > ROWS_AT_ONCE:
                batches.append([])
                rows = each.run.rows
            batches[-1].append(each)
        return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspect:
    """A workflow with runs to remove. `rules` has only the rules that apply; `bytes` is the size of all its runs."""

    workflow: str
    rules: OwnRules
    bytes: int


class RemovalPlanner:
    def __init__(self, *, store: RetentionStore, clock: Clock, rules: RetentionRules, sizes: RunSizes) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._sizes = sizes

    def use(self, rules: RetentionRules) -> None:
        """Replaces the rules."""
        self._rules = rules

    async def choose(self, plan: RemovalPlan, *, by_size: bool, by_age: bool = True) -> None:
        """Oldest first, until the plan is full. Raises StoreError."""
        now = self._clock.now()
        for suspect in await self._suspects(now, by_size=by_size, by_age=by_age):
            await self._choose_of(suspect, plan, now)
            if plan.full:
                return
        await self._choose_of_all(plan, by_size=by_size)

    async def _suspects(self, now: datetime, *, by_size: bool, by_age: bool) -> Sequence[_Suspect]:
        """In order of name."""
        own = await self._store.retention_rules()
        # The last run of a workflow stays as long as the workflow exists: where it is the only one, nothing goes.
        spans = [span for span in await self._store.run_spans() if span.first < span.last or not span.defined]
        rules = {span.workflow: self._rules.of_workflow(own.get(span.workflow)) for span in spans}
        sizes: Mapping[str, int] = {}
        if by_size:
            limited = [name for name, each in rules.items() if each.bytes is not None]
            sizes = await self._sizes_of(limited)
        found = []
        for span in sorted(spans, key=lambda span: span.workflow):
            size = sizes.get(span.workflow, 0)
            wanted = rules[span.workflow]
            may = _may_go(span, wanted if by_age else replace(wanted, age=None), size, now)
            if may is not None:
                found.append(_Suspect(workflow=span.workflow, rules=may, bytes=size))
        return found

    async def _sizes_of(self, workflows: Collection[str]) -> Mapping[str, int]:
        if not workflows:
            return {}
        return Counter(await self._store.stored_bytes(workflows)) + self._sizes.fresh_by_workflow()

    async def _choose_of(self, suspect: _Suspect, plan: RemovalPlan, now: datetime) -> None:
        name, rules = suspect.workflow, suspect.rules
        if rules.age is not None:
            reason = f"ended more than {format_duration(rules.age)} ago"
            before = now - timedelta(seconds=rules.age)
            async for run in self._removable(plan, workflow=name, finished_before=before):
                plan.add(run, self._sizes.of(run), reason)
        if rules.runs is not None:
            number = await self._store.kept_number(name, rules.runs)
            reason = f"more than {rules.runs} runs of its workflow"
            if number > 1:
                async for run in self._removable(plan, workflow=name, number_below=number):
                    plan.add(run, self._sizes.of(run), reason)
        if rules.bytes is not None:
            reason = f"the runs of its workflow take more than {format_size(rules.bytes)}"
            excess = suspect.bytes - plan.bytes_of(name) - rules.bytes
            await self._choose_bytes(plan, excess, reason, workflow=name)

    async def _choose_of_all(self, plan: RemovalPlan, *, by_size: bool) -> None:
        rules = self._rules
        if rules.total_runs is not None:
            reason = f"more than {rules.total_runs} runs in all"
            excess = (await self._store.stored_size()).runs - len(plan.chosen) - rules.total_runs
            if excess > 0:
                async for run in self._removable(plan):
                    plan.add(run, self._sizes.of(run), reason)
                    excess -= 1
                    if excess <= 0:
                        break
        if rules.total_bytes is not None and by_size:
            reason = f"all runs take more than {format_size(rules.total_bytes)}"
            stored = (await self._store.stored_size()).bytes
            excess = stored + self._sizes.fresh_bytes() - plan.bytes_of() - rules.total_bytes
            await self._choose_bytes(plan, excess, reason)

    async def _choose_bytes(self, plan: RemovalPlan, excess: int, reason: str, *, workflow: str = "") -> None:
        if excess <= 0:
            return
        async for run in self._removable(plan, workflow=workflow):
            size = self._sizes.of(run)
            if size > 0:
                plan.add(run, size, reason)
                excess -= size
            if excess <= 0:
                return

    async def _removable(
        self,
        plan: RemovalPlan,
        *,
        workflow: str = "",
        finished_before: datetime | None = None,
        number_below: int | None = None,
    ) -> AsyncIterator[EndedRun]:
        """Removable runs that are not in the plan yet, oldest first, until the plan is full."""
        after = ""
        while not plan.full:
            page = await self._store.removable_runs(
                workflow=workflow,
                finished_before=finished_before,
                number_below=number_below,
                after=after,
                limit=PAGE,
            )
            for run in page:
                if run.id not in plan.chosen and run.id not in plan.left_out:
                    yield run
                if plan.full:
                    return
            if len(page) < PAGE:
                return
            after = page[-1].id


def _may_go(span: RunSpan, rules: OwnRules, size: int, now: datetime) -> OwnRules | None:
    """The rules that may remove runs of the workflow; None if no rule can.

    An estimate: numbers may be missing, and the oldest run may have ended late or be in use.
    """
    age = rules.age
    if age is not None and span.oldest_id >= first_id(now - timedelta(seconds=age)):
        age = None
    runs = rules.runs
    if runs is not None and span.last - span.first < runs:
        runs = None
    limit = rules.bytes
    if limit is not None and size <= limit:
        limit = None
    if age is None and runs is None and limit is None:
        return None
    return OwnRules(age=age, runs=runs, bytes=limit)
