"""What all parts of the store share: opening the database, closing it, and who reads and writes in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from toband.ports import Claim, Owner, StoreError, StoreGoneError, StoreWatcher
from toband.store.sql import ownership, schema
from toband.store.sql.database import READERS, database
from toband.store.sql.errors import store_errors
from toband.store.sql.statements import Statements
from toband.store.sql.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")

OWNER_FRESH = 1.0
"""Seconds for which a claim that was confirmed is not looked up again."""


class SqlAccess:
    """A database that is open, with one who writes and several who read. Raises StoreError for a URL of no kind.

    `owner` claims it for a daemon; `take_over` claims it from any other owner. Without an owner any process may write:
    that is for tools that look at a database that no daemon uses. `known_by` says what else proves that there was a
    database: with it, an empty one is refused.
    """

    def __init__(
        self,
        url: str,
        owner: Owner | None = None,
        *,
        take_over: bool = False,
        known_by: str = "",
    ) -> None:
        self._database = database(url)
        self._owner = owner
        self._take_over = take_over
        self._known_by = known_by
        self.claim: Claim | None = None
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
        epoch = self.claim.epoch if self.claim is not None else None
        self._writer = Writer(self._database, self._watcher, epoch)
        self._writer.start()

    def _prepare(self) -> None:
        with store_errors("cannot open the database", self._database.error):
            self._refuse_new(self._database.missing())
            self._database.prepare()
            with self._database.writer.connect() as connection:
                if self._known_by:
                    self._refuse_new("there is nothing in it" if schema.is_new(connection) else "")
                # Before the schema is changed under another daemon.
                if self._owner is not None and not self._take_over:
                    ownership.examine(connection, self._owner)
                schema.upgrade(connection)
                if self._owner is not None:
                    self.claim = ownership.claim(connection, self._owner, take_over=self._take_over)

            self._database.hold_files()

    def _refuse_new(self, missing: str) -> None:
        if missing and self._known_by:
            raise StoreGoneError(
                f"cannot use the database: the database of this state directory is gone: {missing}, "
                f"but {self._known_by}; restore a backup, or start with --new-database to begin "
                "with an empty one"
            )

    def _release(self) -> None:
        """A database that fails does not delay a stop: the next daemon then finds this one as the owner."""
        if self.claim is None:
            return
        with (
            suppress(StoreError),
            store_errors("cannot write to the database", self._database.error),
            self._database.writer.connect() as connection,
        ):
            ownership.release(connection, self.claim.epoch, datetime.now(UTC))

    async def close(self) -> None:
        """Finishes what was asked for before."""
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

    async def abandoned_attempts(self) -> frozenset[str]:
        return await self._read(ownership.read_abandoned)

    async def _read(self, read: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
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
