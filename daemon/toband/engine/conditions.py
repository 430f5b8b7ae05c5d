"""What `when` and `for_each` of a step come to."""

from __future__ import annotations

from toban.definition import RenderError, condition_references, evaluate_items, evaluate_when
from toband.domain.events import EvaluationFailed, StepEvaluated
from toband.domain.model import Run
from toband.domain.plan import Plan
from toband.engine.seen import Seen


def settle(plan: Plan, run: Run, name: str, seen: Seen) -> StepEvaluated | EvaluationFailed:
    """May read what steps printed. Raises OSError."""
    step = plan.steps[name]
    try:
        scope = seen.scope(plan, run, run.steps[name], condition_references(step))
        if step.when and not evaluate_when(plan.workflow, step, scope):
            return StepEvaluated(step=name, when=False)
        items = None if step.for_each is None else evaluate_items(plan.workflow, step, scope)
    except RenderError as error:
        return EvaluationFailed(step=name, error=str(error))
    return StepEvaluated(step=name, items=items)
