"""Inspection of the database: its integrity, whether it takes writes, and its error messages."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from contract.builders import new_run, stored_run, text, with_workflow
from contract.conftest import NewStore
from toband import failpoints
from toband.domain.run_model import RunState
from toband.ports import Store, StoreBusyError, StoreError, StoreFullError
from toband.store import SqlStore
from toband.store.sql import database, schema_revision


class Watcher:
    """Records its calls; has so many pieces of ballast to give, of which the last one is enough."""

    def __init__(self, ballast: int = 0, enough: bool = True) -> None:
        self.ballast = ballast
        self.enough = enough
        self.told: list[str] = []

    def make_room(self) -> bool:
        self.told.append("make_room")
        self.ballast -= 1
        if self.ballast == 0 and self.enough:
            failpoints.arm("")
        return self.ballast >= 0

    def failed(self, error: StoreError) -> None:
        self.told.append(type(error).__name__)

    def worked(self) -> None:
        self.told.append("worked")


async def test_a_whole_database_has_no_problems(store: Store) -> None:
    await with_workflow(store)
    for _ in range(2):
        await stored_run(store)
    found = await store.inspect()
    assert found.problems == []
    assert found.schema == found.expected_schema == schema_revision.HEAD
    server, *counts = found.facts
    assert server.startswith(("SQLite ", "PostgreSQL "))
    assert counts == ["1 workflow", "2 runs"]


async def test_a_write_that_changes_nothing_works_and_changes_nothing(store: Store) -> None:
    await store.try_write()
    await store.checkpoint()
    await store.try_write()
    assert (await store.inspect()).schema == schema_revision.HEAD


async def test_states_of_those_runs_that_there_are(store: Store) -> None:
    await with_workflow(store)
    runs = [await stored_run(store) for _ in range(3)]
    asked = [run.id for run in runs[:2]] + ["nobody", "01a1e246-b241-72ef-a5be-ffffffffffff"]
    assert await store.known_runs(asked) == {run.id: RunState.PENDING for run in runs[:2]}
    assert await store.known_runs([]) == {}
    many = {run.id for run in runs} | {f"unknown-{number}" for number in range(1200)}
    assert set(await store.known_runs(many)) == {run.id for run in runs}


# -- a disk that is full


async def watched(url: str, watcher: Watcher) -> SqlStore:
    store = SqlStore(url)
    store.watch(watcher)
    await store.open()
    return store


async def test_a_full_disk_has_its_own_error_and_stored_nothing(store: Store, arm: Callable[[str], None]) -> None:
    await with_workflow(store)
    arm("store.before_commit=ENOSPC")
    with pytest.raises(StoreFullError, match="No space left"):
        await store.create_run(new_run(), max_active=None)
    arm("")
    assert await store.active_run_ids() == []


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_ballast_is_thrown_off_and_the_same_write_tried_again(url: str, arm: Callable[[str], None]) -> None:
    watcher = Watcher(ballast=3)
    store = await watched(url, watcher)
    try:
        arm("store.before_commit=ENOSPC@1")
        await store.create_workflow(text(), at=new_run().created_at)
        assert await store.get_workflow("backup") is not None
        assert watcher.told == [], "there was room in the log once it was brought in"
        arm("store.before_commit=ENOSPC")
        await store.try_write()
        assert watcher.told == ["make_room"] * 3, "nobody saw it fail"
        watcher.told.clear()
        watcher.ballast, watcher.enough = 1, False
        arm("store.before_commit=ENOSPC")
        with pytest.raises(StoreFullError):
            await store.try_write()
        arm("")
        await store.try_write()
        assert watcher.told == ["make_room", "make_room", "StoreFullError", "worked"]
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_of_many_writes_each_is_made_once(url: str, arm: Callable[[str], None]) -> None:
    store = await watched(url, Watcher(ballast=2))
    try:
        await with_workflow(store)
        arm("store.before_commit=ENOSPC")
        runs = [new_run() for _ in range(20)]
        made = await asyncio.gather(*(store.create_run(run, max_active=None) for run in runs))
        assert {run.id for run, new in made if new} == {run.id for run in runs}
        assert len(await store.active_run_ids()) == 20
        assert sorted(run.number for run, _ in made) == list(range(1, 21))
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_sqlite_itself_says_that_it_is_full(url: str, arm: Callable[[str], None]) -> None:
    store = await watched(url, watcher := Watcher())
    try:
        await with_workflow(store)
        # The next connection cannot make the file larger; the one that there is goes with a failure.
        event.listen(
            store._database.writer,
            "connect",
            lambda connection, _: connection.execute("PRAGMA max_page_count = 1"),
        )
        arm("store.before_commit=EIO@1")
        with pytest.raises(StoreError, match="Input/output"):
            await store.try_write()
        watcher.told.clear()
        big = text("big", source="x" * 1_000_000)
        with pytest.raises(StoreFullError, match="full"):
            await store.create_workflow(big, at=new_run().created_at)
        assert watcher.told == ["make_room", "StoreFullError"]
        assert await store.get_workflow("big") is None
    finally:
        await store.close()


async def test_failures_are_told_and_their_end(url: str, arm: Callable[[str], None]) -> None:
    watcher = Watcher()
    store = await watched(url, watcher)
    try:
        await with_workflow(store)
        assert watcher.told == []
        arm("store.before_commit=EIO@1")
        with pytest.raises(StoreError):
            await store.try_write()
        await store.try_write()
        await store.try_write()
        assert watcher.told == ["StoreError", "worked"]
    finally:
        await store.close()


# -- behind the port: SQLite


def sqlite_path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_lock_of_somebody_else_is_waited_for_and_then_told(
    url: str, new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 50)
    store = await new_store()
    await with_workflow(store)
    with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="another process has been writing"):
            await store.try_write()
        assert (await store.inspect()).problems == [], "who reads is not in the way"
        foreign.execute("ROLLBACK")
    await store.try_write()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_damage_is_found(url: str) -> None:
    store = SqlStore(url)
    await store.open()
    await with_workflow(store)
    for _ in range(200):
        await stored_run(store)
    await store.close()
    path = sqlite_path(url)
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'step_runs'"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * size + 100)
        file.write(os.urandom(size - 100))
    store = SqlStore(url)
    await store.open()
    try:
        found = await store.inspect()
        assert found.problems
        assert found.facts == []
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_a_reference_into_nothing_is_found(url: str, new_store: NewStore) -> None:
    store = await new_store()
    await with_workflow(store)
    run = await stored_run(store)
    with closing(sqlite3.connect(sqlite_path(url))) as foreign, foreign:
        foreign.execute("PRAGMA foreign_keys = OFF")
        foreign.execute("DELETE FROM runs WHERE id = ?", (run.id,))
    found = await store.inspect()
    assert found.problems
    assert "refers to a row of runs that is not there" in found.problems[0]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_what_was_written_ahead_is_counted(url: str, new_store: NewStore) -> None:
    store = await new_store()
    await with_workflow(store)
    assert (await store.inspect()).ahead_bytes > 0
