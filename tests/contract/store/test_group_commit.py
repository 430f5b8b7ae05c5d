"""Behind the port: operations share commits and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from contract.builders import (
    NOW,
    change,
    launched,
    new_run,
    save,
    stored_run,
    text,
    touched,
    with_workflow,
)
from toband import failpoints
from toband.domain.run_model import Run
from toband.ports import (
    ActiveRunError,
    StoreError,
    UpdateResult,
    WorkflowExistsError,
)
from toband.store import SqlStore
from toband.store.sql.writer import MAX_BATCH, WriteSession

DEADLINE = 60.0
Arm = Callable[[str], None]


@contextmanager
def counted_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    hits: list[str] = []
    real = failpoints.hit

    def hit(name: str) -> None:
        if name == "store.before_commit":
            hits.append(name)
        real(name)

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", hit)
        yield hits


async def together(store: SqlStore, *calls: Awaitable[Any]) -> list[Any]:
    """All of the calls in one batch: the writer is held until they are queued."""
    held, go = threading.Event(), threading.Event()

    def hold(_session: WriteSession) -> None:
        held.set()
        assert go.wait(DEADLINE)

    holding = asyncio.ensure_future(store._write.do(hold))
    assert await asyncio.to_thread(held.wait, DEADLINE)
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), DEADLINE)
    await holding
    return results


async def prepared(store: SqlStore, count: int) -> list[Run]:
    await with_workflow(store)
    return [await stored_run(store) for _ in range(count)]


async def test_what_queued_up_shares_one_commit(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = await prepared(sql_store, 30)
    with counted_commits(monkeypatch) as commits:
        results = await together(sql_store, *(sql_store.save(change(run, launched(run, "s0"))) for run in runs))
    assert results == [UpdateResult.UPDATED] * 30
    assert len(commits) == 2  # the one that held the writer, and ours


async def test_a_batch_is_bounded(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = await prepared(sql_store, 1)
    stale = change(replace(run, sequence=5), touched(run, {}, sequence=6))
    with counted_commits(monkeypatch) as commits:
        results = await together(sql_store, *(sql_store.save(stale) for _ in range(2 * MAX_BATCH + 1)))
    assert set(results) == {UpdateResult.WRONG_STATE}
    assert len(commits) == 4


async def test_one_alone_is_committed_at_once(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = await prepared(sql_store, 1)
    with counted_commits(monkeypatch) as commits:
        for _ in range(5):
            run = await save(sql_store, run, touched(run, {}))
    assert len(commits) == 5


async def test_one_that_fails_does_not_hurt_the_others(sql_store: SqlStore) -> None:
    good, confused, other = await prepared(sql_store, 3)
    confused = await save(sql_store, confused, launched(confused, "s0"))
    attempt = confused.steps["s0"].attempt
    assert attempt is not None
    step = replace(confused.steps["s0"], attempt=replace(attempt, token="wrong"))
    mistaken = replace(confused, steps={**confused.steps, "s0": step})
    late = replace(step, attempt=replace(attempt, token="wrong", pid=1))

    def broken(session: WriteSession) -> None:
        session.connection.exec_driver_sql("UPDATE runs SET error = 'never to be seen'")
        raise ZeroDivisionError

    def nonsense(session: WriteSession) -> None:
        session.connection.exec_driver_sql("SELECT * FROM nowhere")

    results = await together(
        sql_store,
        sql_store.save(change(good, launched(good, "s0"))),
        # Refused by its token, when the row of the run is written already.
        sql_store.save(change(mistaken, touched(mistaken, {"s0": late}, error="half written"))),
        sql_store.save(change(good, launched(good, "s1"))),
        sql_store.create_workflow(text(), at=NOW),
        sql_store.create_run(new_run(), max_active=1),
        sql_store.create_run(new_run(version=9), max_active=None),
        sql_store._write.do(broken),
        sql_store._write.do(nonsense),
        sql_store.save(change(other, launched(other, "s0"))),
    )
    assert results[0] is UpdateResult.UPDATED
    assert results[1] is UpdateResult.WRONG_STATE
    assert results[2] is UpdateResult.WRONG_STATE
    kinds = [WorkflowExistsError, ActiveRunError, StoreError, ZeroDivisionError, StoreError]
    assert [type(result) for result in results[3:8]] == kinds
    assert results[8] is UpdateResult.UPDATED

    for run in (good, other):
        stored = await sql_store.get_run(run.id)
        assert stored is not None
        assert (stored.sequence, stored.error) == (1, "")
    assert await sql_store.get_run(confused.id) == confused
    assert len(await sql_store.list_runs()) == 3


async def test_a_batch_in_which_all_fail(sql_store: SqlStore) -> None:
    runs = await prepared(sql_store, 1)
    results = await together(sql_store, *(sql_store.create_workflow(text(), at=NOW) for _ in range(3)))
    assert [type(result) for result in results] == [WorkflowExistsError] * 3
    await save(sql_store, runs[0], launched(runs[0], "s0"))


async def nothing_is_visible(store: SqlStore, runs: list[Run]) -> None:
    for run in runs:
        assert await store.get_run(run.id) == run
        assert await store.history(run.id) == []
    assert await store.list_attempts() == []


async def fails_whole(store: SqlStore, runs: list[Run]) -> list[Any]:
    results = await together(store, *(store.save(change(run, launched(run, "s0"))) for run in runs))
    assert [type(result) for result in results] == [StoreError] * len(runs)
    # One error each: they carry tracebacks.
    assert len({id(result) for result in results}) == len(runs)
    return results


async def works_again(store: SqlStore, runs: list[Run]) -> None:
    for run in runs:
        after = await save(store, run, launched(run, "s0"))
        assert await store.get_run(run.id) == after


async def test_a_failing_commit_fails_all_of_its_batch(sql_store: SqlStore, arm: Arm) -> None:
    runs = await prepared(sql_store, 5)
    arm("store.before_commit=EIO@2")  # the first is that of the one that holds the writer
    results = await fails_whole(sql_store, runs)
    assert "cannot write to the database" in str(results[0])
    await nothing_is_visible(sql_store, runs)
    await works_again(sql_store, runs)


async def test_a_failing_commit_of_one_alone(sql_store: SqlStore, arm: Arm) -> None:
    (run,) = await prepared(sql_store, 1)
    arm("store.before_commit=ENOSPC@1")
    with pytest.raises(StoreError, match="No space left"):
        await sql_store.save(change(run, launched(run, "s0")))
    await nothing_is_visible(sql_store, [run])
    await works_again(sql_store, [run])


async def test_a_commit_that_the_database_refuses(
    sql_store: SqlStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COMMIT that really fails: SQLite is left with a dangling reference, PostgreSQL loses the connection."""
    runs = await prepared(sql_store, 3)
    real = WriteSession.commit
    broken: list[WriteSession] = []

    def commit(session: WriteSession) -> None:
        if len(broken) < 2:
            broken.append(session)
            # The first is that of the one that holds the writer.
            if len(broken) == 2:
                spoil(session)
        real(session)

    def spoil(session: WriteSession) -> None:
        if kind == "sqlite":
            session.connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            session.connection.exec_driver_sql("INSERT INTO run_history VALUES ('nowhere', 1, 1, 'x', '{}', 1)")
        else:
            pid = session.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            with sql_store._database.writer.connect() as other:
                other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 60000)")

    monkeypatch.setattr(WriteSession, "commit", commit)
    await fails_whole(sql_store, runs)
    assert broken[0] is broken[1]
    await nothing_is_visible(sql_store, runs)
    await works_again(sql_store, runs)
    assert sql_store._writer is not None
    assert sql_store._writer._session is not broken[0]


async def test_a_connection_that_broke_while_idle_is_replaced(
    sql_store: SqlStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await prepared(sql_store, 2)
    if kind == "sqlite":
        assert sql_store._writer is not None
        monkeypatch.setattr(sql_store._writer._session, "_begin", "BEGIN nonsense")
    else:
        pid = await sql_store._write.do(
            lambda own: own.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        )
        with sql_store._database.writer.connect() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 60000)")
    await works_again(sql_store, runs)


async def test_a_connection_that_breaks_within_an_operation(sql_store: SqlStore, kind: str) -> None:
    runs = await prepared(sql_store, 2)

    def suicide(session: WriteSession) -> None:
        if kind == "sqlite":
            session.connection.exec_driver_sql("ROLLBACK")
            raise ZeroDivisionError
        session.connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid(), 5000)")

    results = await together(
        sql_store,
        sql_store.save(change(runs[0], launched(runs[0], "s0"))),
        sql_store._write.do(suicide),
        sql_store.save(change(runs[1], launched(runs[1], "s0"))),
    )
    assert [type(result) for result in results] == [StoreError] * 3
    await nothing_is_visible(sql_store, runs)
    with pytest.raises(StoreError):
        await sql_store._write.do(suicide)
    await works_again(sql_store, runs)


async def test_an_answer_comes_only_behind_the_commit(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = await prepared(sql_store, 1)
    committing, go = threading.Event(), threading.Event()
    real = WriteSession.commit

    def commit(session: WriteSession) -> None:
        committing.set()
        assert go.wait(DEADLINE)
        real(session)

    monkeypatch.setattr(WriteSession, "commit", commit)
    saving = asyncio.ensure_future(sql_store.save(change(run, launched(run, "s0"))))
    assert await asyncio.to_thread(committing.wait, DEADLINE)
    # Readers go on beside it, and see what was.
    assert await sql_store.get_run(run.id) == run
    assert not saving.done()
    go.set()
    assert await asyncio.wait_for(saving, DEADLINE) is UpdateResult.UPDATED


async def test_whoever_gives_up_takes_nothing_back(sql_store: SqlStore) -> None:
    (run,) = await prepared(sql_store, 1)
    saving = asyncio.ensure_future(sql_store.save(change(run, launched(run, "s0"))))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    # Operations are done in order: behind this one, that one is done.
    assert await sql_store.save(change(run, launched(run, "s1"))) is UpdateResult.WRONG_STATE
    stored = await sql_store.get_run(run.id)
    assert stored is not None
    assert stored.sequence == 1
