"""Run factory: makes new runs of a workflow, of some of its steps, or of what failed in another run. Stores nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from toban.definition import Workflow, bind_params
from toband.domain.overlap import OverlapRule, rule_for
from toband.domain.plan import Plan
from toband.domain.run_model import Run, Trigger
from toband.domain.secret_params import sealed_names, secret_params
from toband.domain.transition import Ids
from toband.engine.errors import (
    RunActiveError,
    RunNotFoundError,
    WorkflowNotFoundError,
)
from toband.engine.execution.sealed_params import SealedParams, check_public, check_secret_names
from toband.engine.runs.plan_cache import PlanCache
from toband.engine.runs.step_selection import (
    NO_SELECTION,
    WHAT_FAILED,
    RetrySelection,
    Selection,
    StepSelector,
)
from toband.ports import Clock, Request, Store, StoredWorkflow

_PUBLIC = frozenset({Trigger.SCHEDULE, Trigger.EVENT, Trigger.BACKFILL})
"""What keeps parameters as they were given, where everybody can read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that is not stored yet, with its plan."""

    plan: Plan
    base_dir: str
    run: Run

    @property
    def overlap(self) -> OverlapRule:
        return rule_for(self.plan.workflow, self.run)


class RunFactory:
    def __init__(
        self,
        *,
        store: Store,
        plans: PlanCache,
        clock: Clock,
        ids: Ids,
        sealed: SealedParams,
        default_timeout: float | None,
    ) -> None:
        self._store = store
        self._plans = plans
        self._clock = clock
        self._ids = ids
        self._sealed = sealed
        self.default_timeout = default_timeout
        self._selector = StepSelector(store, clock)

    async def new(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        stored: StoredWorkflow | None = None,
        trigger: Trigger,
        caller: str,
        selection: Selection = NO_SELECTION,
        run_id: str = "",
        parent_run: str = "",
        parent_step: str = "",
        labels: Mapping[str, str] | None = None,
        secret: Collection[str] = (),
        preview: bool = False,
    ) -> NewRun:
        """`stored` is the workflow's row if the caller has read it. The `secret` parameters must be secret there. With
        `preview`, values of secret parameters are left out.

        Raises WorkflowNotFoundError, ParamError, SealError, and as `StepSelector.select`.
        """
        stored = stored or await self._current(workflow)
        plan, base_dir = self._plan(stored)
        bound = bind_params(plan.workflow, params)
        _check_secrets(plan.workflow, params, secret, trigger)
        selected = await self._selector.select(plan, selection)
        run_id = run_id or self._ids.new_id()
        if preview:
            bound = self._sealed.mask(plan.workflow, bound)
        else:
            bound = await self._sealed.seal(plan.workflow, bound, run_id)
        run = plan.new_run(
            run_id=run_id,
            version=stored.version,
            params=bound,
            trigger=trigger,
            caller=caller,
            at=self._clock.now(),
            scope=selection.shown,
            chosen=selected.chosen,
            kept=selected.kept,
            from_run=selection.from_run,
            parent_run=parent_run,
            parent_step=parent_step,
            labels=labels,
        )
        return NewRun(plan=plan, base_dir=base_dir, run=self._timed(run))

    async def retry(
        self,
        run_id: str,
        *,
        selection: RetrySelection = WHAT_FAILED,
        newest: bool = False,
        params: Mapping[str, Any] | None = None,
        caller: str,
    ) -> NewRun:
        """A run that repeats what failed in an ended one. `params` replace those of the same name.

        Raises RunNotFoundError, RunActiveError, WorkflowNotFoundError, ParamError, SealError, and as
        `StepSelector.select_for_retry`.
        """
        before = await self._store.get_run(run_id)
        if before is None:
            raise RunNotFoundError(run_id)
        if not before.state.terminal:
            raise RunActiveError(before)
        had = await self._plans.of_run(before)
        if had is None:
            raise WorkflowNotFoundError(before.workflow)
        plan, base_dir = had
        had_params = await self._sealed.open(before)
        version, bound = before.version, had_params
        if newest:
            stored = await self._current(before.workflow)
            plan, base_dir = self._plan(stored)
            version = stored.version
        if newest or params:
            check_secret_names(
                plan.workflow, [name for name in sealed_names(before.params) if name not in (params or {})]
            )
            bound = bind_params(plan.workflow, {**had_params, **(params or {})})
        selected = await self._selector.select_for_retry(
            plan, had[0], before, selection, same_params=bound == had_params
        )
        new_id = self._ids.new_id()
        run = plan.new_run(
            run_id=new_id,
            version=version,
            params=await self._sealed.seal(plan.workflow, bound, new_id),
            trigger=Trigger.RETRY,
            caller=caller,
            at=self._clock.now(),
            scope=before.scope,
            chosen=selected.chosen,
            kept=selected.kept,
            retry_of=run_id,
            labels=before.labels,
        )
        run = replace(run, event=before.event, depth=before.depth, scheduled_at=before.scheduled_at)
        return NewRun(plan=plan, base_dir=base_dir, run=self._timed(run))

    async def keyed(
        self, request: Request, workflow: str, params: Mapping[str, Any]
    ) -> tuple[StoredWorkflow | None, Request]:
        """The workflow, and the request with a keyed digest if it has secrets in it. Raises SealError."""
        stored = await self._store.get_workflow(workflow)
        if stored is None or stored.definition is None:
            return None, request
        plan, _ = self._plan(stored)
        return stored, await self._keyed(request, plan, params)

    async def keyed_retry(self, request: Request, run_id: str, params: Mapping[str, Any]) -> Request:
        """As `keyed`, for the retry of a run."""
        before = await self._store.get_run_page(run_id, limit=0)
        had = await self._plans.of_run(before) if before is not None else None
        return request if had is None else await self._keyed(request, had[0], params)

    async def _keyed(self, request: Request, plan: Plan, params: Mapping[str, Any]) -> Request:
        if secret_params(plan.workflow).isdisjoint(params):
            return request
        return replace(request, digest=await self._sealed.keyed_digest(request.digest))

    async def newer_version(self, run: Run) -> int:
        """The current version of its workflow if that is newer than the run's; else 0."""
        stored = await self._store.get_workflow(run.workflow)
        return stored.version if stored is not None and stored.version > run.version else 0

    async def _current(self, workflow: str) -> StoredWorkflow:
        stored = await self._store.get_workflow(workflow)
        if stored is None:
            raise WorkflowNotFoundError(workflow)
        return stored

    def _plan(self, stored: StoredWorkflow) -> tuple[Plan, str]:
        if stored.definition is None:
            raise WorkflowNotFoundError(stored.name)
        return self._plans.of(stored.definition)

    def _timed(self, run: Run) -> Run:
        return run if run.timeout is not None else replace(run, timeout=self.default_timeout)


def _check_secrets(workflow: Workflow, params: Mapping[str, Any], secret: Collection[str], trigger: Trigger) -> None:
    """Raises ParamError."""
    check_secret_names(workflow, secret)
    if trigger in _PUBLIC:
        check_public(workflow, params)
