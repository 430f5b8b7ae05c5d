"""The shape of a workflow, worked out once for all of its transitions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from toban.definition import Step, Workflow
from toband.domain.model import Run, StepRun, Trigger


class Plan:
    """A definition with what a transition asks of it: who waits for whom, and in which order things stand."""

    __slots__ = ("dependents", "index", "ordered", "steps", "workflow")

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.steps: Mapping[str, Step] = workflow.steps
        self.ordered = tuple(workflow.steps)
        self.index = {step: number for number, step in enumerate(self.ordered)}
        dependents: dict[str, list[str]] = {step: [] for step in self.ordered}
        for step in workflow.steps.values():
            for needed in step.depends_on:
                dependents[needed].append(step.id)
        self.dependents: Mapping[str, tuple[str, ...]] = {
            k: tuple(v) for k, v in dependents.items()
        }

    def new_run(
        self,
        *,
        run_id: str,
        version: int,
        params: Mapping[str, Any],
        trigger: Trigger,
        caller: str,
        at: datetime,
    ) -> Run:
        """A run that has not begun."""
        return Run(
            id=run_id,
            workflow=self.workflow.name,
            version=version,
            trigger=trigger,
            caller=caller,
            priority=self.workflow.priority,
            params=params,
            created_at=at,
            timeout=self.workflow.timeout,
            total_steps=len(self.ordered),
            steps={step: StepRun(id=step, index=number) for step, number in self.index.items()},
        )
