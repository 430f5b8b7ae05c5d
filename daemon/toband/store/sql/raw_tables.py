"""Tables as raw rows: read, written and compared without knowing what they mean, the same for SQLite and PostgreSQL.

A raw value is an integer, a float, a text, bytes or None; a boolean is 0 or 1. Rows are read in the order of their
primary key, which is the same in both databases. `encoded` is the one text of a row: copies are compared by it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, Connection, LargeBinary, inspect

from toband.ports import StoreError
from toband.store.sql.tables import metadata, ownership

BATCH = 5_000
"""Rows that are read or written at once."""
LEFT_OUT = frozenset({ownership.name})
"""Tables about the daemon that has the database, which a copy of it is not."""

RawRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTable:
    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The columns of the primary key."""
    booleans: frozenset[str] = frozenset()
    binaries: frozenset[str] = frozenset()

    def key_of(self, row: RawRow) -> RawRow:
        return tuple(row[self.columns.index(name)] for name in self.key)


def raw_tables(connection: Connection) -> Sequence[RawTable]:
    """The tables that the database has, as it has them; each comes after those that it refers to."""
    inspector = inspect(connection)
    there = set(inspector.get_table_names())
    found = []
    for table in metadata.sorted_tables:
        if table.name not in there or table.name in LEFT_OUT:
            continue
        columns = inspector.get_columns(table.name)
        found.append(
            RawTable(
                name=table.name,
                columns=tuple(column["name"] for column in columns),
                key=tuple(inspector.get_pk_constraint(table.name)["constrained_columns"]),
                booleans=frozenset(each["name"] for each in columns if isinstance(each["type"], Boolean)),
                binaries=frozenset(each["name"] for each in columns if isinstance(each["type"], LargeBinary)),
            )
        )
    return found


def count_rows(connection: Connection, table: RawTable) -> int:
    found: int = connection.exec_driver_sql(f'SELECT count(*) FROM "{table.name}"').scalar_one()  # noqa: S608 - a name of the schema
    return found


def read_rows(connection: Connection, table: RawTable, after: RawRow | None = None) -> Iterator[list[RawRow]]:
    """Batches in the order of the primary key, of the rows behind that key. Needs a transaction."""
    sqlite = connection.dialect.name == "sqlite"
    columns, key = (", ".join(f'"{name}"' for name in names) for names in (table.columns, table.key))
    query = f'SELECT {columns} FROM "{table.name}"'  # noqa: S608 - names of the schema
    if after is not None:
        places = ", ".join("?" if sqlite else "%s" for _ in after)
        query += f" WHERE ({key}) > ({places})"
    query += f" ORDER BY {key}"
    driver: Any = connection.connection.driver_connection
    # A cursor with a name stays on the server, which sends only the rows that are asked for.
    cursor = driver.cursor() if sqlite else driver.cursor(name="toban_rows")
    try:
        cursor.execute(query, after or ())
        shape = _shaped(table, {"booleans": int, "binaries": bytes})
        while rows := cursor.fetchmany(BATCH):
            yield [shape(row) for row in rows] if shape is not None else rows
    finally:
        cursor.close()


def write_rows(connection: Connection, table: RawTable, rows: Sequence[RawRow]) -> None:
    """Inserts them. `table` is that of the target, `rows` have the values of its columns. Needs a transaction."""
    driver: Any = connection.connection.driver_connection
    columns = ", ".join(f'"{name}"' for name in table.columns)
    cursor = driver.cursor()
    try:
        if connection.dialect.name == "sqlite":
            places = ", ".join("?" for _ in table.columns)
            cursor.executemany(f'INSERT INTO "{table.name}" ({columns}) VALUES ({places})', rows)  # noqa: S608 - of the schema
            return
        shape = _shaped(table, {"booleans": bool})
        with cursor.copy(f'COPY "{table.name}" ({columns}) FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row if shape is None else shape(row))
    finally:
        cursor.close()


def _shaped(table: RawTable, kinds: Mapping[str, Callable[[Any], Any]]) -> Callable[[RawRow], RawRow] | None:
    """Converts the values of these kinds of columns; None if the table has none."""
    at = {index: make for kind, make in kinds.items() for index in _places(table, getattr(table, kind))}
    if not at:
        return None

    def convert(row: RawRow) -> RawRow:
        values = list(row)
        for index, make in at.items():
            if values[index] is not None:
                values[index] = make(values[index])
        return tuple(values)

    return convert


def _places(table: RawTable, names: frozenset[str]) -> list[int]:
    return [index for index, name in enumerate(table.columns) if name in names]


_encode = json.JSONEncoder(separators=(",", ":"), default=lambda data: base64.b64encode(data).decode()).encode


def encoded(rows: Sequence[RawRow]) -> bytes:
    """A line of JSON for each row."""
    return "".join(f"{_encode(row)}\n" for row in rows).encode()


def decoded(table: RawTable, lines: bytes) -> list[RawRow]:
    """The rows of such lines. Raises ValueError."""
    rows = [tuple(json.loads(line)) for line in lines.splitlines()]
    if any(len(row) != len(table.columns) for row in rows):
        raise ValueError(f"a row of {table.name} does not have {len(table.columns)} values")
    binary = _shaped(table, {"binaries": base64.b64decode})
    return [binary(row) for row in rows] if binary is not None else rows


@dataclass(frozen=True, slots=True)
class TableDigest:
    rows: int
    sha256: str


def digest_of(connection: Connection, table: RawTable, progress: Callable[[int], None]) -> TableDigest:
    """The number of rows, and a digest over all of them. Needs a transaction."""
    total, digest = 0, hashlib.sha256()
    for rows in read_rows(connection, table):
        digest.update(encoded(rows))
        total += len(rows)
        progress(len(rows))
    return TableDigest(total, digest.hexdigest())


def check_references(connection: Connection) -> None:
    """SQLite only: after rows were written without checks. Raises StoreError for a row that refers to none."""
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(f"a row of {broken[0]} refers to a row of {broken[2]} that does not exist")
