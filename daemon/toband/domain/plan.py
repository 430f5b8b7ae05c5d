"""The structure of a workflow, computed once for all of its transitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from toban.definition import JobType, Step, Workflow
from toban.limits import MAX_TITLE_CHARS
from toband.domain.attempt_model import CHECK
from toband.domain.run_model import Run, SkipReason, StepRun, StepState, Trigger


class Plan:
    """A definition prepared for transitions: the dependencies between steps, and their order."""

    __slots__ = ("dependents", "finally_steps", "index", "ordered", "slotless", "steps", "workflow")

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.steps: Mapping[str, Step] = workflow.steps
        self.ordered = tuple(workflow.steps)
        self.index = {step: number for number, step in enumerate(self.ordered)}
        self.slotless = frozenset(
            name for name, step in workflow.steps.items() if step.job_type in (JobType.APPROVAL, JobType.WAIT)
        )
        self.finally_steps = frozenset(name for name, step in workflow.steps.items() if step.is_finally)
        dependents: dict[str, list[str]] = {step: [] for step in self.ordered}
        for step in workflow.steps.values():
            for needed in step.depends_on:
                dependents[needed].append(step.id)
        self.dependents: Mapping[str, tuple[str, ...]] = {k: tuple(v) for k, v in dependents.items()}

    def step(self, name: str) -> Step:
        """The definition of a step, or of the step of an instance such as `build[3]`."""
        found = self.steps.get(name)
        return found if found is not None else self.steps[name.partition("[")[0]]

    def title(self, name: str) -> str:
        """The title of a step, an instance or a check; empty if it is the step's id."""
        step = self.step(name.removesuffix(CHECK))
        return "" if step.name == step.id else step.name[:MAX_TITLE_CHARS]

    def label(self, name: str) -> str:
        """The name of a step or an instance for sentences: its id, behind the title if it has one."""
        title = self.title(name)
        return f"{title} ({name})" if title else name

    def definition(self, name: str) -> Step:
        """The definition that an attempt of that name runs: the step, or its completion check."""
        step = self.step(name.removesuffix(CHECK))
        if not name.endswith(CHECK):
            return step
        assert step.completion_check is not None
        return step.completion_check

    def after(self, steps: Collection[str]) -> set[str]:
        """These steps and all that depend on them."""
        found, left = set(steps), list(steps)
        while left:
            for dependent in self.dependents[left.pop()]:
                if dependent not in found:
                    found.add(dependent)
                    left.append(dependent)
        return found

    def new_run(
        self,
        *,
        run_id: str,
        version: int,
        params: Mapping[str, Any],
        trigger: Trigger,
        caller: str,
        at: datetime,
        scope: str = "full",
        chosen: Collection[str] | None = None,
        kept: Mapping[str, StepRun] | None = None,
        retry_of: str = "",
        from_run: str = "",
        parent_run: str = "",
        parent_step: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Run:
        """A run that has not started. Only the steps in `chosen` and the `finally` steps will run; None: all.

        `kept` are steps, with their instances, that have ended before the run starts: results of another run.
        """
        kept = kept or {}
        steps: dict[str, StepRun] = {}
        for step, number in self.index.items():
            if step in kept:
                steps[step] = kept[step]
            elif chosen is not None and step not in chosen and step not in self.finally_steps:
                steps[step] = StepRun(
                    id=step, index=number, state=StepState.SKIPPED, skip_reason=SkipReason.SCOPE, finished_at=at
                )
            else:
                steps[step] = StepRun(id=step, index=number)
        states = Counter(step.state for step in steps.values())
        steps |= {name: step for name, step in kept.items() if step.parent}
        return Run(
            id=run_id,
            workflow=self.workflow.name,
            version=version,
            scope=scope,
            trigger=trigger,
            caller=caller,
            priority=self.workflow.priority,
            params=params,
            created_at=at,
            timeout=self.workflow.timeout,
            total_steps=len(self.ordered),
            ended_steps=sum(count for state, count in states.items() if state.terminal),
            failed_steps=states[StepState.FAILED],
            incomplete_steps=states[StepState.INCOMPLETE],
            step_states=dict(states),
            steps=steps,
            retry_of=retry_of,
            from_run=from_run,
            parent_run=parent_run,
            parent_step=parent_step,
            labels=labels or {},
        )
