"""What an event starts: decided on what is stored, and saved with the runs in one transaction."""

from __future__ import annotations

from dataclasses import replace

import structlog

from toban.definition import Overlap, ParamError
from toband import failpoints
from toband.domain.emitted import DEPTH_MOST, Emitted, EventRun, EventRunOutcome, EventState
from toband.domain.model import Run, Trigger
from toband.engine.errors import EngineError, StoppingError
from toband.engine.matching import Matching
from toband.engine.runs import Runs
from toband.engine.starting import NewRun
from toband.ports import Clock, EventResolution, Resolved, RunGoneError, Store, StoreError

log = structlog.get_logger()


class EventStarts:
    """Belongs to the event loop."""

    def __init__(self, *, store: Store, runs: Runs, clock: Clock, matching: Matching) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._matching = matching

    async def decide(self, event: Emitted) -> tuple[EventResolution, dict[str, NewRun]]:
        """Raises StoreError. What else goes wrong with an event is told by it, and holds up no other."""
        try:
            return await self._matched(event)
        except StoreError:
            raise
        except Exception as error:
            log.error(
                "cannot resolve an event", action="event_broken", event_id=event.id, exc_info=error
            )
            reason = f"cannot resolve it: {type(error).__name__}: {error}; see the log"
            return self._resolution(event, EventState.RESOLVED, reason), {}

    async def _matched(self, event: Emitted) -> tuple[EventResolution, dict[str, NewRun]]:
        if event.depth >= DEPTH_MOST:
            reason = (
                f"{event.depth} runs are before it in a chain of events: it starts nothing, so that workflows that "
                "start each other come to an end"
            )
            log.warning(
                "a chain of events was cut", action="event_cut", event_id=event.id, type=event.type
            )
            return self._resolution(event, EventState.CUT, reason), {}
        starts = {
            each.workflow: each.priority
            for each in await self._matching.judge(event)
            if each.matches
        }
        made: dict[str, NewRun] = {}
        skipped: list[EventRun] = []
        runs: list[tuple[EventRun, Run, int | None]] = []
        if event.workflow and event.workflow not in starts:
            starts = {event.workflow: 0, **starts}
        for workflow, priority in starts.items():
            bound = workflow == event.workflow
            row = EventRun(workflow=workflow, priority=priority, outcome=EventRunOutcome.STARTED)
            if bound and await self._disabled(workflow):
                skipped.append(replace(row, outcome=EventRunOutcome.SKIPPED, reason="disabled"))
                continue
            try:
                new = await self._runs.triggered(
                    workflow,
                    event,
                    priority=priority if not bound else None,
                    trigger=Trigger.SCHEDULE if bound else Trigger.EVENT,
                )
            except ParamError as error:
                reason = f"parameters: {error}"
                skipped.append(replace(row, outcome=EventRunOutcome.SKIPPED, reason=reason))
                continue
            except StoppingError:
                raise StoreError("the daemon is stopping") from None
            except EngineError as error:
                skipped.append(replace(row, outcome=EventRunOutcome.SKIPPED, reason=str(error)))
                continue
            made[new.run.id] = new
            row = replace(row, run_id=new.run.id, priority=new.run.priority)
            limit = new.limit if new.overlap is Overlap.SKIP else None
            runs.append((row, new.run, limit))
        resolution = self._resolution(event, EventState.RESOLVED)
        return replace(resolution, skipped=tuple(skipped), runs=tuple(runs)), made

    async def _disabled(self, workflow: str) -> bool:
        stored = await self._store.get_workflow(workflow)
        return stored is not None and not stored.enabled

    def _resolution(self, event: Emitted, state: EventState, reason: str = "") -> EventResolution:
        return EventResolution(event_id=event.id, state=state, at=self._clock.now(), reason=reason)

    async def save(self, resolution: EventResolution, made: dict[str, NewRun]) -> Resolved | None:
        """What was made of it; None if it was resolved before, and that was not told. Raises StoreError."""
        try:
            resolved = await self._store.resolve_event(resolution)
        except RunGoneError as error:  # no run of an event takes results from another
            raise StoreError(str(error)) from error
        except StoreError:
            for new in made.values():
                self._runs.begin_if_stored(new)
            raise
        failpoints.hit("event.resolved")
        if resolved is not None:
            log.info(
                "event resolved", action="event_resolved", event_id=resolved.event.id,
                type=resolved.event.type, started=len(resolved.runs),
            )  # fmt: skip
        return resolved
