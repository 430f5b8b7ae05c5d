"""Keyset paging: lists from the newest id on, along an index."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, Text, cast, select, union_all


def newest(
    connection: Connection,
    table: Table,
    workflow: str,
    states: Sequence[StrEnum],
    before: str,
    limit: int,
    *,
    after: str = "",
    condition: ColumnElement[bool] | None = None,
    names: Sequence[str] | None = None,
) -> Sequence[Row[Any]]:
    """At most `limit` rows with an id below `before` and above `after`, of a table with columns `workflow`, `state`.

    `condition` must not choose an index: see `unindexed`. `names` are the workflows to read, each by a walk of its own.

    One index walk per state, each cut at the limit, so that rows in other states are not read.
    """
    wanted: list[StrEnum | None] = [*dict.fromkeys(states)]
    if states and len(wanted) == len(type(states[0])):
        wanted = []
    of = [workflow] if workflow or names is None else names
    pages = [_page(table, name, state, after, before, limit) for name in of for state in wanted or [None]]
    if not pages:
        return []
    if condition is not None:
        pages = [page.where(condition) for page in pages]
    if len(pages) == 1:
        return connection.execute(pages[0]).all()
    merged = union_all(*(select(page.subquery()) for page in pages)).subquery()
    query = select(merged).order_by(merged.c.id.desc()).limit(limit)
    return connection.execute(query).all()


def unindexed(column: ColumnElement[Any]) -> ColumnElement[str]:
    """The text of a column, for a condition that must not choose the index: without statistics SQLite may take any."""
    return cast(column, Text).concat("")


def between(query: Select[Any], column: ColumnElement[Any], after: str, before: str) -> Select[Any]:
    """Rows with an id between these two; an empty id sets no limit."""
    if after:
        query = query.where(column > after)
    return query.where(column < before) if before else query


def _page(table: Table, workflow: str, state: StrEnum | None, after: str, before: str, limit: int) -> Select[Any]:
    page = select(table)
    if workflow:
        page = page.where(table.c.workflow == workflow)
    if state is not None:
        page = page.where(table.c.state == state)
    return between(page, table.c.id, after, before).order_by(table.c.id.desc()).limit(limit)
