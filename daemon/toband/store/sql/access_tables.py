"""The tables of access: tokens, and the audit log."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, Table

from toband.domain.audit_chain import AuditOutcome
from toband.store.sql.columns import JsonText, Key, Micros, Name, Prose
from toband.store.sql.partial_indexes import partial_index
from toband.store.sql.tables import metadata

tokens = Table(
    "tokens",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("role", Integer, nullable=False),
    # Patterns and labels of workflows; NULL: all of them.
    Column("narrowing", JsonText),
    # SHA-256 of the secret, which is stored nowhere.
    Column("digest", Key, nullable=False),
    Column("created_at", Micros, nullable=False),
    Column("created_by", Prose, nullable=False),
    Column("expires_at", Micros),
    Column("last_used_at", Micros),
    Column("revoked_at", Micros),
    Column("revoked_by", Prose, nullable=False),
    CheckConstraint("role BETWEEN 1 AND 4", name="role"),
    # A name is free again when its token was revoked.
    partial_index("ix_tokens_valid_name", "name", condition="revoked_at IS NULL", unique=True),
    sqlite_with_rowid=False,
)

audit_entries = Table(
    "audit_entries",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Micros, nullable=False),
    Column("actor", Prose, nullable=False),
    Column("role", Key, nullable=False),
    Column("source", Prose, nullable=False),
    Column("method", Key, nullable=False),
    Column("target", Prose, nullable=False),
    Column("outcome", Name(AuditOutcome), nullable=False),
    Column("reason", Key, nullable=False),
    Column("request_id", Prose, nullable=False),
    Column("detail", Prose, nullable=False),
    Column("previous", Key, nullable=False),
    Column("hash", Key, nullable=False),
)

# What the chain of entries begins after: at most one row, written when retention removes entries.
audit_anchors = Table(
    "audit_anchors",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", Key, nullable=False),
    CheckConstraint("id = 1", name="single"),
)
