"""An open database: claims it for one daemon, reads it in threads, and writes through the one writer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from toband.ports import DatabaseClaim, DatabaseOwner, StoreError, StoreGoneError, StoreWatcher
from toband.store.sql import copy_marker, ownership, schema_revision
from toband.store.sql.database import READERS, database
from toband.store.sql.errors import store_errors
from toband.store.sql.statements import Statements
from toband.store.sql.writer import Writer, WriteSession

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound="OpenDatabase")

OWNER_FRESH = 0.1
"""Seconds for which a confirmed claim is not read again."""


class OpenDatabase:
    """The base of every class that has statements about one noun. Raises StoreError for a URL it cannot use.

    `owner` claims the database for a daemon; `take_over` claims it from any other owner. Without an owner any process
    may write: that is for tools that inspect a database which no daemon uses. `known_by` is the evidence that this
    installation had a database; with it, opening an empty database is refused.
    """

    def __init__(
        self,
        url: str,
        owner: DatabaseOwner | None = None,
        *,
        take_over: bool = False,
        known_by: str = "",
    ) -> None:
        self._database = database(url)
        self._owner = owner
        self._take_over = take_over
        self._known_by = known_by
        self.claim: DatabaseClaim | None = None
        self._confirmed_at = 0.0
        self._watcher: StoreWatcher | None = None
        self._sql = Statements(self._database.writer.dialect)
        self._pool: ThreadPoolExecutor | None = None
        self._writer: Writer | None = None

    @property
    def kind(self) -> str:
        return self._database.kind

    @property
    def file(self) -> str:
        """The path of a SQLite database; empty for PostgreSQL."""
        return self._database.path

    def watch(self, watcher: StoreWatcher) -> None:
        """Reports failed and successful writes to `watcher`. Call it before `open`."""
        self._watcher = watcher

    async def open(self) -> None:
        """Call it once: a closed database cannot be opened again."""
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._prepare)
        except BaseException:
            self._pool.shutdown(wait=False)
            self._pool = None
            raise
        epoch = self.claim.epoch if self.claim is not None else None
        self._writer = Writer(self._database, self._watcher, epoch)
        self._writer.start()

    def _prepare(self) -> None:
        with store_errors("cannot open the database", self._database.error):
            self._refuse_new(self._database.missing())
            self._database.prepare()
            with self._database.writer.connect() as connection:
                copy_marker.refuse_unfinished(connection)
                if self._known_by:
                    self._refuse_new("it is empty" if schema_revision.is_new(connection) else "")
                # Must come first: the schema must not change under another daemon.
                if self._owner is not None and not self._take_over:
                    ownership.examine(connection, self._owner)
                schema_revision.upgrade(connection)
                if self._owner is not None:
                    self.claim = ownership.claim(connection, self._owner, take_over=self._take_over)
                    self._database.make_shrinkable(connection)
            self._database.hold_files()

    def _refuse_new(self, missing: str) -> None:
        if missing and self._known_by:
            raise StoreGoneError(
                f"cannot use the database: the database of this state directory is gone: {missing}, "
                f"but {self._known_by}; restore a backup, or start with --new-database to begin "
                "with an empty one"
            )

    def _release(self) -> None:
        """Ignores errors, so that a failing database does not delay the stop: this daemon then stays the owner."""
        if self.claim is None:
            return
        with (
            suppress(StoreError),
            store_errors("cannot write to the database", self._database.error),
            self._database.writer.connect() as connection,
        ):
            ownership.release(connection, self.claim.epoch, datetime.now(UTC))

    async def close(self) -> None:
        """Finishes the calls that are under way, and releases the claim."""
        pool, self._pool = self._pool, None
        if pool is None or self._writer is None:
            return
        self._writer.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, self._writer.join)
        await loop.run_in_executor(pool, self._release)
        await loop.run_in_executor(pool, self._database.close)
        pool.shutdown(wait=False)

    async def check_owner(self) -> None:
        now = time.monotonic()
        if self.claim is not None and now - self._confirmed_at > OWNER_FRESH:
            await self._read(ownership.check, self.claim.epoch)
            self._confirmed_at = now

    def check_files(self) -> None:
        self._database.check_files()

    async def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            with (
                store_errors("cannot read the database", self._database.error),
                self._database.reader.connect() as connection,
            ):
                return query(connection, *args, **kwargs)

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


def reading(
    query: Callable[Concatenate[D, Connection, P], T],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """Makes a method that reads one snapshot of the database awaitable: it runs in a reader's thread."""

    @wraps(query)
    async def call(self: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda connection: query(self, connection, *args, **kwargs))

    return call


def writing(
    operation: Callable[Concatenate[D, WriteSession, P], T],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """Makes a method that is one transaction awaitable: it runs in the writer's thread and may share a commit."""

    @wraps(operation)
    async def call(self: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write.do(lambda session: operation(self, session, *args, **kwargs))

    return call
