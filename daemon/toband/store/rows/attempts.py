"""Reading attempts: the processes that were started for runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, select

from toband.domain.run_model import Attempt
from toband.store.sql.row_codec import ATTEMPT_COLUMNS, attempt_from
from toband.store.sql.tables import process_executions as table


def read_attempts(connection: Connection, run_id: str, step: str, before: str, limit: int) -> Sequence[Attempt]:
    query = select(table)
    if run_id:
        query = query.where(table.c.run_id == run_id)
    if step:
        query = query.where(table.c.step == step)
    if run_id and step:
        # Left to itself, SQLite may walk the steps of that name in all other runs.
        query = query.with_hint(table, "INDEXED BY ix_process_executions_run_id_id", "sqlite")
    if before:
        query = query.where(table.c.id < before)
    return _all(connection, query.order_by(table.c.id.desc()).limit(limit))


def read_run_attempts(
    connection: Connection, run_id: str, step: str, from_ordinal: int, limit: int
) -> Sequence[Attempt]:
    query = select(table).where(table.c.run_id == run_id, table.c.ordinal >= from_ordinal)
    if step:
        query = query.where(table.c.step == step)
    return _all(connection, query.order_by(table.c.ordinal).limit(limit))


def read_attempt(connection: Connection, attempt_id: str) -> Attempt | None:
    found = _all(connection, select(table).where(table.c.id == attempt_id))
    return found[0] if found else None


def _all(connection: Connection, query: Select[Any]) -> Sequence[Attempt]:
    return [attempt_from(dict(zip(ATTEMPT_COLUMNS, row, strict=True))) for row in connection.execute(query)]
