"""Fills in what a step waits for, and judges the events that may end its wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toban.definition.errors import RenderError
from toban.definition.expressions.evaluation import Evaluator, Scope, failed
from toban.definition.expressions.templates import parse_bare
from toban.definition.model.step_model import Step
from toban.definition.model.workflow import Workflow
from toban.definition.scalars.durations import parse_duration
from toban.definition.scalars.values import checked_text, describe


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedWait:
    """Exactly one, unless it waits for an event: seconds, a time as `parse_wait_time` reads it, or a path."""

    duration: float | None = None
    until: str = ""
    file: str = ""


def render_wait(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> RenderedWait:
    """Raises RenderError, and CostlyError with `cheap_only`."""
    assert step.wait is not None
    wait, evaluator = step.wait, Evaluator(workflow, scope, cheap_only=cheap_only)
    if isinstance(wait.duration, str):
        where = f"wait.for of step {step.id}"
        # A template that is the whole text may give a number of seconds.
        return RenderedWait(duration=_duration(evaluator.value(wait.duration, where), where))
    if wait.duration is not None:
        return RenderedWait(duration=wait.duration)
    if wait.until:
        return RenderedWait(until=evaluator.text(wait.until, f"wait.until of step {step.id}"))
    if wait.file:
        return RenderedWait(file=_path(evaluator.text(wait.file, f"wait.file of step {step.id}"), step))
    return RenderedWait()


def _duration(value: Any, where: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise RenderError(f"cannot render {where}: {error}") from None


def _path(path: str, step: Step) -> str:
    try:
        if not checked_text(path):
            raise ValueError("it is empty")
    except ValueError as error:
        raise RenderError(f"cannot render wait.file of step {step.id}: {error}") from None
    return path


def judge_wait(workflow: Workflow, step: Step, scope: Scope, *, cheap_only: bool = False) -> bool:
    """Whether the event of the scope ends the wait. Raises RenderError, and CostlyError with `cheap_only`."""
    assert step.wait is not None
    if not step.wait.condition:
        return True
    where = f"wait.condition of step {step.id}"
    found = Evaluator(workflow, scope, cheap_only=cheap_only).bare(step.wait.condition, where)
    if not isinstance(found, bool):
        raise failed(parse_bare(step.wait.condition), where, f"expected true or false, found {describe(found)}")
    return found
