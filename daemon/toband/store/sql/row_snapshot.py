"""A row snapshot: all rows of a database as they are at one moment, read beside the writer without delaying it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from sqlalchemy import Connection, bindparam, select

from toband.store.sql.database import Database
from toband.store.sql.errors import store_errors
from toband.store.sql.raw_tables import RawRow, RawTable, count_rows, encoded, raw_tables, read_rows
from toband.store.sql.schema_revision import revision
from toband.store.sql.tables import runs

_KNOWN_AT_ONCE = 500


class RowSnapshot:
    """Used by one thread, as a context. Its methods raise StoreError.

    SQLite's write-ahead log grows while it is open, because readers need the pages as they were.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> RowSnapshot:
        with self._errors():
            self._connection = _reading(self._database)
            self.tables: Mapping[str, RawTable] = {table.name: table for table in raw_tables(self._connection)}
            self.revision = revision(self._connection) or ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.invalidate()
        self._connection.close()

    def counts(self) -> dict[str, int]:
        """The number of rows by table."""
        with self._errors():
            return {name: count_rows(self._connection, table) for name, table in self.tables.items()}

    def pieces(self, name: str) -> Iterator[tuple[bytes, Sequence[RawRow]]]:
        """The rows of a table by the order of its key, in pieces: encoded, and as they are."""
        with self._errors():
            for rows in read_rows(self._connection, self.tables[name]):
                yield encoded(rows), rows

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors("cannot read the database", self._database.error)


def missing_runs(database: Database, run_ids: Collection[str]) -> set[str]:
    """Those of the runs that the database does not have now. Raises StoreError."""
    query = select(runs.c.id).where(runs.c.id.in_(bindparam("ids", expanding=True)))
    gone, wanted = set(run_ids), list(run_ids)
    with store_errors("cannot read the database", database.error):
        connection = _reading(database)
        try:
            for start in range(0, len(wanted), _KNOWN_AT_ONCE):
                some = wanted[start : start + _KNOWN_AT_ONCE]
                gone.difference_update(connection.execute(query, {"ids": some}).scalars())
        finally:
            connection.invalidate()
            connection.close()
    return gone


def _reading(database: Database) -> Connection:
    """A connection of its own, in a transaction that sees one moment: the readers of the daemon stay free."""
    connection = database.writer.connect()
    if database.kind == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.exec_driver_sql("BEGIN")
    else:
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return connection
