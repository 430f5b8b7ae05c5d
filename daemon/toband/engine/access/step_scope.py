"""Step scope: what a step may do with the token of its attempt alone."""

from __future__ import annotations

from typing import Any, Final

from toband.domain.access_rule import AccessRule, CallTarget
from toband.domain.emitted_events import causing_run
from toband.domain.identity import StepIdentity, Visible
from toband.engine.access.call_scope import seen_with
from toband.engine.access.call_targets import CallTargets
from toband.ports import Store

_LONGEST: Final = 64
"""Runs between a run and the step that started its chain: children of children, and `DEPTH_MOST` through events."""


class StepScope:
    """A step acts for its own run and for what that run started: runs, their children, and events."""

    def __init__(self, store: Store, targets: CallTargets) -> None:
        self._store = store
        self._targets = targets

    async def covers(self, step: StepIdentity, rule: AccessRule, request: Any, startable: Visible) -> bool:
        """`startable` are the workflows that it may start, and whose schedules it may manage."""
        if not rule.steps:
            return False
        match rule.target:
            case CallTarget.RUN:
                return await self._covers_run(step, rule, request)
            case CallTarget.PROCESS_EXECUTION:
                run_id = await self._targets.run_of_attempt(getattr(request, rule.field))
                return await self._in_chain(step, run_id)
            case CallTarget.EVENT:
                event = await self._store.get_event(getattr(request, rule.field))
                return event is not None and await self._in_chain(step, event.source_run)
            case CallTarget.WORKFLOW:
                # Starting a run makes it one of the chain. The results of other runs are not the step's.
                from_run = getattr(request, "from_run", "")
                if from_run and not await self._in_chain(step, from_run):
                    return False
                return await self._may_start(getattr(request, rule.field), startable)
            case CallTarget.VISIBLE:
                # Only those who know a subject see its schedules.
                return bool(getattr(request, "subject", ""))
            case CallTarget.SCHEDULE:
                entry = await self._store.get_schedule(getattr(request, rule.field)) if startable is not None else None
                return startable is None or (entry is not None and await self._may_start(entry.workflow, startable))
            case CallTarget.DAEMON:
                # All schedules of a subject may be too many.
                ends_all = rule.method == "ScheduleService/CancelBySubject" and startable is not None
                return not ends_all and not _acts_for_another(step, request)
            case CallTarget.NONE:
                return True
            case CallTarget.DEAD_LETTER | CallTarget.DEFINITIONS | CallTarget.HOOK:
                return False

    async def _may_start(self, workflow: str, startable: Visible) -> bool:
        """A schedule without a workflow starts none."""
        return not workflow or workflow in await seen_with(startable, [workflow], self._store)

    async def _covers_run(self, step: StepIdentity, rule: AccessRule, request: Any) -> bool:
        run_id = getattr(request, rule.field)
        attempt_id = getattr(request, "process_execution_id", "")
        if attempt_id:
            found = await self._targets.run_of_attempt(attempt_id)
            if run_id not in ("", found):
                return False
            run_id = found
        return await self._in_chain(step, run_id)

    async def _in_chain(self, step: StepIdentity, run_id: str) -> bool:
        """Whether the run is that of the step, or was started by it, or by a run that it started, and so on."""
        for _ in range(_LONGEST):
            if run_id in ("", step.run_id):
                return run_id != ""
            origin = await self._store.run_origin(run_id)
            if origin is None:
                return False
            run_id = origin.parent_run or causing_run(origin.caller)
        return False


def _acts_for_another(step: StepIdentity, request: Any) -> bool:
    """Whether an event claims to come from another attempt."""
    fields = request.DESCRIPTOR.fields_by_name
    if "origin" not in fields or not request.HasField("origin"):
        return False
    return (request.origin.run_id, request.origin.attempt_token) != (step.run_id, step.token)
