"""Workflows written in Python: the same definitions as in YAML, with functions as steps.

    from toban.workflow import step, workflow

    @step(timeout="5m")
    def fetch(day: str) -> dict[str, int]: ...

    @step
    def publish(data: dict[str, int]) -> None: ...

    @workflow(schedule="0 3 * * *")
    def nightly(day: str = "today") -> None:
        publish(fetch(day))

The function of a workflow is called once, by the program or command that applies the definition, to find out its steps;
the daemon never calls it. Only the standard library is loaded until a definition is needed: steps import this too.
"""

from __future__ import annotations

from typing import Any, Final

from toban.workflow.deferred_values import StepRef
from toban.workflow.function_params import Secret
from toban.workflow.functions import StepFunction, Workflow, add_step, finally_steps, step, template, workflow
from toban.workflow.mistakes import InvalidWorkflow, Mistake, Place

# In a step with `for_each`: the item of this instance.
item: Final[Any] = template("item")
# The event that started the run.
event: Final[Any] = template("event")

__all__ = [
    "InvalidWorkflow",
    "Mistake",
    "Place",
    "Secret",
    "StepFunction",
    "StepRef",
    "Workflow",
    "add_step",
    "event",
    "finally_steps",
    "item",
    "step",
    "template",
    "workflow",
]
