"""Database ownership: one daemon owns it, others are refused, and a replaced daemon writes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text as sql

from contract.builders import NOW, ended, finished, launched, save, stored_run, text, with_workflow
from toband.domain.run_model import Run
from toband.ports import DatabaseOwner, Store, StoreError, StoreHeldError, StoreTakenOverError
from toband.store import SqlStore
from toband.store.sql import schema_revision
from toband.store.sql.database import database

FIRST = DatabaseOwner(installation="i-1", machine="m-1", host="alpha", pid=17, state_dir="/srv/a", since=NOW)
SECOND = replace(FIRST, installation="i-2", machine="m-2", host="beta", pid=18, state_dir="/srv/b")

Open = Callable[..., Awaitable[SqlStore]]


@pytest.fixture
async def open_as(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens the database as one daemon or another. They wait for each other however slow the disk is."""
    monkeypatch.setattr("toband.store.sql.database._BUSY_TIMEOUT_MS", 120_000)
    async with AsyncExitStack() as stack:

        async def open_store(owner: DatabaseOwner | None, **how: Any) -> SqlStore:
            store = SqlStore(url, owner, **how)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_store


async def running(store: Store) -> Run:
    """A run with one attempt that is STARTING."""
    await with_workflow(store)
    run = await stored_run(store)
    return await save(store, run, launched(run, "s0"))


async def test_a_second_daemon_is_refused_and_learns_who_owns_it(open_as: Open) -> None:
    first = await open_as(FIRST)
    with pytest.raises(StoreHeldError) as refused:
        await open_as(SECOND)
    for part in ("host alpha", "pid 17", "since 2026-11-03 12:30:15 UTC", "/srv/a", "--take-over"):
        assert part in str(refused.value)
    await with_workflow(first)
    await first.check_owner()


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, installation="i-2"),
        replace(FIRST, machine="m-2"),
        replace(FIRST, installation="i-2", machine="m-2"),
    ],
    ids=["another state directory", "another host", "both"],
)
async def test_the_same_host_name_and_path_are_not_enough(open_as: Open, other: DatabaseOwner) -> None:
    await open_as(FIRST)
    with pytest.raises(StoreHeldError):
        await open_as(other)


async def test_after_a_crash_the_same_installation_goes_on(open_as: Open) -> None:
    """The lock of its state directory was free: the daemon before it is dead. Its attempts are its own."""
    first = await open_as(FIRST)
    run = await running(first)
    again = await open_as(replace(FIRST, pid=19, state_dir="/srv/renamed"))
    assert await again.abandoned_attempts() == frozenset()
    assert (await again.get_run(run.id)) == run
    with pytest.raises(StoreTakenOverError, match="pid 19"):
        await with_workflow(first, "late")


async def test_a_daemon_that_was_replaced_writes_nothing_more(open_as: Open) -> None:
    first = await open_as(FIRST)
    run = await running(first)
    second = await open_as(SECOND, take_over=True)
    for _ in range(2):
        answers = await asyncio.gather(
            *(first.create_workflow(text(f"late{n}"), at=NOW) for n in range(20)),
            first.save(_change(run)),
            return_exceptions=True,
        )
        assert {type(answer) for answer in answers} == {StoreTakenOverError}
        assert "host beta, pid 18" in str(answers[0])
    with pytest.raises(StoreTakenOverError):
        await first.try_write()
    with pytest.raises(StoreTakenOverError):
        await first.check_owner()
    assert [each.name for each in await second.list_workflows()] == ["backup"]
    assert await second.get_run(run.id) == run
    await first.close()
    await second.check_owner()
    with pytest.raises(StoreHeldError):
        # The close of the one that was replaced has not given up what is the other's.
        await open_as(FIRST)


def _change(run: Run) -> Any:
    from contract.builders import change

    return change(run, ended(run, "s0"))


async def test_a_claim_waits_for_the_transaction_of_the_owner_and_the_next_one_fails(
    open_as: Open,
) -> None:
    """No write of the previous owner is committed after the claim."""
    first = await open_as(FIRST)
    await with_workflow(first)
    made = [asyncio.create_task(first.create_workflow(text(f"w{n}"), at=NOW)) for n in range(2_000)]
    second = await open_as(SECOND, take_over=True)
    there = {each.name for each in await second.list_workflows(limit=10_000)} - {"backup"}
    answers = await asyncio.gather(*made, return_exceptions=True)
    stored = {each.name for each in answers if not isinstance(each, BaseException)}
    assert {each.name for each in await second.list_workflows(limit=10_000)} - {"backup"} == stored
    assert stored == there
    assert all(isinstance(each, StoreTakenOverError) or hasattr(each, "name") for each in answers)


async def test_after_a_clean_stop_another_installation_may_have_it(open_as: Open) -> None:
    first = await open_as(FIRST)
    run = await running(first)
    run = await save(first, run, ended(run, "s0"))
    await save(first, run, finished(run))
    await stored_run(first)  # one that waits for its turn has no process anywhere
    await first.close()
    second = await open_as(SECOND)
    assert await second.abandoned_attempts() == frozenset()
    await second.try_write()


async def test_a_clean_stop_with_steps_left_running_keeps_others_out(open_as: Open) -> None:
    first = await open_as(FIRST)
    run = await running(first)
    attempt = run.steps["s0"].attempt
    assert attempt is not None
    await first.close()
    with pytest.raises(StoreHeldError, match="1 of its steps went on running; start that one again"):
        await open_as(SECOND)
    second = await open_as(SECOND, take_over=True)
    assert await second.abandoned_attempts() == {attempt.token}
    await second.close()
    again = await open_as(SECOND)
    assert await again.abandoned_attempts() == {attempt.token}, "a crash forgets it"
    await save(again, run, ended(run, "s0"))
    assert await again.abandoned_attempts() == frozenset()


async def test_a_database_from_before_is_the_first_daemons(empty_url: str) -> None:
    """It may have attempts of the daemon that is being upgraded: these are no other's."""
    from contract.store.test_migration import fill_all, migrate

    target = database(empty_url)
    target.prepare()
    migrate(target.writer, "0003")
    with target.writer.connect() as connection:
        fill_all(connection, "r-1", "a-1")
    target.close()
    store = SqlStore(empty_url, FIRST)
    await store.open()
    try:
        assert await store.active_run_ids() == ["r-1"]
        assert await store.abandoned_attempts() == frozenset()
        with pytest.raises(StoreHeldError):
            await SqlStore(empty_url, SECOND).open()
    finally:
        await store.close()


async def test_the_schema_is_not_changed_under_another_daemon(open_as: Open, url: str) -> None:
    await open_as(FIRST)
    target = database(url)
    with target.writer.connect() as connection:
        connection.execute(sql(f"UPDATE {schema_revision.VERSION_TABLE} SET version_num = '0005'"))
        with pytest.raises(StoreHeldError):
            await open_as(SECOND)
        assert schema_revision.revision(connection) == "0005"
    target.close()


async def test_a_database_whose_owner_is_gone_is_not_written_to(open_as: Open, url: str) -> None:
    """Somebody put an older backup in its place."""
    first = await open_as(FIRST)
    target = database(url)
    with target.writer.connect() as connection:
        connection.execute(sql("DELETE FROM ownership"))
    target.close()
    with pytest.raises(StoreError, match="it has no owner"):
        await with_workflow(first)
