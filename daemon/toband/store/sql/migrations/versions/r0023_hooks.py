"""Hooks."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "hooks",
        sa.Column("name", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("event_type", KEY, nullable=False),
        sa.Column("form", sa.String(), nullable=False),
        sa.Column("secret", KEY, nullable=False),
        sa.Column("sealed", sa.LargeBinary()),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("conditions", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_hooks"),
        sa.CheckConstraint("(sealed IS NULL) = (secret <> '')", name="ck_hooks_place"),
        sqlite_with_rowid=False,
    )
