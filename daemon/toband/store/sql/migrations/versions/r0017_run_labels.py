"""Runs have labels of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("labels", sa.Text(), nullable=False, server_default=sa.text("'{}'")))
    op.create_table(
        "run_labels",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("label", KEY, nullable=False),
        sa.Column("content", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "label", name="pk_run_labels"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_labels_run_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    for columns in (["label", "content", "run_id"], ["workflow", "label", "content", "run_id"]):
        op.create_index(f"ix_run_labels_{'_'.join(columns)}", "run_labels", columns)
