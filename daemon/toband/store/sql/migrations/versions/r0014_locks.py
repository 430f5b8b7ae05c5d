"""Locks that stay held after an attempt, because its processes may still live."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "lock_leftovers",
        sa.Column("lock", KEY, nullable=False),
        sa.Column("attempt_id", KEY, nullable=False),
        sa.Column("user_run", KEY, nullable=False),
        sa.Column("user_step", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("step", KEY, nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("boot_id", KEY, nullable=False),
        sa.Column("pids", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("lock", "attempt_id", name="pk_lock_leftovers"),
    )
