"""Call targets: the workflow or the job that a call is about, found in its request and in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from toband.domain.access_rule import AccessRule, CallTarget
from toband.ports import Store

_KEPT: Final = 4096
_SECOND: Final[Mapping[str, Mapping[str, CallTarget]]] = {
    "RunService/StartRun": {"from_run": CallTarget.RUN},
    "RunService/PlanRun": {"from_run": CallTarget.RUN},
    "RunService/StreamLogs": {"process_execution_id": CallTarget.PROCESS_EXECUTION},
    "RunService/ReadLog": {"process_execution_id": CallTarget.PROCESS_EXECUTION},
    "RunService/SearchLogs": {"process_execution_id": CallTarget.PROCESS_EXECUTION},
    "RunService/ListProcessExecutions": {"run_id": CallTarget.RUN},
}
"""Further fields that name something of a workflow; each may be empty."""


class CallTargets:
    """Belongs to the event loop. A run keeps its workflow, so it is looked up once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._workflows: dict[str, str] = {}
        self._find: Mapping[CallTarget, Callable[[str], Awaitable[str]]] = {
            CallTarget.WORKFLOW: self._named,
            CallTarget.RUN: self.workflow_of,
            CallTarget.PROCESS_EXECUTION: self._of_attempt,
            CallTarget.DEAD_LETTER: self._of_letter,
            CallTarget.SCHEDULE: self._of_schedule,
            CallTarget.HOOK: self._of_hook,
        }

    async def of(self, rule: AccessRule, request: Any) -> AsyncIterator[tuple[str, str]]:
        """The target of the request, and its workflow, which is empty if it has none."""
        fields = dict(_SECOND.get(rule.method, {}))
        fields = {field: target for field, target in fields.items() if getattr(request, field)}
        if rule.target in self._find and (getattr(request, rule.field) or not fields):
            fields[rule.field] = rule.target
        for field, target in fields.items():
            name = getattr(request, field)
            yield name, await self._find[target](name)

    async def workflow_of(self, run_id: str) -> str:
        """Empty if there is no such run."""
        if run_id not in self._workflows:
            origin = await self._store.run_origin(run_id)
            if origin is None:
                return ""
            if len(self._workflows) >= _KEPT:
                self._workflows.pop(next(iter(self._workflows)))
            self._workflows[run_id] = origin.workflow
        return self._workflows[run_id]

    async def run_of_attempt(self, attempt_id: str) -> str:
        attempt = await self._store.get_attempt(attempt_id)
        return attempt.run_id if attempt is not None else ""

    async def _named(self, name: str) -> str:
        return name

    async def _of_attempt(self, attempt_id: str) -> str:
        attempt = await self._store.get_attempt(attempt_id)
        return attempt.workflow if attempt is not None else ""

    async def _of_letter(self, letter_id: str) -> str:
        letter = await self._store.get_dead_letter(letter_id)
        return letter.workflow if letter is not None else ""

    async def _of_schedule(self, schedule_id: str) -> str:
        entry = await self._store.get_schedule(schedule_id)
        return entry.workflow if entry is not None and entry.subject else ""

    async def _of_hook(self, name: str) -> str:
        hook = await self._store.get_hook(name)
        return hook.workflow if hook is not None else ""
