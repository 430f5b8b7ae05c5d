"""Secrets, and the keys of sealed parameters."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", KEY, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary()),
        sa.Column("provider", KEY, nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("workflows", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger()),
        sa.Column("last_used_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_secrets"),
        sa.CheckConstraint("(data IS NULL) = (provider <> '')", name="ck_secrets_place"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "seal_keys",
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("key_id", KEY, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_seal_keys"),
    )
