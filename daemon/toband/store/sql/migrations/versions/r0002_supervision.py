"""What supervision keeps: priorities, dropped output, resource use over time, and sizes on disk."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("priority", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("step_runs", sa.Column("losses", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column(
        "process_executions",
        sa.Column("dropped_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "process_usage",
        sa.Column("attempt_id", KEY, nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_process_usage"),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["process_executions.id"],
            name="fk_process_usage_attempt_id",
            ondelete="CASCADE",
        ),
    )
    op.create_table(
        "run_sizes",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_sizes"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_sizes_run_id", ondelete="CASCADE"),
    )
