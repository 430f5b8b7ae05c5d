"""Partial indexes: over the rows that meet a condition."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Index, MetaData, event, text

_CONDITION = "condition"


def partial_index(name: str | None, *columns: str, condition: str, unique: bool = False) -> Index:
    """Naming an option of PostgreSQL loads its dialect, which no daemon on SQLite needs: `set_conditions` does it."""
    return Index(name, *columns, unique=unique, sqlite_where=text(condition), info={_CONDITION: condition})


def set_conditions(metadata: MetaData) -> None:
    """For PostgreSQL, before the tables are made."""

    def before_create(target: MetaData, connection: Connection, **_: Any) -> None:
        if connection.dialect.name != "postgresql":
            return
        for table in target.tables.values():
            for index in table.indexes:
                if _CONDITION in index.info:
                    index.dialect_kwargs["postgresql_where"] = text(index.info[_CONDITION])

    event.listen(metadata, "before_create", before_create)
