"""Run preview: the steps of a run that is not created, in an order in which they could run, with their commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from toban.definition import Scope
from toband.domain.plan import Plan
from toband.domain.run_model import Run, SkipReason, StepRun, Trigger
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.runs.run_factory import RunFactory
from toband.engine.runs.step_selection import Selection, definition_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step of a preview. `skipped` says why it would not run; `source` is the run that its result would come from."""

    id: str
    title: str
    job_type: str
    command: str
    depends_on: tuple[str, ...]
    when: str
    for_each: str
    max_iterations: int
    skipped: SkipReason | None
    source: str
    is_finally: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    run: Run
    title: str
    definition_scope: str
    steps: Sequence[PlannedStep]


class RunPreviews:
    def __init__(self, factory: RunFactory, evaluation: ExpressionEvaluator) -> None:
        self._factory = factory
        self._evaluation = evaluation

    async def preview(self, workflow: str, params: Mapping[str, Any], selection: Selection, caller: str) -> Preview:
        """Raises as `RunFactory.new`, and RenderError."""
        made = await self._factory.new(
            workflow, params, trigger=Trigger.API, caller=caller, selection=selection, preview=True
        )
        plan, run = made.plan, made.run
        scope = Scope(
            params=dict(run.params),
            # The rest is known only for a real run.
            run={"workflow": run.workflow, "scope": run.scope, "retry_of": ""},
            env=plan.workflow.env,
            steps={},
        )
        steps = []
        for name in in_order(plan):
            if name in run.steps:
                command = await self._evaluation.preview(plan.workflow, plan.steps[name], scope)
                steps.append(_planned(plan, run.steps[name], command))
        return Preview(
            run=run, title=plan.workflow.title, definition_scope=definition_scope(plan.workflow, run), steps=steps
        )


def in_order(plan: Plan) -> list[str]:
    """Every step after its dependencies, otherwise in the order of the definition; `finally` steps last."""
    sorter = TopologicalSorter({name: step.depends_on for name, step in plan.steps.items()})
    sorter.prepare()
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=plan.index.__getitem__)
        ordered += ready
        sorter.done(*ready)
    return sorted(ordered, key=lambda name: name in plan.finally_steps)


def _planned(plan: Plan, run: StepRun, command: str) -> PlannedStep:
    step = plan.steps[run.id]
    return PlannedStep(
        id=step.id,
        title=step.name,
        job_type=step.job_type.value,
        command=command,
        depends_on=step.depends_on,
        when=step.when,
        for_each=step.for_each if isinstance(step.for_each, str) else _shown(step.for_each),
        max_iterations=step.max_iterations if step.completion_check is not None else 0,
        skipped=run.skip_reason,
        source=run.source,
        is_finally=step.is_finally,
    )


def _shown(items: Any) -> str:
    match items:
        case None:
            return ""
        case dict():
            return " × ".join(items)
        case _:
            return f"{len(items)} items"
