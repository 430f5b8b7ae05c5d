"""Decides which runs an event starts, based on stored state, and saves them with the event in one transaction."""

from __future__ import annotations

from dataclasses import replace

import structlog

from toban.definition import ParamError
from toban.definition.model.event_triggers import NO_PACE
from toband import failpoints
from toband.domain.emitted_events import (
    DEPTH_MOST,
    Burst,
    Emitted,
    EventRun,
    EventRunOutcome,
    EventState,
    PacedStart,
    pace_key,
)
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.overlap import is_full, skipped
from toband.domain.run_model import Run, RunState, Trigger
from toband.engine.errors import EngineError, StoppingError, not_started
from toband.engine.events.event_matching import Candidate, EventMatcher
from toband.engine.runs.intake import RunIntake
from toband.engine.runs.run_factory import NewRun
from toband.ports import Clock, EventResolution, Resolved, RunGoneError, Store, StoreError

_ACTIVE_MOST = 1000
"""Active runs that are looked at to foresee whether a run would be skipped: a backfill may have many."""

log = structlog.get_logger()


class EventStarts:
    """Belongs to the event loop."""

    def __init__(self, *, store: Store, intake: RunIntake, clock: Clock, matching: EventMatcher) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._matching = matching

    async def decide(self, event: Emitted) -> tuple[EventResolution, dict[str, NewRun]]:
        """Raises StoreError. Any other error of an event is recorded in its resolution, and blocks no other event."""
        try:
            return await self._matched(event)
        except StoreError:
            raise
        except Exception as error:
            log.error("cannot resolve an event", action="event_broken", event_id=event.id, exc_info=error)
            reason = f"cannot resolve it: {type(error).__name__}: {error}; see the log"
            return self._resolution(event, EventState.RESOLVED, reason), {}

    async def _matched(self, event: Emitted) -> tuple[EventResolution, dict[str, NewRun]]:
        if cut := _cut(event):
            log.warning("a chain of events was cut", action="event_cut", event_id=event.id, type=event.type)
            return self._resolution(event, EventState.CUT, cut), {}
        starts = {each.workflow: each for each in await self._matching.judge(event) if each.matches}
        made: dict[str, NewRun] = {}
        skipped: list[EventRun] = []
        runs: list[tuple[EventRun, Run, int | None]] = []
        debounced: list[tuple[EventRun, PacedStart, str]] = []
        throttled: dict[str, PacedStart] = {}
        if event.workflow and event.workflow not in starts:
            starts = {event.workflow: _bound(event), **starts}
        for workflow, one in starts.items():
            row = EventRun(workflow=workflow, priority=one.priority, outcome=EventRunOutcome.STARTED)
            by = _paced(event, one)
            if by is not None and by.pace.quiet:
                debounced.append((replace(row, outcome=EventRunOutcome.SKIPPED), by, one.scope))
                continue
            new = await self._run_of(event, one)
            if isinstance(new, NotStarted):
                skipped.append(replace(row, outcome=EventRunOutcome.SKIPPED, reason=new))
                continue
            if by is not None:
                throttled[workflow] = by
            made[new.run.id] = new
            row = replace(row, run_id=new.run.id, priority=new.run.priority)
            runs.append((row, new.run, new.overlap.skip_limit))
        resolution = self._resolution(event, EventState.RESOLVED)
        resolution = replace(resolution, debounced=tuple(debounced), throttled=throttled)
        return replace(resolution, skipped=tuple(skipped), runs=tuple(runs)), made

    async def _run_of(self, event: Emitted, one: Candidate) -> NewRun | NotStarted:
        """The run that it starts, not stored yet, or why there is none. Raises StoreError."""
        workflow = one.workflow
        bound = workflow == event.workflow
        stored = await self._store.get_workflow(workflow) if bound else None
        if stored is not None and not stored.enabled:
            return NotStarted(NotStartedReason.DISABLED)
        try:
            return await self._intake.triggered(
                workflow,
                event,
                stored=stored,
                priority=one.priority if not bound else None,
                scope=one.scope,
                trigger=Trigger.SCHEDULE if bound and event.schedule else Trigger.EVENT,
            )
        except StoppingError:
            raise StoreError("the daemon is stopping") from None
        except (ParamError, EngineError) as error:
            return not_started(error)

    async def end_burst(self, burst: Burst) -> None:
        """Starts the run of a burst in which no further event came, or records why it does not. Raises StoreError."""
        try:
            await self._end_burst(burst)
        except StoreError:
            raise
        except Exception as error:
            log.error("cannot end a burst of events", action="burst_broken", event_id=burst.event_id, exc_info=error)
            reason = NotStarted(NotStartedReason.OTHER, f"{type(error).__name__}: {error}; see the log")
            await self._store.end_burst(burst, run=None, reason=reason)

    async def _end_burst(self, burst: Burst) -> None:
        event = await self._store.get_event(burst.event_id)
        if event is None:
            await self._store.end_burst(burst, run=None, reason=NotStarted(NotStartedReason.OTHER, "the event is gone"))
            return
        stored = await self._store.get_workflow(burst.workflow)
        if stored is not None and not stored.enabled:
            await self._store.end_burst(burst, run=None, reason=NotStarted(NotStartedReason.DISABLED))
            return
        one = Candidate(
            workflow=burst.workflow,
            matches=True,
            priority=burst.priority,
            scope=burst.scope,
            condition="",
            reason="no further event came",
        )
        new = await self._run_of(replace(event, coalesced=burst.count, workflow=""), one)
        if isinstance(new, NotStarted):
            await self._store.end_burst(burst, run=None, reason=new)
            return
        try:
            run = await self._store.end_burst(burst, run=new.run, max_active=new.overlap.skip_limit)
        except StoreError:
            self._intake.begin_if_stored(new)
            raise
        failpoints.hit("event.burst_ended")
        if run is not None:
            log.info("burst ended", action="burst_ended", event_id=event.id, workflow=run.workflow, events=burst.count)
            self._intake.begin(new, run)

    async def foresee(self, event: Emitted) -> list[Candidate]:
        """All listeners of its type, and the workflow of its schedule or hook: whether each would start now, and why.

        First those that would, in that order, then the others by name. Raises StoreError.
        """
        judged = await self._matching.judge(event)
        if event.workflow and not any(each.matches for each in judged if each.workflow == event.workflow):
            judged = [_bound(event), *(each for each in judged if each.workflow != event.workflow)]
        found = [await self._foreseen(event, each) if each.matches else each for each in judged]
        others = sorted((each for each in found if not each.matches), key=lambda one: one.workflow)
        return [*(each for each in found if each.matches), *others]

    async def _foreseen(self, event: Emitted, one: Candidate) -> Candidate:
        """The outcome for a workflow that matches."""
        if one.pace.quiet and not _cut(event):
            return replace(one, reason=f"{one.reason}; starts once no such event came for {one.pace.quiet:g} s")
        reason = _cut(event)
        if not reason:
            new = await self._run_of(event, one)
            if isinstance(new, NewRun):
                one = replace(one, priority=new.run.priority)
            refusal = await self._in_the_way(new) if isinstance(new, NewRun) else new
            reason = refusal.text if refusal is not None else ""
        return replace(one, matches=False, reason=reason) if reason else one

    async def _in_the_way(self, new: NewRun) -> NotStarted | None:
        limit = new.overlap.skip_limit
        if limit is None:
            return None
        active = await self._store.list_runs(
            workflow=new.run.workflow,
            states=[state for state in RunState if not state.terminal],
            limit=_ACTIVE_MOST,
        )
        active = [run for run in active if run.trigger is not Trigger.BACKFILL][:limit]
        return skipped(active[-1].name) if is_full(limit, len(active)) else None

    def _resolution(self, event: Emitted, state: EventState, reason: str = "") -> EventResolution:
        return EventResolution(event_id=event.id, state=state, at=self._clock.now(), reason=reason)

    async def save(self, resolution: EventResolution, made: dict[str, NewRun]) -> Resolved | None:
        """Saves the resolution; None if an earlier save succeeded without being acknowledged. Raises StoreError."""
        try:
            resolved = await self._store.resolve_event(resolution)
        except RunGoneError as error:  # it takes results of a run that was deleted just now: decide again
            raise StoreError(str(error)) from error
        except StoreError:
            for new in made.values():
                self._intake.begin_if_stored(new)
            raise
        failpoints.hit("event.resolved")
        if resolved is not None:
            log.info(
                "event resolved",
                action="event_resolved",
                event_id=resolved.event.id,
                type=resolved.event.type,
                started=len(resolved.runs),
            )
        return resolved


def _paced(event: Emitted, one: Candidate) -> PacedStart | None:
    """The trigger by which it starts the workflow, if that has a pace."""
    if one.pace == NO_PACE:
        return None
    key = pace_key(one.pace.key, event.seen()) if one.pace.key else ""
    return PacedStart(workflow=one.workflow, position=one.position, key=key, pace=one.pace)


def _bound(event: Emitted) -> Candidate:
    """The workflow that the schedule or the hook of the event starts, whatever its triggers."""
    reason = "its schedule starts it" if event.schedule else "its hook starts it"
    return Candidate(workflow=event.workflow, matches=True, priority=0, condition="", reason=reason)


def _cut(event: Emitted) -> str:
    """Why it starts nothing, whatever listens; empty if it may."""
    if event.depth < DEPTH_MOST:
        return ""
    return (
        f"{event.depth} runs are before it in a chain of events: it starts nothing, so that workflows that "
        "start each other come to an end"
    )
