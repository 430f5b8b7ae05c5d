"""Who owns the database, the attempts that an earlier owner left, and the numbers of runs that were deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TIME = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "ownership",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("installation", KEY, nullable=False),
        sa.Column("machine", KEY, nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("state_dir", sa.Text(), nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("released_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_ownership"),
        sa.CheckConstraint("id = 1", name="ck_ownership_single"),
    )
    op.create_table(
        "abandoned_attempts",
        sa.Column("attempt_id", KEY, nullable=False),
        sa.Column("token", KEY, nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "token", name="pk_abandoned_attempts"),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["process_executions.id"],
            name="fk_abandoned_attempts_attempt_id",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "run_numbers",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workflow", name="pk_run_numbers"),
    )
