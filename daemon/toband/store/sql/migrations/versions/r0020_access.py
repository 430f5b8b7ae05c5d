"""Tokens, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
VALID = sa.text("revoked_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", KEY, nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("role", sa.Integer(), nullable=False),
        sa.Column("narrowing", sa.Text()),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.Column("revoked_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.CheckConstraint("role BETWEEN 1 AND 4", name="ck_tokens_role"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tokens_valid_name", "tokens", ["name"], unique=True, sqlite_where=VALID, postgresql_where=VALID)
    op.create_table(
        "audit_entries",
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("role", KEY, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("method", KEY, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", KEY, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous", KEY, nullable=False),
        sa.Column("hash", KEY, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit_entries"),
    )
    op.create_table(
        "audit_anchors",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", KEY, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_anchors"),
        sa.CheckConstraint("id = 1", name="ck_audit_anchors_single"),
    )
