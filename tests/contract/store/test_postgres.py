"""PostgreSQL only: durability settings, reconnects, and errors without a server."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from contract.builders import NOW
from contract.conftest import NewStore
from toband.ports import StoreError
from toband.store import SqlStore
from toband.store.sql.writer import WriteSession


@pytest.fixture(params=[pytest.param("postgresql", marks=pytest.mark.postgres)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_server_that_answers_before_its_disk_is_not_believed(url: str) -> None:
    store = SqlStore(url + "%20-csynchronous_commit%3Doff")
    await store.open()
    found = await store._write.do(
        lambda session: session.connection.exec_driver_sql("SHOW synchronous_commit").scalar()
    )
    assert found == "on"
    await store.close()


async def test_readers_cannot_write(sql_store: SqlStore) -> None:
    with (
        sql_store._database.reader.connect() as connection,
        pytest.raises(Exception, match="read-only"),
    ):
        connection.execute(text("DELETE FROM runs"))


async def test_readers_survive_a_restart_of_the_server(url: str) -> None:
    # By a name of its own: the server may be that of other tests too, which go on meanwhile.
    name = f"toban-{uuid.uuid4().hex}"
    store = SqlStore(f"{url}&application_name={name}")
    await store.open()
    try:
        await store.counts()
        with store._database.writer.connect() as connection:
            ended = connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                f" WHERE application_name = '{name}' AND pid <> pg_backend_pid()"
            )
            assert set(ended.scalars()) == {True}
        assert (await store.counts()).workflows == 0
    finally:
        await store.close()


async def test_a_commit_that_was_a_rollback_is_no_commit(sql_store: SqlStore) -> None:
    def careless(session: WriteSession) -> None:
        with suppress(DBAPIError):
            session.connection.exec_driver_sql("SELECT * FROM nowhere")

    with pytest.raises(StoreError, match="rolled back"):
        await sql_store._write.do(careless)
    assert await sql_store.set_enabled("nope", True, at=NOW) is None


async def test_two_that_open_at_once_migrate_once(kind: str, new_store: NewStore) -> None:
    first, second = await asyncio.gather(new_store(), new_store())
    assert first.kind == second.kind == kind
    assert await first.counts() == await second.counts()


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/nowhere", "postgresql:///nowhere?host=/nonexistent"])
async def test_a_server_that_is_not_there(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="cannot open the database: connection"):
        await SqlStore(url).open()


async def test_a_password_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as refused:
        await SqlStore("postgresql://someone:hunter2@127.0.0.1:1/nowhere").open()
    assert "hunter2" not in str(refused.value) + caplog.text


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'toban\[postgres\]'"):
        SqlStore("postgresql://localhost/toban")


@pytest.mark.parametrize("url", ["", "toban.db", "mysql://localhost/toban", "sqlite+aiosqlite:///x"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="sqlite:///PATH or postgresql://"):
        SqlStore(url)
