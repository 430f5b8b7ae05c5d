"""Plan cache: the plans of recently used definitions."""

from __future__ import annotations

from toban.definition import Workflow
from toband.domain.plan import Plan
from toband.domain.run_model import Run
from toband.ports import DefinitionStore, WorkflowVersion

KEPT = 256


class PlanCache:
    """The plan of a version, with the directory that its relative paths are based on."""

    def __init__(self, store: DefinitionStore) -> None:
        self._store = store
        self._plans: dict[tuple[str, int], tuple[Plan, str]] = {}

    def of(self, version: WorkflowVersion) -> tuple[Plan, str]:
        key = (version.workflow, version.version)
        if key not in self._plans:
            if len(self._plans) >= KEPT:
                self._plans.pop(next(iter(self._plans)))
            plan = Plan(Workflow.from_dict(dict(version.parsed)))
            self._plans[key] = (plan, version.base_dir)
        return self._plans[key]

    async def plan_of(self, run: Run) -> Plan | None:
        found = await self.of_run(run)
        return found[0] if found is not None else None

    async def of_run(self, run: Run) -> tuple[Plan, str] | None:
        """The plan of the version that the run is pinned to, with its directory; None if that was deleted."""
        kept = self._plans.get((run.workflow, run.version))
        if kept is None:
            version = await self._store.get_version(run.workflow, run.version)
            kept = None if version is None else self.of(version)
        return kept
