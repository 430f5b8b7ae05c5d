"""Makes the runs that clients ask for: of a workflow, of some of its steps, or of what failed in another run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Any

from toban.definition import Scope, bind_params
from toband.domain.overlap import OverlapRule, rule_for
from toband.domain.plan import Plan
from toband.domain.run_model import Run, StepRun, StepState, Trigger
from toband.domain.transition import Ids
from toband.engine.errors import (
    NoPriorResultError,
    NothingToRetryError,
    RunActiveError,
    RunNotFoundError,
    WorkflowNotFoundError,
)
from toband.engine.execution.expression_evaluator import Evaluation
from toband.engine.runs.plan_cache import Plans
from toband.engine.runs.step_selection import (
    Selection,
    borrow,
    borrowed_steps,
    chosen_steps,
    keep,
    repeated_steps,
)
from toband.ports import Clock, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that is not stored yet, with its plan."""

    plan: Plan
    base_dir: str
    run: Run

    @property
    def overlap(self) -> OverlapRule:
        return rule_for(self.plan.workflow, self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """What a step of a run would do. `skipped` is why it would not run at all, `source` where its result is from."""

    id: str
    job_type: str
    command: str
    depends_on: tuple[str, ...]
    when: str
    for_each: str
    max_iterations: int
    skipped: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    workflow: str
    version: int
    steps: Sequence[PlannedStep]


class Starting:
    def __init__(
        self,
        *,
        store: Store,
        plans: Plans,
        clock: Clock,
        ids: Ids,
        evaluation: Evaluation,
        default_timeout: float | None,
    ) -> None:
        self._store = store
        self._plans = plans
        self._clock = clock
        self._ids = ids
        self._evaluation = evaluation
        self._default_timeout = default_timeout

    async def new(
        self,
        workflow: str,
        params: Mapping[str, Any],
        *,
        trigger: Trigger,
        caller: str,
        selection: Selection,
        run_id: str = "",
        parent_run: str = "",
        parent_step: str = "",
    ) -> NewRun:
        """Raises WorkflowNotFoundError, ParamError, UnknownScopeError, UnknownStepError, NoPriorResultError…"""
        stored = await self._store.get_workflow(workflow)
        if stored is None or stored.definition is None:
            raise WorkflowNotFoundError(workflow)
        plan, base_dir = self._plans.of(stored.definition)
        bound = bind_params(plan.workflow, params)
        chosen = chosen_steps(plan, selection)
        kept = await self._borrowed(plan, chosen, selection) if chosen is not None else {}
        run = plan.new_run(
            run_id=run_id or self._ids.new_id(),
            version=stored.version,
            params=bound,
            trigger=trigger,
            caller=caller,
            at=self._clock.now(),
            scope=selection.shown,
            chosen=chosen,
            kept=kept,
            from_run=selection.from_run,
            parent_run=parent_run,
            parent_step=parent_step,
        )
        return NewRun(plan=plan, base_dir=base_dir, run=self._timed(run))

    async def again(
        self,
        run_id: str,
        *,
        from_steps: Collection[str],
        everything: bool,
        newest: bool,
        caller: str,
    ) -> NewRun:
        """Raises RunNotFoundError, RunActiveError, NothingToRetryError, UnknownStepError, ParamError."""
        before = await self._store.get_run(run_id)
        if before is None:
            raise RunNotFoundError(run_id)
        if not before.state.terminal:
            raise RunActiveError(before)
        had = await self._plans.of_run(before)
        if had is None:
            raise WorkflowNotFoundError(before.workflow)
        plan, base_dir = had
        version, params = before.version, before.params
        if newest:
            stored = await self._store.get_workflow(before.workflow)
            if stored is None or stored.definition is None:
                raise WorkflowNotFoundError(before.workflow)
            plan, base_dir = self._plans.of(stored.definition)
            version, params = stored.version, bind_params(plan.workflow, before.params)
        before = await self._without_gone(before)
        repeated = repeated_steps(plan, had[0], before, from_steps, everything)
        if not repeated:
            raise NothingToRetryError(run_id)
        run = plan.new_run(
            run_id=self._ids.new_id(),
            version=version,
            params=params,
            trigger=Trigger.RETRY,
            caller=caller,
            at=self._clock.now(),
            scope=before.scope,
            chosen=repeated,
            kept=keep(plan, before, repeated),
            retry_of=run_id,
        )
        run = replace(run, event=before.event, depth=before.depth)
        return NewRun(plan=plan, base_dir=base_dir, run=self._timed(run))

    async def preview(self, workflow: str, params: Mapping[str, Any], selection: Selection, caller: str) -> Preview:
        """What a run would do, in an order in which it could. Raises as `new` does, and RenderError."""
        made = await self.new(workflow, params, trigger=Trigger.API, caller=caller, selection=selection)
        plan, run = made.plan, made.run
        scope = Scope(
            params=dict(run.params),
            # The rest is known only once there is a run.
            run={"workflow": run.workflow, "scope": run.scope, "retry_of": ""},
            env=plan.workflow.env,
            steps={},
        )
        steps = []
        for name in in_order(plan):
            if name in run.steps:
                command = await self._evaluation.preview(plan.workflow, plan.steps[name], scope)
                steps.append(_planned(plan, run.steps[name], command))
        return Preview(workflow=run.workflow, version=run.version, steps=steps)

    async def _without_gone(self, run: Run) -> Run:
        """Steps whose results were taken over from a run that is not kept any more have none to hand on."""
        sources = {step.source for step in run.steps.values() if step.source}
        gone = sources - (await self._store.known_runs(sources)).keys()
        if not gone:
            return run
        steps = {
            name: replace(step, state=StepState.CANCELLED, reason="its result is gone", source="")
            if step.source in gone
            else step
            for name, step in run.steps.items()
        }
        return replace(run, steps=steps)

    def _timed(self, run: Run) -> Run:
        return run if run.timeout is not None else replace(run, timeout=self._default_timeout)

    async def _borrowed(self, plan: Plan, chosen: Collection[str], selection: Selection) -> dict[str, StepRun]:
        """The results that the chosen steps need of others, as they were left by earlier runs."""
        needed = borrowed_steps(plan, chosen)
        if not needed:
            return {}
        found: Mapping[str, str] = dict.fromkeys(needed, selection.from_run)
        if not selection.from_run:
            found = await self._store.latest_success(plan.workflow.name, needed)
        at = self._clock.now()
        sources: dict[str, Run] = {}
        kept: dict[str, StepRun] = {}
        for name in sorted(needed, key=plan.index.__getitem__):
            run_id = found.get(name, "")
            if run_id and run_id not in sources:
                source = await self._store.get_run(run_id)
                if source is None or source.workflow != plan.workflow.name:
                    raise RunNotFoundError(run_id)
                sources[run_id] = await self._without_gone(source)
            step = sources[run_id].steps.get(name) if run_id else None
            if step is None or not _succeeded(step):
                raise NoPriorResultError(name, selection.from_run)
            kept |= borrow(plan, sources[run_id], name, at)
        return kept


def _succeeded(step: StepRun) -> bool:
    taken_over = step.reason == "scope" and bool(step.source)
    return step.state is StepState.SUCCEEDED or taken_over


def in_order(plan: Plan) -> list[str]:
    """Every step after those it waits for, otherwise as the definition has them."""
    sorter = TopologicalSorter({name: step.depends_on for name, step in plan.steps.items()})
    sorter.prepare()
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=plan.index.__getitem__)
        ordered += ready
        sorter.done(*ready)
    return ordered


def _planned(plan: Plan, run: StepRun, command: str) -> PlannedStep:
    step = plan.steps[run.id]
    return PlannedStep(
        id=step.id,
        job_type=step.job_type.value,
        command=command,
        depends_on=step.depends_on,
        when=step.when,
        for_each=step.for_each if isinstance(step.for_each, str) else _shown(step.for_each),
        max_iterations=step.max_iterations if step.completion_check is not None else 0,
        skipped=run.reason if run.state is StepState.SKIPPED else "",
        source=run.source,
    )


def _shown(items: Any) -> str:
    match items:
        case None:
            return ""
        case dict():
            return " × ".join(items)
        case _:
            return f"{len(items)} items"
