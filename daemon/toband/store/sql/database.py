"""Connections to SQLite and PostgreSQL: one kind for the writer, one for readers."""

from __future__ import annotations

import os
import sqlite3
import sys
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from toband.ports import StoreError
from toband.store.sql import free_pages
from toband.store.sql.deleted_database import OpenFiles

READERS = 4
_BUSY_TIMEOUT_MS = 5_000
# Pages in SQLite's log that trigger a checkpoint. The default of 1,000 is reached after some hundred saves, and each
# checkpoint costs two more syncs.
_CHECKPOINT_PAGES = 4_000
# SQLite's log is cut to this size after a burst has made it larger.
_LOG_MOST = 64 * 1024 * 1024
# So that no call waits forever for a server that does not respond.
_POSTGRES_USUAL = {
    "application_name": "toban",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


class Database:
    """Makes connections to one database.

    `writer` makes connections in autocommit mode, whose transactions the caller begins and commits; `reader` has pooled
    connections that cannot write and see one snapshot until they are returned.
    """

    kind: str
    path: str = ""
    # The base class of the driver's own exceptions.
    error: type[Exception]
    writer: Engine
    reader: Engine

    def missing(self) -> str:
        """Why the database does not exist yet; empty if it does."""
        return ""

    def prepare(self) -> None:
        """Creates the files that the first connection needs. Raises OSError, StoreError."""

    def hold_files(self) -> None:
        """Records which files are open, for `check_files`. Call it once, when the tables exist."""

    def check_files(self) -> None:
        """Raises StoreGoneError if an open file was deleted or replaced. Takes microseconds."""

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()

    def make_shrinkable(self, connection: Connection) -> None:
        """Lets the file return space without stopping. Takes seconds, once."""

    def release_space(self, connection: Connection, most: int) -> int:
        """Returns at most that many pages to the file system; the number of pages that may follow."""
        return 0

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the database, without waiting for readers."""

    def ahead_bytes(self) -> int:
        """The size of the write-ahead log."""
        return 0


class SqliteDatabase(Database):
    kind = "sqlite"
    error = sqlite3.Error

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
            raise StoreError("cannot use a SQLite database without a file: give sqlite:///PATH")
        self.path = os.path.abspath(url.database)
        self._held: Connection | None = None
        self._files = OpenFiles()
        url = url.set(drivername="sqlite+pysqlite", database=self.path)
        if sys.platform != "win32":
            # A connection must not create an empty file in place of a deleted database.
            there = {"mode": "rw", "uri": "true"}
            url = url.set(database=f"file:{quote(self.path)}", query={**url.query, **there})
        self.writer = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self.reader = create_engine(url, pool_size=READERS, max_overflow=0)
        for engine in (self.writer, self.reader):
            # A new connection would create a second log while others have the deleted one open.
            event.listen(engine, "do_connect", lambda *_: self.check_files())
        event.listen(self.writer, "connect", self._on_writer)
        event.listen(self.reader, "connect", self._on_reader)
        event.listen(self.reader, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))

    def missing(self) -> str:
        return "" if os.path.exists(self.path) else f"{self.path} does not exist"

    def prepare(self) -> None:
        """Creates the file, readable only by its owner; SQLite's other files inherit the mode."""
        directory = os.path.dirname(self.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if sys.platform == "win32":
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def hold_files(self) -> None:
        # SQLite removes the log with its last connection: this one stays open.
        self._held = self.writer.connect()
        self._held.exec_driver_sql("SELECT count(*) FROM sqlite_master").all()
        self._files.remember(self.path, f"{self.path}-wal")

    def check_files(self) -> None:
        self._files.check()

    def close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()
        super().close()

    def make_shrinkable(self, connection: Connection) -> None:
        free_pages.convert(connection, self.path)

    def release_space(self, connection: Connection, most: int) -> int:
        return free_pages.release(connection, most)

    def checkpoint(self) -> None:
        with self.writer.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")

    def ahead_bytes(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return 0

    def _on_writer(self, connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        free_pages.begin_small(cursor)
        mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"cannot use {self.path}: its file system does not support SQLite's WAL mode")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        cursor.execute(f"PRAGMA journal_size_limit = {_LOG_MOST}")
        cursor.close()

    def _on_reader(self, connection: Any, _record: object) -> None:
        # The "begin" listener above begins transactions: the driver itself begins none for a SELECT.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA query_only = ON")
        cursor.close()


class PostgresDatabase(Database):
    kind = "postgresql"

    def __init__(self, url: URL) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(
                "cannot use PostgreSQL: its driver is missing; run: pip install 'toban[postgres]'"
            ) from error
        self.error = psycopg.Error
        url = url.set(drivername="postgresql+psycopg")
        arguments = {key: value for key, value in _POSTGRES_USUAL.items() if key not in url.query}
        self.writer = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=arguments)
        self.reader = create_engine(
            url,
            isolation_level="REPEATABLE READ",
            pool_size=READERS,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args=arguments,
        ).execution_options(postgresql_readonly=True)
        event.listen(self.writer, "connect", self._on_writer)

    def _on_writer(self, connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        # A server may be configured to acknowledge commits before they are on disk; this program must not.
        if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            cursor.execute("SET synchronous_commit TO on")
        cursor.close()


def database(url: str) -> Database:
    """Raises StoreError for a URL that cannot be used."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError("cannot read the database URL: give sqlite:///PATH or postgresql://HOST/NAME") from None
    match parsed.drivername:
        case "sqlite":
            return SqliteDatabase(parsed)
        case "postgresql":
            return PostgresDatabase(parsed)
        case other:
            raise StoreError(f"cannot use a database of kind {other!r}: give sqlite:///PATH or postgresql://HOST/NAME")
