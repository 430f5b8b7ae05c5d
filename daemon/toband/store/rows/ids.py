"""Finds ids by their start or their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, Table, select

from toband.domain.identity import Visible
from toband.ports import IdKind
from toband.store.sql.event_tables import events
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.schedule_tables import schedules
from toband.store.sql.tables import dead_letters, process_executions, runs
from toband.store.sql.visible_rows import only_visible

_TABLES: Final[Mapping[IdKind, Table]] = {
    IdKind.RUN: runs,
    IdKind.PROCESS: process_executions,
    IdKind.EVENT: events,
    IdKind.DEAD_LETTER: dead_letters,
    IdKind.SCHEDULE: schedules,
}
# Sorts behind every digit of an id.
_BEHIND: Final = "~"


class SqlIds(OpenDatabase):
    """`toband.ports.IdStore`."""

    @reading
    def find_ids(
        self, connection: Connection, kind: IdKind, part: str, limit: int, *, visible: Visible = None
    ) -> Sequence[str]:
        if kind is IdKind.EVENT and visible is not None:
            return []
        of = _TABLES[kind].c.id
        all_ids = only_visible(select(of), connection, _TABLES[kind].c.workflow, visible)
        begin = all_ids.where(of >= part, of < part + _BEHIND).order_by(of.desc()).limit(limit)
        if found := connection.execute(begin).scalars().all():
            return found
        # Without an order, so that the smallest index is read and not the rows.
        ends = all_ids.where(of.endswith(part, autoescape=True)).limit(limit)
        return sorted(connection.execute(ends).scalars(), reverse=True)
