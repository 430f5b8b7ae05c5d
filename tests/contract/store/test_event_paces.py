"""Bursts of events that start one run together, and starts that count for a throttle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from contract.builders import NOW, later, stored_run, with_workflow
from contract.event_builders import SKIPPED, STARTED, event_run, resolution, stored_event
from toban.definition.model.event_triggers import Pace
from toband.domain.emitted_events import Burst, Emitted, EventRun, PacedStart, pace_key
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.ports import EventResolution, Resolved, Store

QUIET = Pace(quiet=10, longest=25)
ROW = EventRun(workflow="backup", priority=5, outcome=SKIPPED)


def start(pace: Pace, key: str = "", position: int = 0) -> PacedStart:
    return PacedStart(workflow="backup", position=position, key=key, pace=pace)


async def debounce(store: Store, seconds: float, key: str = "") -> Emitted:
    event = await stored_event(store)
    decided = replace(resolution(event), at=later(seconds), debounced=((ROW, start(QUIET, key), "quick"),))
    resolved = await store.resolve_event(decided)
    assert resolved is not None
    assert resolved.runs == ()
    return resolved.event


async def row_of(store: Store, event: Emitted) -> EventRun:
    found = await store.get_event(event.id)
    assert found is not None
    (row,) = found.runs
    return row


async def test_the_last_event_of_a_burst_starts_its_run(store: Store) -> None:
    await with_workflow(store, "backup")
    assert await store.next_burst() is None
    first = await debounce(store, 0)
    waits = await row_of(store, first)
    assert (waits.outcome, waits.run_id) == (SKIPPED, "")
    assert waits.reason is not None
    assert waits.reason.reason is NotStartedReason.DEBOUNCED
    assert waits.awaits_events
    assert waits.reason.detail.startswith("waits for further events until ")
    assert await store.next_burst() == later(10)
    second = await debounce(store, 8)
    other = await debounce(store, 9, key='"other"')
    reason = NotStarted(NotStartedReason.DEBOUNCED, f"event {second.id} came later")
    assert await row_of(store, first) == replace(ROW, reason=reason, later_event=second.id)
    assert (await row_of(store, second)).awaits_events
    assert await store.due_bursts(later(17)) == []
    (burst,) = await store.due_bursts(later(18))
    assert burst == Burst(
        workflow="backup",
        position=0,
        key="",
        event_id=second.id,
        count=2,
        due_at=later(18),
        priority=5,
        scope="quick",
    )
    _, run = event_run(second)
    made = await store.end_burst(burst, run=run)
    assert made == replace(run, number=1)
    assert await row_of(store, second) == replace(ROW, outcome=STARTED, run_id=run.id)
    # Again, as after a crash: nothing.
    _, again = event_run(second)
    assert await store.end_burst(burst, run=again) is None
    assert await store.get_run(again.id) is None
    (left,) = await store.due_bursts(later(100))
    assert (left.event_id, left.key) == (other.id, '"other"')


async def test_a_burst_that_goes_on_starts_its_run_at_the_latest_time(store: Store) -> None:
    await with_workflow(store, "backup")
    for seconds in (0, 9, 18, 24):
        await debounce(store, seconds)
    assert await store.next_burst() == later(25)
    (burst,) = await store.due_bursts(later(25))
    # An event that comes before its run is stored belongs to it.
    await debounce(store, 26)
    assert await store.end_burst(burst, run=None) is None
    (burst,) = await store.due_bursts(later(26))
    assert (burst.count, burst.due_at) == (5, later(25))


async def test_a_burst_without_a_run_says_why(store: Store) -> None:
    await with_workflow(store, "backup")
    event = await debounce(store, 0)
    (burst,) = await store.due_bursts(later(10))
    active = await stored_run(store, "backup")
    _, run = event_run(event)
    assert await store.end_burst(burst, run=run, max_active=1) is None
    reason = NotStarted(NotStartedReason.OVERLAP, f"run {active.name} is active")
    assert await row_of(store, event) == replace(ROW, reason=reason)
    event = await debounce(store, 20)
    (burst,) = await store.due_bursts(later(30))
    assert await store.end_burst(burst, run=None, reason=NotStarted(NotStartedReason.DISABLED)) is None
    assert (await row_of(store, event)).reason == NotStarted(NotStartedReason.DISABLED)


async def test_an_event_of_a_burst_is_kept(store: Store) -> None:
    await with_workflow(store, "backup")
    event = await debounce(store, 0)
    await stored_event(store)
    assert await store.forget_events(NOW + timedelta(days=1), keep=1) == 0
    (burst,) = await store.due_bursts(later(10))
    await store.end_burst(burst, run=None, reason=NotStarted(NotStartedReason.DISABLED))
    assert await store.forget_events(NOW + timedelta(days=1), keep=1) == 1
    assert await store.get_event(event.id) is None


async def throttle(store: Store, seconds: float, pace: Pace, key: str = "") -> EventRun:
    event = await stored_event(store)
    row, run = event_run(event)
    decided = EventResolution(
        event_id=event.id,
        state=resolution(event).state,
        at=later(seconds),
        runs=((row, run, None),),
        throttled={"backup": start(pace, key)},
    )
    resolved = await store.resolve_event(decided)
    assert isinstance(resolved, Resolved)
    (found,) = resolved.event.runs
    assert len(resolved.runs) == (found.outcome is STARTED)
    return found


async def test_a_throttle_counts_the_runs_of_its_time(store: Store) -> None:
    await with_workflow(store, "backup")
    twice = Pace(limit=2, per=60)
    outcomes = [(await throttle(store, seconds, twice)).outcome for seconds in (0, 10, 20, 59, 60, 61, 70, 71)]
    assert outcomes == [STARTED, STARTED, SKIPPED, SKIPPED, STARTED, SKIPPED, STARTED, SKIPPED]
    slow = await throttle(store, 72, twice)
    assert slow.reason is not None
    assert slow.reason.reason is NotStartedReason.THROTTLED
    assert slow.reason.detail.startswith("no further run before ")
    assert (await throttle(store, 72, twice, key="1")).outcome is STARTED
    # A clock that was ahead blocks nothing.
    assert (await throttle(store, -1000, twice)).outcome is STARTED


def test_the_value_of_a_key() -> None:
    seen = {"payload": {"id": 7, "who": {"b": 1, "a": [2]}, "long": "x" * 1000}, "source": "step"}
    assert pace_key("event.payload.id", seen) == "7"
    assert pace_key("event.source", seen) == '"step"'
    assert pace_key("event.payload.who", seen) == '{"a": [2], "b": 1}'
    assert pace_key("event.payload.none.deeper", seen) == ""
    assert len(pace_key("event.payload.long", seen)) == 64
