"""Child locks: the order of locks in a workflow and the workflows that it starts.

Two rules prevent deadlocks. A run, its steps and its child runs only wait for locks after those that are held above
them. And a run that holds locks only waits for its turn in the queue of a child's workflow if no other run of that
workflow could wait for these locks, or earlier ones, after it has started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toban.definition import JobType, Step, Workflow
from toban.definition.model.lock_order import lock_conflict
from toband.ports import DefinitionStore


@dataclass(frozen=True, slots=True)
class LockProblem:
    """`step` is the step of the first workflow that leads there."""

    step: str
    text: str


class LockOrderError(Exception):
    """A child run would wait for locks out of their order, which might never end."""


class ChildLocks:
    """The stored workflows, with `replaced` in place of the stored definitions of the same names.

    The workflows must not start each other in a cycle.
    """

    def __init__(
        self,
        store: DefinitionStore,
        replaced: Mapping[str, Mapping[str, Any]],
        active: Callable[[str], Iterable[Workflow]] = lambda _: (),
    ) -> None:
        """`active` returns the definitions that active runs of a workflow have: it may have changed meanwhile."""
        self._store = store
        self._replaced = replaced
        self._active = active
        self._workflows: dict[str, Workflow | None] = {}

    async def problem(self, name: str) -> LockProblem | None:
        """The first problem of a workflow that starts others."""
        workflow = await self._workflow(name)
        if workflow is None:
            return None
        for step in workflow.steps.values():
            text = await self._of_step(workflow, step, frozenset(workflow.locks), set())
            if text:
                return LockProblem(step.id, text)
        return None

    async def problem_below(self, workflow: Workflow, step: Step, held: Collection[str]) -> str:
        """The problem of a step that is going to start a child while its run works under these locks; '' if none."""
        return await self._of_step(workflow, step, frozenset(held), set())

    async def _of_step(
        self, workflow: Workflow, step: Step, held: frozenset[str], seen: set[tuple[str, frozenset[str]]]
    ) -> str:
        """`held` by the run of the step and the runs above it."""
        where = f'step "{step.id}" of workflow "{workflow.name}"'
        if step.job_type is not JobType.WORKFLOW:
            conflict = lock_conflict(held, step.locks)
            if conflict is None:
                return ""
            return (
                f'{where} takes lock "{conflict.wanted}" while a run above it holds "{conflict.held}", but locks are '
                f'taken in alphabetical order: add "{conflict.wanted}" to the locks of the workflow that holds '
                f'"{conflict.held}"'
            )
        child = await self._workflow(step.target)
        if child is None:
            return ""
        taken = {*step.locks, *child.locks}
        conflict = lock_conflict(held, taken)
        if conflict is not None:
            return (
                f'{where} starts workflow "{child.name}", which takes lock "{conflict.wanted}", while "{conflict.held}"'
                f' is held, but locks are taken in alphabetical order: add "{conflict.wanted}" to the locks of the '
                f'workflow that holds "{conflict.held}"'
            )
        inner = await self._taken_inside(child, *self._active(child.name)) if held else {}
        if bad := sorted(lock for lock in inner if lock <= max(held)):
            lock = bad[0]
            return (
                f'{where} holds lock "{max(held)}" while it waits for its turn in the queue of workflow '
                f'"{child.name}", and another run of that may wait for lock "{lock}" in {inner[lock]}: add "{lock}" to '
                f'the locks of workflow "{child.name}"'
            )
        below = held | taken
        if (child.name, below) in seen:
            return ""
        seen.add((child.name, below))
        for each in child.steps.values():
            if text := await self._of_step(child, each, below, seen):
                return text
        return ""

    async def _taken_inside(self, *versions: Workflow) -> Mapping[str, str]:
        """The locks that runs of these, started alone, take after their start; each with the step that does."""
        found: dict[str, str] = {}
        for workflow in versions:
            found |= await self._inside(workflow, frozenset(workflow.locks))
        return found

    async def _inside(self, workflow: Workflow, held: frozenset[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for step in workflow.steps.values():
            child = await self._workflow(step.target) if step.job_type is JobType.WORKFLOW else None
            taken = {*step.locks, *(child.locks if child is not None else ())} - held
            for lock in taken:
                found.setdefault(lock, f'step "{step.id}" of workflow "{workflow.name}"')
            if child is not None:
                for lock, where in (await self._inside(child, held | taken)).items():
                    found.setdefault(lock, where)
        return found

    async def _workflow(self, name: str) -> Workflow | None:
        if name not in self._workflows:
            parsed = self._replaced.get(name)
            if parsed is None:
                stored = await self._store.get_workflow(name)
                parsed = stored.definition.parsed if stored is not None and stored.definition is not None else None
            self._workflows[name] = Workflow.from_dict(parsed) if parsed is not None else None
        return self._workflows[name]
