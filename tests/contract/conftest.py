"""Stores under test: each test gets its own, in SQLite, and in PostgreSQL if a server is available."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helpers.postgres import DATABASES, postgres_schema
from toband import failpoints
from toband.ports import Store
from toband.store import SqlStore
from toband.store.sql import database

NewStore = Callable[[], Awaitable[SqlStore]]


@pytest.fixture(params=DATABASES)
def kind(request: pytest.FixtureRequest) -> str:
    """Parametrises everything that needs a database."""
    return str(request.param)


@pytest.fixture
def empty_url(kind: str, tmp_path: Path) -> Iterator[str]:
    """A database that does not exist yet, or holds nothing."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/state/toban.db"
        return
    with postgres_schema() as url:
        yield url


@pytest.fixture
def url(kind: str, empty_url: str, store_template: Path) -> str:
    """A database whose tables are there or will be when it is opened."""
    if kind == "sqlite":
        path = Path(empty_url.removeprefix("sqlite:///"))
        path.parent.mkdir()
        shutil.copy(store_template, path)
    return empty_url


@pytest.fixture
async def new_store(url: str) -> AsyncIterator[NewStore]:
    """Opens stores on the same database, as two daemons or one daemon twice would."""
    async with AsyncExitStack() as stack:

        async def open_store() -> SqlStore:
            store = SqlStore(url)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_store


@pytest.fixture
async def stores(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> list[Store]:
    """Two on the same database. Each waits for the other as long as the disk takes, which may be slow."""
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 120_000)
    return [await new_store(), await new_store()]


@pytest.fixture
async def sql_store(new_store: NewStore) -> SqlStore:
    """For tests that look behind the port."""
    return await new_store()


@pytest.fixture
def store(sql_store: SqlStore) -> Store:
    """For tests that any store has to pass."""
    return sql_store


@pytest.fixture
def arm() -> Iterator[Callable[[str], None]]:
    """Makes a failpoint fail in this process."""
    yield failpoints.arm
    failpoints.arm("")
