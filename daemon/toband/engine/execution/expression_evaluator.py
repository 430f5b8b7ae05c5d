"""Evaluates the expressions of steps and conditions: cheap ones at once, all others in a process that can be killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from toban.definition import (
    CostlyError,
    Rendered,
    RenderedWait,
    RenderError,
    Scope,
    Step,
    Workflow,
    check_references,
    evaluate_items,
    evaluate_when,
    judge_conditions,
    judge_wait,
    preview,
    render,
    render_wait,
)
from toband.ports import OverLimitError, Sandbox

SECONDS: Final = 2.0
"""Processor time for all expressions of a step, or for one condition of an event."""
PAUSE: Final = 60.0
"""Seconds for which a condition that exceeded a limit is not tried again."""
_BATCH: Final = 100
"""Conditions that are evaluated with one request."""

_Result = TypeVar("_Result")


class ExpressionEvaluator:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._over: dict[str, tuple[float, str]] = {}
        """Conditions that exceeded a limit, until when they are not tried again, and the reason to report meanwhile.

        Otherwise each event of their type would wait for them to exceed it again.
        """

    async def render(self, workflow: Workflow, step: Step, scope: Scope, *, run_id: str) -> Rendered:
        """Raises RenderError, and OSError if the system has no process for it, as all of these do."""
        return await self._of_step(render, workflow, step, scope, run_id)

    async def when(self, workflow: Workflow, step: Step, scope: Scope, *, run_id: str) -> bool:
        return await self._of_step(evaluate_when, workflow, step, scope, run_id)

    async def items(self, workflow: Workflow, step: Step, scope: Scope, *, run_id: str) -> tuple[Any, ...]:
        return await self._of_step(evaluate_items, workflow, step, scope, run_id)

    async def wait(self, workflow: Workflow, step: Step, scope: Scope, *, run_id: str) -> RenderedWait:
        return await self._of_step(render_wait, workflow, step, scope, run_id)

    async def ends_wait(self, workflow: Workflow, step: Step, scope: Scope, *, run_id: str) -> bool:
        """Whether the event of the scope ends the wait of a step."""
        return await self._of_step(judge_wait, workflow, step, scope, run_id)

    async def preview(self, workflow: Workflow, step: Step, scope: Scope) -> str:
        return await self._of_step(preview, workflow, step, scope, "preview")

    async def _of_step(
        self,
        function: Callable[..., _Result],
        workflow: Workflow,
        step: Step,
        scope: Scope,
        key: str,
    ) -> _Result:
        try:
            return function(workflow, step, scope, cheap_only=True)
        except CostlyError:
            pass
        # The output of the last check is read on access, which another process cannot do.
        check = {field: scope.check[field] for field in check_references(step) & scope.check.keys()}
        scope = replace(scope, check=check)
        try:
            return await self._sandbox.call(function, workflow, step, scope, key=key, seconds=SECONDS)
        except OverLimitError as error:
            raise RenderError(
                f"cannot evaluate the expressions of step {step.id}: {error}; compute it in a step instead"
            ) from None

    async def conditions(self, event: Mapping[str, Any], conditions: Sequence[str]) -> Mapping[str, bool | str]:
        """Whether each of these costly conditions is true for the event, or why that is unknown. Raises OSError."""
        now = time.monotonic()
        self._over = {each: over for each, over in self._over.items() if over[0] > now}
        found: dict[str, bool | str] = {each: self._over[each][1] for each in conditions if each in self._over}
        left = [each for each in dict.fromkeys(conditions) if each not in found]
        for start in range(0, len(left), _BATCH):
            found |= await self._judged(event, left[start : start + _BATCH])
        return found

    async def _judged(self, event: Mapping[str, Any], conditions: Sequence[str]) -> dict[str, bool | str]:
        """Evaluates all together; if they exceed a limit, one by one, to find the one that does."""
        try:
            judged = await self._sandbox.call(judge_conditions, dict(event), conditions, key="events", seconds=SECONDS)
        except OverLimitError as error:
            if len(conditions) == 1:
                why = f"cannot evaluate the condition: {error}; simplify it"
                self._over[conditions[0]] = (time.monotonic() + PAUSE, why)
                return {conditions[0]: why}
        else:
            return dict(zip(conditions, judged, strict=True))
        found: dict[str, bool | str] = {}
        for each in conditions:
            found |= await self._judged(event, [each])
        return found
