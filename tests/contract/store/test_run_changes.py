"""Changes of all runs in one order, and the active runs at a position of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from contract.builders import NOW, finished, launched, save, stored_run, with_workflow
from toband.domain.run_model import Run, RunState
from toband.ports import Store
from toband.store import SqlStore


async def changes(store: Store, after: int = 0, limit: int = 100) -> list[tuple[str, int, str]]:
    found = await store.changes_after(after, limit=limit)
    return [(each.entry.run.id, each.entry.sequence, each.entry.event) for each in found]


async def active(store: Store, position: int, limit: int = 100) -> list[tuple[str, RunState, int]]:
    found: list[Run] = []
    after, more = "", True
    while more:
        page, after = await store.active_at(position, after=after, limit=limit)
        found += page
        more = bool(after)
    return [(run.id, run.state, run.sequence) for run in found]


async def test_nothing_has_changed(store: Store) -> None:
    assert await store.last_change() == 0
    assert await store.changes_after(0) == []
    assert await store.active_at(0) == ([], "")


async def test_every_creation_and_transition_has_a_position(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    one = await stored_run(store, labels={"a": "b"})
    two = await stored_run(store, "other")
    running = await save(store, one, launched(one, "s0"), "run_started")
    await save(store, two, launched(two, "s0"), "run_started")
    await save(store, running, finished(running))
    everything = [
        (one.id, 0, "created"),
        (two.id, 0, "created"),
        (one.id, 1, "run_started"),
        (two.id, 1, "run_started"),
        (one.id, 2, "attempt_ended"),
    ]
    assert await changes(store) == everything
    found = await store.changes_after(0)
    positions = [each.position for each in found]
    assert positions == sorted(set(positions))
    assert await store.last_change() == positions[-1]
    for number, position in enumerate(positions):
        assert await changes(store, position) == everything[number + 1 :]
    assert await changes(store, positions[0], limit=2) == everything[1:3]
    created, _, started, _, over = (each.entry.run for each in found)
    assert (created.state, started.state, over.state) == (RunState.PENDING, RunState.RUNNING, RunState.SUCCEEDED)
    assert created.labels == {"a": "b"}
    assert created.params == one.params
    assert created.number == 1
    assert created.steps == {}
    assert await store.history(one.id) != []
    assert [entry.sequence for entry in await store.history(one.id)] == [1, 2], "the creation is no transition"


async def test_active_runs_are_as_they_were_then(store: Store) -> None:
    await with_workflow(store)
    one, two, three = [await stored_run(store) for _ in range(3)]
    running = await save(store, one, launched(one, "s0"))
    position = await store.last_change()
    was = [(one.id, RunState.RUNNING, 1), (two.id, RunState.PENDING, 0), (three.id, RunState.PENDING, 0)]
    assert await active(store, position) == was
    assert await active(store, position, limit=1) == was
    await save(store, running, finished(running))
    await save(store, two, launched(two, "s0"))
    await stored_run(store)
    assert await active(store, position) == was[1:], "later changes come as changes"
    assert await changes(store, position) != []


async def test_positions_are_not_reused(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    running = await save(store, run, launched(run, "s0"))
    await save(store, running, finished(running))
    last = await store.last_change()
    assert await store.delete_runs([run.id]) == [run.id]
    assert await store.last_change() == last
    assert await changes(store) == []
    again = await stored_run(store)
    assert await changes(store, last) == [(again.id, 0, "created")]
    assert await store.delete_runs([run.id]) == []


async def test_runs_of_an_older_release(sql_store: SqlStore) -> None:
    """Their creation has no entry, and their changes have no position."""
    await with_workflow(sql_store)
    waiting, begun = await stored_run(sql_store), await stored_run(sql_store)
    running = await save(sql_store, begun, launched(begun, "s0"))
    with sql_store._database.writer.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("DELETE FROM run_history WHERE sequence = 0")
        connection.exec_driver_sql("UPDATE run_history SET position = NULL")
        connection.exec_driver_sql("COMMIT")
    assert await sql_store.last_change() == 0
    assert await changes(sql_store) == []
    was = [(waiting.id, RunState.PENDING, 0), (begun.id, RunState.RUNNING, 1)]
    assert await active(sql_store, 0) == was
    await save(sql_store, running, finished(running))
    assert await changes(sql_store) == [(begun.id, 2, "attempt_ended")]


async def test_concurrent_changes_are_read_once_and_in_order(store: Store) -> None:
    await with_workflow(store)
    runs = [await stored_run(store) for _ in range(10)]
    seen: list[tuple[str, int]] = []
    over = asyncio.Event()

    async def move(run: Run) -> None:
        for _ in range(20):
            run = await save(
                store, run, replace(run, sequence=run.sequence + 1, state=RunState.RUNNING, started_at=NOW)
            )

    async def watch() -> None:
        position = 0
        while True:
            last = over.is_set()
            found = await store.changes_after(position, limit=7)
            seen.extend((each.entry.run.id, each.entry.sequence) for each in found)
            position = found[-1].position if found else position
            if last and not found:
                return

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*map(move, runs))
    over.set()
    await watching
    assert sorted(seen) == [(run.id, sequence) for run in runs for sequence in range(21)]
    for run in runs:
        assert [sequence for run_id, sequence in seen if run_id == run.id] == list(range(21))
