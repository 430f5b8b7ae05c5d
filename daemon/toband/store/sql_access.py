"""What all parts of the store share: opening the database, closing it, and who reads and writes in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from toband.ports import StoreError, StoreWatcher
from toband.store import schema
from toband.store.database import READERS, database
from toband.store.errors import store_errors
from toband.store.statements import Statements
from toband.store.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class SqlAccess:
    """A database that is open, with one who writes and several who read. Raises StoreError for a URL of no kind."""

    def __init__(self, url: str) -> None:
        self._database = database(url)
        self._watcher: StoreWatcher | None = None
        self._sql = Statements(self._database.writer.dialect)
        self._pool: ThreadPoolExecutor | None = None
        self._writer: Writer | None = None

    @property
    def kind(self) -> str:
        return self._database.kind

    @property
    def file(self) -> str:
        """Where it lies; empty if a server has it."""
        return self._database.path

    def watch(self, watcher: StoreWatcher) -> None:
        """Lets somebody know how writing goes. Before it is opened."""
        self._watcher = watcher

    async def open(self) -> None:
        """Once; a store that was closed is not opened again."""
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._prepare)
        except BaseException:
            self._pool.shutdown(wait=False)
            self._pool = None
            raise
        self._writer = Writer(self._database, self._watcher)
        self._writer.start()

    def _prepare(self) -> None:
        with store_errors("cannot open the database", self._database.error):
            self._database.prepare()
            with self._database.writer.connect() as connection:
                schema.upgrade(connection)

    async def close(self) -> None:
        """Finishes what was asked for before."""
        pool, self._pool = self._pool, None
        if pool is None or self._writer is None:
            return
        self._writer.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, self._writer.join)
        await loop.run_in_executor(pool, self._database.close)
        pool.shutdown(wait=False)

    async def _read(
        self, read: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def call() -> T:
            with (
                store_errors("cannot read the database", self._database.error),
                self._database.reader.connect() as connection,
            ):
                return read(connection, *args, **kwargs)

        if self._pool is None:
            raise StoreError("cannot read the database: it is not open")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except StoreError as error:
            if self._watcher is not None:
                self._watcher.failed(error)
            raise

    @property
    def _write(self) -> Writer:
        if self._writer is None:
            raise StoreError("cannot write to the database: it is not open")
        return self._writer
