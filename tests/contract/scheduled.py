"""Builders of schedules and their firings, for tests of stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from contract.builders import NOW, later, new_id, new_run, text
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.run_model import Run, Trigger
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.ports import Firing, Store

MINUTELY = Schedule(every=60.0)
MINUTE = timedelta(minutes=1)


def entry(index: int = 0, spec: Schedule = MINUTELY, *, workflow: str = "backup", **changes: Any) -> ScheduleEntry:
    """One of a definition."""
    values: dict[str, Any] = {
        "id": f"{workflow}/{index}",
        "workflow": workflow,
        "index": index,
        "spec": spec,
        "zone": "UTC",
        "stored_at": NOW,
        "next_due": later(60),
    }
    return ScheduleEntry(**(values | changes))


def reminder(subject: str, **changes: Any) -> ScheduleEntry:
    """One that is bound to a subject."""
    values: dict[str, Any] = {
        "id": new_id(),
        "workflow": "",
        "spec": Schedule(at=later(90)),
        "zone": "Asia/Tokyo",
        "stored_at": NOW,
        "next_due": later(90),
        "subject": subject,
        "action": "reminder",
    }
    return ScheduleEntry(**(values | changes))


async def with_schedules(store: Store, *entries: ScheduleEntry, workflow: str = "backup", **changes: Any) -> None:
    await store.create_workflow(text(workflow, schedules=entries, **changes), at=NOW)


def line(of: ScheduleEntry, due_at: datetime, outcome: FireOutcome, **changes: Any) -> Fire:
    values: dict[str, Any] = {
        "schedule_id": of.id,
        "workflow": of.workflow,
        "due_at": due_at,
        "outcome": outcome,
        "at": due_at + timedelta(seconds=2),
    }
    return Fire(**(values | changes))


def started(of: ScheduleEntry, due_at: datetime, **changes: Any) -> tuple[Fire, Run]:
    """A run for the due time, and its line."""
    run = new_run(
        of.workflow,
        trigger=Trigger.SCHEDULE,
        schedule=of.id,
        scheduled_at=due_at,
        **changes,
    )
    return line(of, due_at, FireOutcome.FIRED, run_id=run.id), run


def firing(of: ScheduleEntry, *runs: tuple[Fire, Run], lines: tuple[Fire, ...] = (), at_most: int | None) -> Firing:
    """The schedule moves on by a minute for each due time."""
    count = len(runs) + len(lines)
    assert of.next_due is not None
    after = replace(of, next_due=of.next_due + count * MINUTE, occurrences=of.occurrences + count)
    return Firing(before=of, after=after, fires=lines, runs=tuple((*each, at_most) for each in runs))
