"""A copy of all rows of one database into an empty one of either kind, which can be interrupted and continues.

Each batch of rows is committed together with the note how far the copy is. At the end every table is read on both
sides, and its number of rows and its digest are compared. Only then the target may be used. The source is only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from toband import failpoints
from toband.ports import DatabaseOwner, StoreError
from toband.store.sql import copy_marker, ownership, schema_revision
from toband.store.sql.database import Database, database
from toband.store.sql.errors import store_errors
from toband.store.sql.raw_tables import (
    RawTable,
    TableDigest,
    check_references,
    count_rows,
    digest_of,
    raw_tables,
    read_rows,
    write_rows,
)

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many rows are done, and how many there are."""


class DatabaseCopy:
    """Raises StoreError for URLs that cannot be used. `run` may be called once; it blocks."""

    def __init__(self, source: str, target: str, owner: DatabaseOwner, progress: Progress) -> None:
        """`owner` is the installation that uses the source; no daemon of it runs."""
        self._source = database(source)
        self._target = database(target)
        if self._source.path and self._source.path == self._target.path:
            raise StoreError("cannot copy the database: source and target are the same")
        self._owner = owner
        self._progress = progress
        self._total = 0

    def is_done(self) -> bool:
        """Whether the target has tables, and is no unfinished copy. Raises StoreError."""
        if self._target.missing():
            return False
        with self._open(self._target) as target:
            return copy_marker.source_of(target) is None and not schema_revision.is_new(target)

    def run(self, before_release: Callable[[], None]) -> Mapping[str, TableDigest]:
        """The digests of all tables. `before_release` is called when a daemon may use the target next.

        Raises StoreError; then the copy is not finished, and can be repeated.
        """
        if missing := self._source.missing():
            raise StoreError(f"cannot copy the database: {missing}")
        with self._open(self._source) as source:
            ownership.examine(source, self._owner)
            if (revision := schema_revision.revision(source)) != schema_revision.HEAD:
                raise StoreError(
                    f"cannot copy the database: its schema is {revision}, and this release has "
                    f"{schema_revision.HEAD}; start the daemon of this release on it once"
                )
            source.exec_driver_sql("BEGIN")
            tables = raw_tables(source)
            self._total = sum(count_rows(source, table) for table in tables)
            with self._open(self._target) as target:
                self._prepare(target, self._identity(source))
                self._copy(source, target, tables)
                digests = self._verified(source, target, tables)
                before_release()
                failpoints.hit("copy.verified")
                with _transaction(target):
                    copy_marker.remove(target)
                self._tidy(target)
        return digests

    def _identity(self, source: Connection) -> str:
        """Changes when a daemon has used the source: what was copied before is then of no use."""
        epoch = source.exec_driver_sql("SELECT max(epoch) FROM ownership").scalar()
        return f"{self._owner.installation} {self._source.kind} {self._source.path} epoch {epoch}"

    def _prepare(self, target: Connection, identity: str) -> None:
        known = copy_marker.source_of(target)
        if known == identity:
            return
        with _transaction(target):
            if known is not None:
                copy_marker.remove(target)
                schema_revision.remove(target)
            elif not schema_revision.is_new(target):
                raise StoreError("cannot copy the database: the target has tables of toban; name an empty database")
            schema_revision.create(target, schema_revision.HEAD)
            copy_marker.add(target, identity)

    def _copy(self, source: Connection, target: Connection, tables: Sequence[RawTable]) -> None:
        if self._target.kind == "sqlite":
            # Checked at the end, for all rows at once.
            target.exec_driver_sql("PRAGMA foreign_keys = OFF")
        places = {table.name: table for table in raw_tables(target)}
        done = 0
        for table in tables:
            there = places.get(table.name)
            if there is None or set(there.columns) != set(table.columns):
                raise StoreError(f"cannot copy the database: the tables {table.name} have different columns")
            with _transaction(target):
                last, rows = copy_marker.last_of(target, table.name)
            done += rows
            for batch in read_rows(source, table, last):
                rows += len(batch)
                done += len(batch)
                with _transaction(target):
                    write_rows(target, _with_kinds(table, there), batch)
                    copy_marker.note(target, table.name, table.key_of(batch[-1]), rows)
                    failpoints.hit("copy.batch")
                self._progress("copying rows", done, self._total)

    def _verified(
        self, source: Connection, target: Connection, tables: Sequence[RawTable]
    ) -> Mapping[str, TableDigest]:
        done, digests = 0, {}

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            self._progress("verifying rows", done, 2 * self._total)

        with _transaction(target):
            if self._target.kind == "sqlite":
                check_references(target)
            for table in tables:
                here = digest_of(source, table, count)
                there = digest_of(target, table, count)
                if here != there:
                    raise StoreError(
                        f"cannot copy the database: the table {table.name} has {here.rows} rows with the digest "
                        f"{here.sha256:.12}, and its copy {there.rows} with {there.sha256:.12}; "
                        "empty the target and copy again"
                    )
                digests[table.name] = here
        return digests

    def _tidy(self, target: Connection) -> None:
        """The first queries of the daemon need to know how many rows there are."""
        target.exec_driver_sql("ANALYZE" if self._target.kind == "postgresql" else "PRAGMA optimize")

    @contextmanager
    def _open(self, opened: Database) -> Iterator[Connection]:
        with store_errors(f"cannot use the {opened.kind} database", opened.error):
            opened.prepare()
            connection = opened.writer.connect()
            try:
                yield connection
            finally:
                with suppress(SQLAlchemyError):
                    connection.invalidate()
                    connection.close()
                opened.close()


def _with_kinds(table: RawTable, there: RawTable) -> RawTable:
    """The columns in the order of the source, with the kinds that the target has."""
    return RawTable(
        name=table.name, columns=table.columns, key=table.key, booleans=there.booleans, binaries=there.binaries
    )


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    connection.exec_driver_sql("BEGIN")
    try:
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        with suppress(SQLAlchemyError):
            connection.exec_driver_sql("ROLLBACK")
        raise
