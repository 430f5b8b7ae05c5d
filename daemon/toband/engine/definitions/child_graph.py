"""Which workflows start which others as children: finds cycles and missing children before definitions are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toban.definition import JobType, Workflow
from toband.ports import DefinitionStore


class ChildGraph:
    """The stored workflows, with `replaced` in place of the stored definitions of the same names."""

    def __init__(self, store: DefinitionStore, replaced: Mapping[str, Mapping[str, Any]]) -> None:
        self._store = store
        self._targets: dict[str, Mapping[str, str] | None] = {
            name: _targets(parsed) for name, parsed in replaced.items()
        }

    async def cycle(self, name: str) -> Sequence[str]:
        """The shortest path from a workflow back to itself; empty if there is none."""
        before: dict[str, str] = {}
        queue = [name]
        for parent in queue:
            for target in (await self._of(parent) or {}).values():
                if target == name:
                    path = [parent]
                    while path[0] != name:
                        path.insert(0, before[path[0]])
                    return (*path, name)
                if target not in before:
                    before[target] = parent
                    queue.append(target)
        return ()

    async def missing(self, name: str) -> Mapping[str, str]:
        """By step, the children that do not exist."""
        children = await self._of(name) or {}
        return {step: target for step, target in children.items() if await self._of(target) is None}

    async def _of(self, name: str) -> Mapping[str, str] | None:
        """Children by step; None if there is no such workflow."""
        if name not in self._targets:
            stored = await self._store.get_workflow(name)
            definition = stored.definition if stored is not None else None
            self._targets[name] = _targets(definition.parsed) if definition is not None else None
        return self._targets[name]


def _targets(parsed: Mapping[str, Any]) -> Mapping[str, str]:
    steps = Workflow.from_dict(parsed).steps.values()
    return {step.id: step.target for step in steps if step.job_type is JobType.WORKFLOW}
