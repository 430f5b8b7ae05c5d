"""Evaluates `when` and `for_each` of a step."""

from __future__ import annotations

from toban.definition import RenderError, condition_references
from toband.domain.plan import Plan
from toband.domain.run_events import EvaluationFailed, StepEvaluated
from toband.domain.run_model import Run
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.execution.template_scope import TemplateScope


async def settle(
    plan: Plan, run: Run, name: str, base_dir: str, seen: TemplateScope, evaluation: ExpressionEvaluator
) -> StepEvaluated | EvaluationFailed:
    """May read the output of steps. Raises OSError."""
    step = plan.steps[name]
    workflow = plan.workflow
    try:
        scope = await seen.scope(plan, run, run.steps[name], condition_references(step), base_dir=base_dir)
        if step.when and not await evaluation.when(workflow, step, scope, run_id=run.id):
            return StepEvaluated(step=name, when=False)
        items = None
        if step.for_each is not None:
            items = await evaluation.items(workflow, step, scope, run_id=run.id)
    except RenderError as error:
        return EvaluationFailed(step=name, error=str(error))
    return StepEvaluated(step=name, items=items)
