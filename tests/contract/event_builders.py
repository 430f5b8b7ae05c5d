"""Builders of events and their resolutions, for tests of stores."""

from __future__ import annotations

from typing import Any

from contract.builders import NOW, later, new_id, new_run
from toban.definition import EventTrigger
from toban.definition.model.event_triggers import NO_PACE, Pace
from toband.domain.emitted_events import Emitted, EventRun, EventRunOutcome, EventSource, EventState
from toband.domain.run_model import Run, Trigger
from toband.ports import EventResolution, Store

SKIPPED, STARTED = EventRunOutcome.SKIPPED, EventRunOutcome.STARTED


def new_event(event_type: str = "ORDER_PLACED", **changes: Any) -> Emitted:
    values: dict[str, Any] = {
        "id": new_id(),
        "type": event_type,
        "payload": {"order": 7},
        "at": NOW,
        "source": EventSource.CLIENT,
    }
    return Emitted(**(values | changes))


async def stored_event(store: Store, event_type: str = "ORDER_PLACED", **changes: Any) -> Emitted:
    ((event, new),) = await store.add_events([new_event(event_type, **changes)])
    assert new
    return event


def on(*types: str, condition: str = "", priority: int = 0, scope: str = "", pace: Pace = NO_PACE) -> EventTrigger:
    return EventTrigger(events=types, condition=condition, priority=priority, scope=scope, pace=pace)


def event_run(of: Emitted, workflow: str = "backup", *, priority: int = 0, **changes: Any) -> tuple[EventRun, Run]:
    """A run that the event starts, and its row."""
    run = new_run(workflow, trigger=Trigger.EVENT, event=of.seen(), depth=of.depth + 1, **changes)
    row = EventRun(workflow=workflow, priority=priority, outcome=STARTED, run_id=run.id)
    return row, run


def resolution(of: Emitted, *runs: tuple[EventRun, Run], at_most: int | None = None, **changes: Any) -> EventResolution:
    values: dict[str, Any] = {
        "event_id": of.id,
        "state": EventState.RESOLVED,
        "at": later(1),
        "runs": tuple((row, run, at_most) for row, run in runs),
    }
    return EventResolution(**(values | changes))
