"""The audit log: adds entries, reads them, and removes the oldest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, Select, delete, func, insert, select

from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditRecord
from toband.ports import ALL_ENTRIES, AuditFilter
from toband.store.sql.access_tables import audit_anchors
from toband.store.sql.access_tables import audit_entries as table
from toband.store.sql.audit_rows import anchor_of, entry_from, last_entry
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.writer import WriteSession


class SqlAudit(OpenDatabase):
    """`toband.ports.AuditStore`."""

    @writing
    def append_audit(self, session: WriteSession, records: Sequence[AuditRecord]) -> Sequence[AuditEntry]:
        return session.append_audit(records)

    @reading
    def list_audit(
        self,
        connection: Connection,
        *,
        after: int = 0,
        before: int = 0,
        newest: bool = False,
        limit: int = 100,
        matching: AuditFilter = ALL_ENTRIES,
    ) -> Sequence[AuditEntry]:
        query = _matching(select(table).where(table.c.sequence > after), matching).limit(limit)
        if before:
            query = query.where(table.c.sequence < before)
        order = table.c.sequence.desc() if newest else table.c.sequence
        return [entry_from(row) for row in connection.execute(query.order_by(order))]

    @reading
    def audit_anchor(self, connection: Connection) -> AuditAnchor:
        return anchor_of(connection)

    @reading
    def last_audit(self, connection: Connection) -> AuditEntry | None:
        return last_entry(connection)

    @writing
    def remove_audit(self, session: WriteSession, before: datetime | None, *, most: int | None, limit: int) -> int:
        newest = session.connection.execute(select(func.max(table.c.sequence))).scalar() or 0
        surplus = 0 if most is None else newest - most
        oldest = select(table.c.sequence, table.c.at, table.c.hash).order_by(table.c.sequence).limit(limit)
        last, count = AuditAnchor(), 0
        for sequence, at, digest in session.connection.execute(oldest):
            # Only the beginning of the chain: a clock that was set back must not tear a hole into it.
            if sequence > surplus and (before is None or at >= before):
                break
            last, count = AuditAnchor(sequence=sequence, hash=digest), count + 1
        if count:
            session.connection.execute(delete(table).where(table.c.sequence <= last.sequence))
            session.connection.execute(delete(audit_anchors))
            session.connection.execute(insert(audit_anchors), {"id": 1, "sequence": last.sequence, "hash": last.hash})
        return count


def _matching(query: Select[tuple[object, ...]], wanted: AuditFilter) -> Select[tuple[object, ...]]:
    if wanted.actor:
        query = query.where(table.c.actor == wanted.actor)
    if wanted.method and "/" in wanted.method:
        query = query.where(table.c.method == wanted.method)
    elif wanted.method:
        query = query.where(table.c.method.endswith(f"/{wanted.method}", autoescape=True))
    if wanted.target:
        query = query.where(table.c.target == wanted.target)
    if wanted.outcome is not None:
        query = query.where(table.c.outcome == wanted.outcome)
    if wanted.since is not None:
        query = query.where(table.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(table.c.at < wanted.until)
    return query
