"""Changes of all runs have one order. Runs created from now on have an entry for their creation, too."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_history", sa.Column("position", sa.BigInteger()))
    there = sa.text("position IS NOT NULL")
    op.create_index("ix_run_history_position", "run_history", ["position"], sqlite_where=there, postgresql_where=there)
    op.create_table(
        "deleted_changes",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deleted_changes"),
        sa.CheckConstraint("id = 1", name="ck_deleted_changes_single"),
    )
