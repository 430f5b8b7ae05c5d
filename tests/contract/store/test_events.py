"""Events: stored in order, once per dedupe key, read in pages, and forgotten in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from contract.builders import (
    NOW,
    change,
    later,
    launched,
    request,
    save,
    stored_run,
    with_workflow,
)
from contract.conftest import NewStore
from contract.event_builders import event_run, new_event, resolution, stored_event
from contract.scheduled import MINUTE, MINUTELY, firing, line, reminder
from toband.domain.emitted_events import Emitted, EventSource, EventState
from toband.domain.schedule_model import FireOutcome
from toband.ports import (
    Counts,
    Fired,
    Firing,
    RequestReusedError,
    Store,
    StoreError,
    UpdateResult,
)
from toband.store import SqlStore
from toband.store.rows import events
from toband.store.sql.tables import requests


def places(found: Sequence[Emitted]) -> list[int]:
    return [event.sequence for event in found]


FULL: dict[str, Any] = {
    "source": EventSource.STEP,
    "caller": "uid:7",
    "source_run": "run-1",
    "source_step": "copy",
    "depth": 15,
    "dedupe_key": "k",
    "workflow": "backup",
    "params": {"target": ["tape", None, 1.5]},
    "schedule": "s-1",
    "scheduled_at": later(-5),
    "at": later(-3),
}


# -- adding


async def test_all_of_an_event_comes_back(store: Store) -> None:
    assert await store.last_event() == 0
    assert await store.get_event("nope") is None
    full, plain = new_event("A", **FULL), new_event("B")
    stored = [replace(full, sequence=1), replace(plain, sequence=2)]
    assert await store.add_events([full, plain]) == [(event, True) for event in stored]
    assert [await store.get_event(event.id) for event in stored] == stored
    assert await store.last_event() == 2
    assert await store.pending_events() == stored
    assert await store.counts() == Counts(workflows=0, active_runs=0, pending_events=2)
    assert "2 events" in (await store.inspect()).facts
    assert await store.add_events([]) == []


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    payload=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
)
async def test_any_payload_comes_back(store: Store, payload: Any) -> None:
    event = await stored_event(store, payload=payload)
    assert await store.get_event(event.id) == event


async def test_whatever_a_caller_is_called(store: Store) -> None:
    event = await stored_event(store, caller="a\0b")
    assert (await store.list_events())[0] == replace(event, caller="a\ufffdb")


async def test_a_dedupe_key_stands_for_one_event_of_its_type(store: Store) -> None:
    await with_workflow(store)
    first = await stored_event(store, "A", dedupe_key="k", payload=1)
    assert await store.add_events([new_event("A", dedupe_key="k", payload=2)]) == [(first, False)]
    # In other types and without one there is no such thing.
    for other in (new_event("B", dedupe_key="k"), new_event("A"), new_event("A")):
        ((_, new),) = await store.add_events([other])
        assert new
    # The answer tells what became of it.
    made = await store.resolve_event(resolution(first, event_run(first)))
    assert made is not None
    assert len(made.event.runs) == 1
    assert await store.add_events([new_event("A", dedupe_key="k")]) == [(made.event, False)]
    assert await store.last_event() == 4


async def test_two_with_the_same_key_at_once(store: Store) -> None:
    twins = [new_event("A", dedupe_key="k", payload=place) for place in range(2)]
    answers = await store.add_events([*twins, new_event("B")])
    first = replace(twins[0], sequence=1)
    assert answers[:2] == [(first, True), (first, False)]
    assert places([event for event, _ in answers]) == [1, 1, 2]


async def test_a_repeated_request_is_the_same_event(store: Store) -> None:
    first = new_event("A", dedupe_key="k")
    stored = replace(first, sequence=1)
    assert await store.add_events([first], request=request()) == [(stored, True)]
    # It is as new to whoever asks again as it was to whoever asked.
    assert await store.add_events([new_event("B")], request=request()) == [(stored, True)]
    # What was answered because of a dedupe key is remembered too, and told as it is now.
    again = request("r-2")
    assert await store.add_events([new_event("A", dedupe_key="k")], request=again) == [(stored, False)]
    done = await store.resolve_event(resolution(stored))
    assert done is not None
    assert await store.add_events([new_event("A")], request=again) == [(done.event, False)]
    with pytest.raises(RequestReusedError):
        await store.add_events([new_event("A")], request=request(digest="other"))
    with pytest.raises(ValueError, match="for one request"):
        await store.add_events([new_event("A"), new_event("B")], request=request("r-3"))
    assert await store.last_event() == 1


async def test_many_add_at_once(stores: list[Store]) -> None:
    """However many write: each sequence is given once, and none is left out."""
    answers = await asyncio.gather(*(stores[n % 2].add_events([new_event("A"), new_event("B")]) for n in range(30)))
    stored = [event for answer in answers for event, new in answer if new]
    assert sorted(places(stored)) == list(range(1, 61))
    # Those that were added together stand together.
    assert all(second.sequence == first.sequence + 1 for (first, _), (second, _) in answers)
    assert await stores[0].list_events(limit=100) == sorted(stored, key=lambda event: -event.sequence)


async def test_of_many_with_the_same_key_one_is_stored(stores: list[Store]) -> None:
    answers = await asyncio.gather(*(stores[n % 2].add_events([new_event("A", dedupe_key="k")]) for n in range(8)))
    assert sum(new for ((_, new),) in answers) == 1
    assert len({event.id for ((event, _),) in answers}) == 1
    assert await stores[1].last_event() == 1


async def test_a_commit_that_fails_leaves_nothing(store: Store, arm: Callable[[str], None]) -> None:
    arm("store.before_commit=EIO")
    with pytest.raises(StoreError):
        await store.add_events([new_event()])
    arm("")
    assert await store.last_event() == 0
    assert (await stored_event(store)).sequence == 1


async def test_events_are_there_after_a_restart(new_store: NewStore) -> None:
    store = await new_store()
    event = await stored_event(store)
    await store.close()
    again = await new_store()
    assert await again.pending_events() == [event]
    assert (await stored_event(again)).sequence == 2


# -- with what they tell of


async def test_events_of_a_transition(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    after = launched(run, "s0")
    told = (new_event("A"), new_event("B"))
    what = replace(change(run, after), events=told)
    assert await store.save(what) is UpdateResult.UPDATED
    stored = [replace(event, sequence=place) for place, event in enumerate(told, 1)]
    assert await store.pending_events() == stored
    # Whoever comes late tells nothing.
    late = replace(what, events=(new_event("C"),))
    assert await store.save(late) is UpdateResult.WRONG_STATE
    await save(store, after, replace(after, sequence=after.sequence + 1))
    assert await store.pending_events() == stored


async def test_the_event_of_a_due_time(store: Store) -> None:
    due, _ = await store.create_schedule(reminder("ticket", spec=MINUTELY))
    assert due.next_due is not None
    event = new_event("SCHEDULE_TRIGGERED", schedule=due.id, scheduled_at=due.next_due)
    told = line(due, due.next_due, FireOutcome.FIRED, event_id=event.id)
    after = replace(due, next_due=due.next_due + MINUTE, occurrences=1)
    what = Firing(before=due, after=after, events=((told, event),))
    assert await store.fire(what) == Fired(runs=())
    assert await store.fires() == [told]
    assert await store.pending_events() == [replace(event, sequence=1)]
    assert await store.get_schedule(due.id) == after
    assert await store.fire(what) is None
    # A due time that has a line makes no second event.
    again = Firing(before=after, after=replace(after, occurrences=2), events=((told, new_event()),))
    assert await store.fire(again) == Fired(runs=(), repeated=(told,))
    assert await store.last_event() == 1
    other = line(reminder("other"), due.next_due, FireOutcome.FIRED)
    with pytest.raises(ValueError, match="cannot fire"):
        await store.fire(replace(firing(due, at_most=None), events=((other, new_event()),)))


# -- reading


async def test_pages(store: Store) -> None:
    types = "ABCABCABCA"
    answers = await store.add_events([new_event(name) for name in types])
    stored = [event for event, _ in answers]
    newest = stored[::-1]
    assert await store.list_events() == newest
    assert await store.list_events(limit=3) == newest[:3]
    assert await store.list_events(before=8, limit=3) == newest[3:6]
    assert await store.list_events(before=1) == []
    assert places(await store.list_events(types=["A"])) == [10, 7, 4, 1]
    assert places(await store.list_events(types=["C", "A", "C"], before=9, limit=4)) == [7, 6, 4, 3]
    assert await store.list_events(types=["nope"]) == []
    assert await store.events_after(0, up_to=100) == stored
    assert places(await store.events_after(2, up_to=5)) == [3, 4, 5]
    assert places(await store.events_after(2, up_to=9, limit=2)) == [3, 4]
    assert places(await store.events_after(2, up_to=9, types=["B"])) == [5, 8]
    assert places(await store.events_after(1, up_to=9, types=["B", "A"], limit=3)) == [2, 4, 5]
    assert await store.events_after(9, up_to=3) == []


async def test_pending_ones_are_walked(store: Store) -> None:
    answers = await store.add_events([new_event() for _ in range(6)])
    stored = [event for event, _ in answers]
    await store.resolve_event(resolution(stored[1]))
    await store.resolve_event(resolution(stored[3], state=EventState.CUT, reason="too deep"))
    assert places(await store.pending_events()) == [1, 3, 5, 6]
    assert places(await store.pending_events(after=1, limit=2)) == [3, 5]
    assert await store.pending_events(after=6) == []
    assert (await store.counts()).pending_events == 4


async def test_a_long_list_has_all_of_its_runs(store: Store) -> None:
    """More events than one statement asks for the runs of."""
    await with_workflow(store)
    answers = await store.add_events([new_event() for _ in range(1100)])
    stored = [event for event, _ in answers]
    for place in (0, 600, 1099):
        event = stored[place]
        made = await store.resolve_event(resolution(event, event_run(event)))
        assert made is not None
        stored[place] = made.event
    found = await store.list_events(limit=2000)
    assert found == stored[::-1]
    assert sum(len(event.runs) for event in found) == 3
    walked: list[Emitted] = []
    while page := await store.events_after(walked[-1].sequence if walked else 0, up_to=1100):
        walked += page
    assert walked == stored


# -- forgetting


async def aged(store: Store, *ages: float, resolved: bool = True) -> list[Emitted]:
    """Events of so many seconds ago, in this order."""
    answers = await store.add_events([new_event(at=later(-age)) for age in ages])
    stored = [event for event, _ in answers]
    for event in stored if resolved else ():
        assert await store.resolve_event(resolution(event)) is not None
    return stored


async def left(store: Store) -> list[int]:
    return places(await store.events_after(0, up_to=1 << 60, limit=10_000))


async def test_old_ones_are_forgotten_with_what_they_started(store: Store) -> None:
    await with_workflow(store)
    event = await stored_event(store, at=later(-100), dedupe_key="k")
    assert await store.resolve_event(resolution(event, event_run(event))) is not None
    await aged(store, 50, 60, 10)
    assert await store.forget_events(later(-50), 100) == 2
    assert await left(store) == [2, 4]
    assert await store.get_event(event.id) is None
    # Its key is free again, and the run goes its own way.
    assert (await stored_event(store, dedupe_key="k")).sequence == 5
    assert len(await store.list_runs()) == 1


async def test_too_many_are_forgotten(store: Store) -> None:
    await aged(store, *[10] * 6)
    assert await store.forget_events(later(-50), 6) == 0
    assert await store.forget_events(later(-50), 4) == 2
    assert await left(store) == [3, 4, 5, 6]


async def test_neither_pending_ones_nor_the_last(store: Store) -> None:
    await aged(store, 90, 90, resolved=False)
    await aged(store, 90, 90)
    assert await store.forget_events(NOW, 0) == 1
    assert await left(store) == [1, 2, 4]
    assert await store.forget_events(NOW, 0) == 0
    assert (await stored_event(store)).sequence == 5


async def test_what_a_request_was_answered_with_stays(store: Store) -> None:
    """As long as the request is remembered."""
    ((first, _),) = await store.add_events([new_event(at=later(-90))], request=request("r-1"))
    old = await stored_event(store, "A", at=later(-90), dedupe_key="k")
    ((same, new),) = await store.add_events([new_event("A", dedupe_key="k", at=later(-30))], request=request("r-2"))
    assert (same, new) == (old, False)
    for event in (first, old):
        assert await store.resolve_event(resolution(event)) is not None
    await aged(store, 90, 1)
    assert await store.forget_events(later(-50), 1) == 1
    assert await left(store) == [1, 2, 4]
    ((again, new),) = await store.add_events([new_event()], request=request("r-1"))
    assert (again.id, new) == (first.id, True)
    await store.forget_requests(later(-40))
    assert await store.forget_events(later(-50), 10) == 1
    assert await left(store) == [2, 4]
    await store.forget_requests(NOW)
    assert await store.forget_events(later(-99), 1) == 1
    assert await left(store) == [4]


async def test_a_request_that_an_older_daemon_answered(sql_store: SqlStore) -> None:
    """It remembered the event, and not whether it was new: as a rule it was."""
    ((event, _),) = await sql_store.add_events([new_event()], request=request())
    as_it_was = update(requests).values(answer=event.id)
    await sql_store._write.do(lambda session: session.connection.execute(as_it_was))
    assert await sql_store.add_events([new_event()], request=request()) == [(event, True)]


async def test_forgetting_much_takes_several_transactions(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[int] = []
    remove = events.SqlEvents._remove_events

    async def counted(store: events.SqlEvents, ids: Sequence[str]) -> int:
        removed.append(len(ids))
        return await remove(store, ids)

    monkeypatch.setattr(events.SqlEvents, "_remove_events", counted)
    count = 2 * events.FORGET_AT_ONCE + 7
    # Cut as they are stored: resolving so many one by one takes its time.
    cut = [new_event(state=EventState.CUT) for _ in range(count)]
    await sql_store.add_events(cut)
    assert await sql_store.forget_events(later(-1), 2) == count - 2
    assert removed == [events.FORGET_AT_ONCE] * 2 + [5]
    await sql_store.add_events([new_event(state=EventState.CUT) for _ in range(count)])
    assert await sql_store.forget_events(later(1), count) == count + 1
    assert await left(sql_store) == [2 * count]
