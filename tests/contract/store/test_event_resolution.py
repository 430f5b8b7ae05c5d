"""Event resolutions: saved as a whole, once, with the runs that they start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from contract.builders import (
    ended,
    finished,
    later,
    launched,
    new_id,
    save,
    stored_run,
    with_workflow,
)
from contract.event_builders import SKIPPED, STARTED, event_run, new_event, resolution, stored_event
from toband.domain.emitted_events import EventRun, EventState
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Trigger
from toband.ports import Resolved, RunGoneError, Store, StoreError


async def test_an_event_and_its_runs(store: Store) -> None:
    await with_workflow(store, "a", "b", "c", "d")
    event = await stored_event(store, depth=2)
    pairs = [event_run(event, "b", priority=5), event_run(event, "c", priority=5)]
    disabled = EventRun(
        workflow="a", priority=5, outcome=SKIPPED, reason=NotStarted(NotStartedReason.OTHER, "dis\0abled")
    )
    low = event_run(event, "d", priority=-100)
    resolved = await store.resolve_event(resolution(event, low, *pairs, skipped=(disabled,)))
    kept = replace(disabled, reason=NotStarted(NotStartedReason.OTHER, "dis\ufffdabled"))
    after = replace(
        event,
        state=EventState.RESOLVED,
        resolved_at=later(1),
        runs=(kept, pairs[0][0], pairs[1][0], low[0]),
    )
    made = tuple(replace(run, number=1) for _, run in (low, *pairs))
    assert resolved == Resolved(event=after, runs=made)
    assert await store.get_event(event.id) == after
    assert await store.list_events() == [after]
    for run in made:
        stored = await store.get_run(run.id)
        assert stored == run
        assert stored is not None
        assert (stored.trigger, stored.event, stored.depth) == (Trigger.EVENT, event.seen(), 3)
    # What a run knows of its event never changes, and lists and history tell it too.
    moved = await save(store, made[0], launched(made[0], "s0"))
    (told,) = await store.history(moved.id)
    (listed,) = await store.list_runs(workflow="d")
    assert told.run.event == listed.event == event.seen()
    assert told.run.depth == listed.depth == 3


async def test_one_that_starts_nothing(store: Store) -> None:
    event = await stored_event(store)
    resolved = await store.resolve_event(resolution(event, state=EventState.CUT, reason="its chain has 16 runs"))
    after = replace(event, state=EventState.CUT, reason="its chain has 16 runs", resolved_at=later(1))
    assert resolved == Resolved(event=after, runs=())
    assert await store.pending_events() == []


async def test_whoever_comes_late_saves_nothing(store: Store) -> None:
    await with_workflow(store)
    event = await stored_event(store)
    assert await store.resolve_event(resolution(event, event_run(event))) is not None
    assert await store.resolve_event(resolution(event, event_run(event))) is None
    assert await store.resolve_event(resolution(event, state=EventState.CUT)) is None
    unknown = new_event()
    assert await store.resolve_event(resolution(unknown, event_run(unknown))) is None
    assert len(await store.list_runs()) == 1


async def test_a_workflow_is_started_once(store: Store) -> None:
    """Also by an event that was to stay PENDING for the rest of them."""
    await with_workflow(store, "a", "b")
    event = await stored_event(store)
    first = event_run(event, "a")
    some = await store.resolve_event(resolution(event, first, state=EventState.PENDING))
    assert some is not None
    assert (some.event.state, some.event.resolved_at) == (EventState.PENDING, None)
    assert await store.pending_events() == [some.event]
    again = resolution(
        event,
        event_run(event, "a"),
        event_run(event, "b"),
        event_run(event, "b"),
        skipped=(EventRun(workflow="a", priority=0, outcome=SKIPPED, reason=NotStarted(NotStartedReason.DISABLED)),),
    )
    rest = await store.resolve_event(again)
    assert rest is not None
    assert [(run.workflow, run.number) for run in rest.runs] == [("b", 1)]
    assert [(row.workflow, row.run_id) for row in rest.event.runs] == [
        ("a", first[1].id),
        ("b", rest.runs[0].id),
    ]
    assert len(await store.list_runs()) == 2


async def test_a_run_that_is_active_is_in_the_way(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    active = await stored_run(store)
    event = await stored_event(store)
    blocked, free = event_run(event, priority=3), event_run(event, "other")
    resolved = await store.resolve_event(resolution(event, blocked, free, at_most=1))
    assert resolved is not None
    assert [run.workflow for run in resolved.runs] == ["other"]
    skipped, started = resolved.event.runs
    reason = NotStarted(NotStartedReason.OVERLAP, f"run {active.name} is active")
    assert skipped == replace(blocked[0], outcome=SKIPPED, reason=reason, run_id="")
    assert started == free[0]
    # Once it is over there is a place again.
    run = await save(store, active, launched(active, "s0"))
    run = await save(store, run, ended(run, "s0"))
    await save(store, run, finished(run))
    event = await stored_event(store)
    resolved = await store.resolve_event(resolution(event, event_run(event), at_most=1))
    assert resolved is not None
    assert [run.number for run in resolved.runs] == [2]


async def test_a_run_that_cannot_be_stored_takes_all_back(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    event = await stored_event(store)
    for wrong, error in (({"version": 9}, StoreError), ({"from_run": new_id()}, RunGoneError)):
        pairs = event_run(event, "other"), event_run(event, **wrong)
        with pytest.raises(error):
            await store.resolve_event(resolution(event, *pairs))
    assert await store.pending_events() == [event]
    assert await store.list_runs() == []


async def test_of_many_who_resolve_one_gets_through(stores: list[Store]) -> None:
    await with_workflow(stores[0])
    event = await stored_event(stores[0])
    results = await asyncio.gather(
        *(stores[n % 2].resolve_event(resolution(event, event_run(event))) for n in range(8))
    )
    assert sum(result is not None for result in results) == 1
    assert len(await stores[0].list_runs()) == 1


async def test_many_are_resolved_at_once(store: Store) -> None:
    """They share commits, and each has its own answer."""
    await with_workflow(store)
    answers = await store.add_events([new_event() for _ in range(40)])
    pairs = [(event, event_run(event)) for event, _ in answers]
    results = await asyncio.gather(*(store.resolve_event(resolution(event, pair)) for event, pair in pairs))
    made = [run for result in results if result is not None for run in result.runs]
    assert [run.id for run in made] == [run.id for _, (_, run) in pairs]
    assert sorted(run.number for run in made) == list(range(1, 41))
    assert all(row.outcome is STARTED for each in await store.list_events() for row in each.runs)


async def test_a_commit_that_fails_leaves_nothing(store: Store, arm: Callable[[str], None]) -> None:
    await with_workflow(store)
    event = await stored_event(store)
    arm("store.before_commit=EIO")
    with pytest.raises(StoreError):
        await store.resolve_event(resolution(event, event_run(event)))
    arm("")
    assert await store.pending_events() == [event]
    assert await store.list_runs() == []
    assert await store.resolve_event(resolution(event, event_run(event))) is not None
