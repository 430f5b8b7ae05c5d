"""Rows of the audit log: adds records to the end of the chain in any transaction.

Part of the hot path: a call that starts a run adds one row to the transaction that stores the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Dialect, Row, func, insert, select

from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditOutcome, AuditRecord, chained
from toband.store.sql.access_tables import audit_anchors, audit_entries
from toband.store.sql.columns import from_micros, printable, to_micros
from toband.store.sql.statements import Statement

_RECORD = ("at", "actor", "role", "source", "method", "target", "outcome", "reason", "request_id", "detail")
_TEXTS = ("actor", "role", "source", "method", "target", "reason", "request_id", "detail")
_LAST = select(audit_entries).where(
    audit_entries.c.sequence == select(func.max(audit_entries.c.sequence)).scalar_subquery()
)

Fetch = Callable[[Statement, Mapping[str, Any]], list[tuple[Any, ...]]]
AddRows = Callable[[Statement, Sequence[Mapping[str, Any]]], object]


class AuditRows:
    def __init__(self, dialect: Dialect) -> None:
        self._insert = Statement(insert(audit_entries), list(audit_entries.c.keys()), dialect)
        self._last = Statement(_LAST, None, dialect)
        self._anchor = Statement(select(audit_anchors.c.sequence, audit_anchors.c.hash), None, dialect)

    def append(self, fetch: Fetch, add: AddRows, records: Sequence[AuditRecord]) -> list[AuditEntry]:
        """The chain is continued from what is stored, not from memory: whatever else wrote it."""
        last: AuditEntry | AuditAnchor
        if found := fetch(self._last, {}):
            last = _raw_entry(found[0])
        elif anchors := fetch(self._anchor, {}):
            last = AuditAnchor(sequence=anchors[0][0], hash=anchors[0][1])
        else:
            last = AuditAnchor()
        added: list[AuditEntry] = []
        for record in records:
            last = chained(_storable(record), last)
            added.append(last)
        add(self._insert, [_raw_row(entry) for entry in added])
        return added


def entry_from(row: Row[Any]) -> AuditEntry:
    record = AuditRecord(**{name: getattr(row, name) for name in _RECORD})
    return AuditEntry(sequence=row.sequence, record=record, previous=row.previous, hash=row.hash)


def last_entry(connection: Connection) -> AuditEntry | None:
    row = connection.execute(_LAST).first()
    return None if row is None else entry_from(row)


def anchor_of(connection: Connection) -> AuditAnchor:
    row = connection.execute(select(audit_anchors)).first()
    return AuditAnchor(sequence=row.sequence, hash=row.hash) if row is not None else AuditAnchor()


def _storable(record: AuditRecord) -> AuditRecord:
    """The record as the database returns it, so that its hash can be checked."""
    texts: dict[str, Any] = {name: printable(getattr(record, name)) for name in _TEXTS}
    return replace(record, **texts)


def _raw_row(entry: AuditEntry) -> dict[str, Any]:
    values = {name: getattr(entry.record, name) for name in _RECORD}
    values |= {"at": to_micros(entry.record.at), "outcome": entry.record.outcome.value}
    return values | {"sequence": entry.sequence, "previous": entry.previous, "hash": entry.hash}


def _raw_entry(row: tuple[Any, ...]) -> AuditEntry:
    values = dict(zip(audit_entries.c.keys(), row, strict=True))
    values |= {"at": from_micros(values["at"]), "outcome": AuditOutcome(values["outcome"])}
    record = AuditRecord(**{name: values[name] for name in _RECORD})
    return AuditEntry(sequence=values["sequence"], record=record, previous=values["previous"], hash=values["hash"])
