"""Access: tokens, and the audit log with its chain of hashes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from toband.domain.audit_chain import AuditAnchor, AuditEntry, AuditRecord, chained
from toband.domain.identity import Narrowing, Role
from toband.ports import StoredToken, TokenExistsError
from toband.store.sql.access_tables import audit_anchors, audit_entries, tokens
from toband.store.sql.columns import printable
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.writer import WriteSession

_LAST = select(audit_entries).order_by(audit_entries.c.sequence.desc()).limit(1)
_ADD = insert(audit_entries)
_VALID_NAME = select(tokens.c.id).where(tokens.c.name == bindparam("of_name"), tokens.c.revoked_at.is_(None))
_RECORD = ("at", "actor", "role", "source", "method", "target", "outcome", "reason", "request_id", "detail")


class SqlAccess(OpenDatabase):
    """`toband.ports.AccessStore`."""

    @writing
    def create_token(self, session: WriteSession, token: StoredToken) -> None:
        if session.connection.execute(_VALID_NAME, {"of_name": token.name}).first() is not None:
            raise TokenExistsError(token.name)
        row = {
            "id": token.id,
            "name": token.name,
            "role": int(token.role),
            "narrowing": _stored(token.narrowing),
            "digest": token.digest,
            "created_at": token.created_at,
            "created_by": token.created_by,
            "expires_at": token.expires_at,
            "last_used_at": token.last_used_at,
            "revoked_at": token.revoked_at,
            "revoked_by": token.revoked_by,
        }
        session.connection.execute(insert(tokens), row)

    @reading
    def list_tokens(self, connection: Connection) -> Sequence[StoredToken]:
        return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.created_at, tokens.c.id))]

    @writing
    def revoke_token(self, session: WriteSession, token_id: str, at: datetime, by: str) -> bool:
        change = update(tokens).where(tokens.c.id == token_id, tokens.c.revoked_at.is_(None))
        return session.connection.execute(change.values(revoked_at=at, revoked_by=by)).rowcount > 0

    @writing
    def note_token_use(self, session: WriteSession, token_id: str, at: datetime) -> None:
        session.connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=at))

    @writing
    def append_audit(self, session: WriteSession, records: Sequence[AuditRecord]) -> Sequence[AuditEntry]:
        row = session.connection.execute(_LAST).first()
        last: AuditEntry | AuditAnchor = _entry(row) if row is not None else _anchor(session.connection)
        added: list[AuditEntry] = []
        for record in records:
            last = chained(_storable(record), last)
            added.append(last)
        session.connection.execute(_ADD, [_row(entry) for entry in added])
        return added

    @reading
    def list_audit(
        self, connection: Connection, *, after: int = 0, before: int = 0, newest: bool = False, limit: int = 100
    ) -> Sequence[AuditEntry]:
        query = select(audit_entries).where(audit_entries.c.sequence > after).limit(limit)
        if before:
            query = query.where(audit_entries.c.sequence < before)
        order = audit_entries.c.sequence.desc() if newest else audit_entries.c.sequence
        return [_entry(row) for row in connection.execute(query.order_by(order))]

    @reading
    def audit_anchor(self, connection: Connection) -> AuditAnchor:
        return _anchor(connection)

    @writing
    def remove_audit(self, session: WriteSession, before: datetime, *, limit: int) -> int:
        oldest = select(audit_entries).order_by(audit_entries.c.sequence).limit(limit)
        last: AuditEntry | None = None
        count = 0
        for row in session.connection.execute(oldest).all():
            # Only the beginning of the chain: a clock that was set back must not tear a hole into it.
            if row.at >= before:
                break
            last, count = _entry(row), count + 1
        if last is not None:
            session.connection.execute(delete(audit_entries).where(audit_entries.c.sequence <= last.sequence))
            session.connection.execute(delete(audit_anchors))
            session.connection.execute(insert(audit_anchors), {"id": 1, "sequence": last.sequence, "hash": last.hash})
        return count


def _stored(narrowing: Narrowing | None) -> Any:
    if narrowing is None:
        return None
    return {"workflows": list(narrowing.workflows), "labels": [list(each) for each in narrowing.labels]}


def _token(row: Row[Any]) -> StoredToken:
    narrowing = None
    if row.narrowing is not None:
        narrowing = Narrowing(
            workflows=tuple(row.narrowing["workflows"]),
            labels=tuple((key, value) for key, value in row.narrowing["labels"]),
        )
    return StoredToken(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        narrowing=narrowing,
        digest=row.digest,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by,
    )


def _storable(record: AuditRecord) -> AuditRecord:
    """The record as the database returns it, so that its hash can be checked."""
    texts = {name: printable(getattr(record, name)) for name in _RECORD if isinstance(getattr(record, name), str)}
    del texts["outcome"]
    return AuditRecord(at=record.at, outcome=record.outcome, **texts)


def _row(entry: AuditEntry) -> dict[str, Any]:
    values = {name: getattr(entry.record, name) for name in _RECORD}
    return values | {"sequence": entry.sequence, "previous": entry.previous, "hash": entry.hash}


def _entry(row: Row[Any]) -> AuditEntry:
    record = AuditRecord(**{name: getattr(row, name) for name in _RECORD})
    return AuditEntry(sequence=row.sequence, record=record, previous=row.previous, hash=row.hash)


def _anchor(connection: Connection) -> AuditAnchor:
    row = connection.execute(select(audit_anchors)).first()
    return AuditAnchor(sequence=row.sequence, hash=row.hash) if row is not None else AuditAnchor()
