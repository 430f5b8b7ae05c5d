"""The marker of an unfinished copy: two tables in the target, which no daemon uses while they are there.

They say what is being copied and up to which row, and change in the same transactions as the rows.
"""

from __future__ import annotations

import json

from sqlalchemy import BigInteger, Column, Connection, MetaData, String, Table, Text, inspect, select, update

from toband.ports import StoreError
from toband.store.sql.raw_tables import RawRow

_metadata = MetaData()
_marker = Table("toban_copy", _metadata, Column("source", Text, nullable=False))
_progress = Table(
    "toban_copy_progress",
    _metadata,
    Column("table_name", String, primary_key=True),
    # The key of the last row, as JSON; NULL: none was copied yet.
    Column("last_key", Text),
    Column("rows", BigInteger, nullable=False),
)


def refuse_unfinished(connection: Connection) -> None:
    """Raises StoreError if the database is the target of a copy that has not finished."""
    if inspect(connection).has_table(_marker.name):
        raise StoreError(
            "cannot use the database: it is an unfinished copy of another one; "
            "run `toban system migrate-store` again, which continues with it"
        )


def source_of(connection: Connection) -> str | None:
    """What is being copied; None if the database is no target."""
    if not inspect(connection).has_table(_marker.name):
        return None
    return connection.execute(select(_marker.c.source)).scalar()


def add(connection: Connection, source: str) -> None:
    """In the transaction of the connection, like everything below."""
    _metadata.create_all(connection)
    connection.execute(_marker.insert().values(source=source))


def remove(connection: Connection) -> None:
    _metadata.drop_all(connection)


def last_of(connection: Connection, table: str) -> tuple[RawRow | None, int]:
    """The key of the last copied row of the table, and how many were copied."""
    row = connection.execute(select(_progress).where(_progress.c.table_name == table)).first()
    if row is None:
        connection.execute(_progress.insert().values(table_name=table, last_key=None, rows=0))
        return None, 0
    return (None if row.last_key is None else tuple(json.loads(row.last_key))), row.rows


def note(connection: Connection, table: str, key: RawRow, rows: int) -> None:
    connection.execute(
        update(_progress).where(_progress.c.table_name == table).values(last_key=json.dumps(key), rows=rows)
    )
