"""Large parameters, events and items: they come back whole, and are written once, however often a run changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from contract.builders import ended, finished, launched, new_run, save, stored_run, with_workflow
from contract.store.test_instances import fanned_out
from toband.domain.run_model import Run, RunState
from toband.ports import Store
from toband.store import SqlStore
from toband.store.sql.tables import run_values, step_items

LARGE = "日本 \n" * 150_000
EVENT = {"id": "e", "type": "PUSHED", "payload": {"diff": "x" * 60_000}, "depth": 0}


async def large_run(store: Store, **changes: Any) -> Run:
    await with_workflow(store)
    fresh = new_run(params={"text": LARGE, "n": 1}, event=EVENT, **changes)
    run, _ = await store.create_run(fresh, max_active=None)
    return await save(store, run, fanned_out(run, "s1", [LARGE, 7, {"also": LARGE}]))


async def test_they_come_back_whole(store: Store) -> None:
    run = await large_run(store)
    assert await store.get_run(run.id) == run
    assert await store.current_run("backup") == replace(run, steps={})
    run = await save(store, run, launched(run, "s1[0]"))
    run = await save(store, run, ended(run, "s1[0]"))
    stored = await store.get_run(run.id)
    assert stored == run
    assert stored.steps["s1[0]"].item == LARGE
    assert stored.event == EVENT
    page = await store.get_run_page(run.id, limit=2)
    assert page is not None
    assert page.params == run.params


async def test_lists_and_changes_only_say_how_large_they_are(store: Store) -> None:
    run = await large_run(store)
    small = await stored_run(store)
    found = {each.id: each for each in await store.list_runs(workflow="backup")}
    assert (found[small.id].params, found[small.id].params_bytes) == (small.params, 0)
    listed = found[run.id]
    assert listed.params == {}
    assert listed.params_bytes > len(LARGE)
    assert listed.event is not None
    assert (listed.event["type"], listed.event["payload"]) == ("PUSHED", {})
    (entry,) = await store.history(run.id)
    assert entry.run.params_bytes == listed.params_bytes
    sizes = [(step.item, step.item_bytes > len(LARGE)) for step in entry.run.steps.values()]
    assert sizes == [(None, False), (None, True), (7, False), (None, True)]


async def test_a_run_that_takes_over_a_large_item_has_it(store: Store) -> None:
    source = await large_run(store)
    fresh = replace(new_run(params={}), steps=source.steps)
    run, _ = await store.create_run(fresh, max_active=None)
    stored = await store.get_run(run.id)
    assert stored is not None
    assert stored.steps["s1[2]"].item == {"also": LARGE}


async def test_they_go_with_their_run(sql_store: SqlStore) -> None:
    store = sql_store
    run = await large_run(store)
    await stored_run(store)  # the last of a workflow stays
    run = await save(store, run, finished(run, RunState.CANCELLED))
    assert await store.delete_runs([run.id]) == [run.id]

    def left(connection: Any) -> list[int]:
        tables = (run_values, step_items)
        return [connection.execute(select(func.count()).select_from(t)).scalar() for t in tables]

    assert await store._read(left) == [0, 0]


class TestBytesWritten:
    """Of SQLite, where a row that changes is written whole."""

    @pytest.fixture
    def kind(self) -> str:
        return "sqlite"

    @pytest.mark.parametrize("size", [10, 900_000])
    async def test_a_change_writes_as_much_whatever_the_parameters_and_items(
        self, sql_store: SqlStore, empty_url: str, size: int
    ) -> None:
        """900 KiB of parameters were written again with every change, which left 25 commits a second for all runs."""
        store = sql_store
        await with_workflow(store)
        fresh = new_run(params={"text": "x" * size}, event={**EVENT, "payload": "x" * (size // 15)})
        run, _ = await store.create_run(fresh, max_active=None)
        run = await save(store, run, fanned_out(run, "s1", ["x" * size, 7]))
        await store.checkpoint()
        # The log begins anew with the next commit: what is in it then was written by these changes.
        for step in ("s1[0]", "s1[1]", "s0"):
            run = await save(store, run, launched(run, step))
            run = await save(store, run, ended(run, step))
        wal = Path(f"{empty_url.removeprefix('sqlite:///')}-wal")
        assert 0 < written_ahead(wal) < 6 * 16 * 4096


def written_ahead(wal: Path) -> int:
    """Bytes of the frames of the newest generation."""
    data = wal.read_bytes()
    salt, size = data[16:24], int.from_bytes(data[8:12], "big") + 24
    frames = 0
    while data[32 + frames * size + 8 : 32 + frames * size + 16] == salt:
        frames += 1
    return frames * size
