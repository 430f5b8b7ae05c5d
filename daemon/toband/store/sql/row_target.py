"""A row target: an empty database that gets the rows of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from toband.ports import StoreError
from toband.store.sql import ownership as claims
from toband.store.sql import schema_revision
from toband.store.sql.database import database
from toband.store.sql.errors import store_errors
from toband.store.sql.raw_tables import RawTable, check_references, decoded, raw_tables, write_rows
from toband.store.sql.tables import ownership


class RowTarget:
    """Used by one thread, as a context; its methods raise StoreError. What is not committed is undone.

    SQLite writes without its log, and so without protection: after a crash the file is of no use.
    """

    def __init__(self, url: str) -> None:
        self._database = database(url)
        self._tables: Mapping[str, RawTable] = {}

    @property
    def file(self) -> str:
        """The path of a SQLite database; empty for PostgreSQL."""
        return self._database.path

    def __enter__(self) -> RowTarget:
        with self._errors():
            self._database.prepare()
            self._connection = self._database.writer.connect()
            if self._database.kind == "sqlite":
                for setting in ("foreign_keys = OFF", "journal_mode = OFF", "synchronous = OFF"):
                    self._connection.exec_driver_sql(f"PRAGMA {setting}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(SQLAlchemyError):
            self._connection.invalidate()
            self._connection.close()
        self._database.close()

    def is_new(self) -> bool:
        with self._errors():
            return schema_revision.is_new(self._connection)

    def is_unclaimed(self) -> bool:
        """Whether no daemon has ever used its tables."""
        with self._errors():
            return self._connection.execute(select(ownership)).first() is None

    def clear(self) -> None:
        """Drops its tables."""
        with self._errors():
            self._begin()
            schema_revision.remove(self._connection)
            self.commit()

    def create(self, revision: str) -> None:
        """Creates the tables of that revision, in the transaction that it begins."""
        with self._errors():
            schema_revision.require_known(revision)
            self._begin()
            schema_revision.create(self._connection, revision)
            self._tables = {table.name: table for table in raw_tables(self._connection)}

    def write(self, name: str, columns: Sequence[str], lines: bytes) -> int:
        """Adds encoded rows with these columns; returns their number. Raises ValueError if they are none."""
        table = self._tables.get(name)
        if table is None or set(columns) != set(table.columns):
            raise StoreError(f"cannot write the rows of {name}: its columns are not those of the backup")
        rows = decoded(_ordered(table, columns), lines)
        with self._errors():
            write_rows(self._connection, _ordered(table, columns), rows)
        return len(rows)

    def finish(self) -> None:
        """Checks the references between rows, brings the tables to the revision of this release, and commits.

        Attempts that had not ended are recorded as left by another daemon: they are never started again.
        """
        with self._errors():
            if self._database.kind == "sqlite":
                check_references(self._connection)
            self.commit()
            schema_revision.upgrade(self._connection)
            self._begin()
            claims.abandon(self._connection)
            self.commit()

    def commit(self) -> None:
        self._connection.exec_driver_sql("COMMIT")

    def _begin(self) -> None:
        self._connection.exec_driver_sql("BEGIN")

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors("cannot write to the database", self._database.error)


def _ordered(table: RawTable, columns: Sequence[str]) -> RawTable:
    """The table with its columns in that order."""
    return RawTable(
        name=table.name, columns=tuple(columns), key=table.key, booleans=table.booleans, binaries=table.binaries
    )
