"""Schedules, the ledger of their due times, and what a run knows of the schedule that started it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TIME = sa.BigInteger()


def upgrade() -> None:
    _runs()
    _schedules()
    _fires()


def _runs() -> None:
    for column in (
        sa.Column("schedule", KEY, nullable=False, server_default=sa.text("''")),
        sa.Column("scheduled_at", TIME),
        sa.Column("missed", sa.Text(), nullable=False, server_default=sa.text("'[]'")),
    ):
        op.add_column("runs", column)


def _schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("at_start", sa.Boolean(), nullable=False),
        sa.Column("subject", KEY, nullable=False),
        sa.Column("action", KEY, nullable=False),
        sa.Column("dedupe_key", KEY, nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("stored_at", TIME, nullable=False),
        sa.Column("next_due", TIME),
        sa.Column("alarm", TIME),
        sa.Column("occurrences", sa.BigInteger(), nullable=False),
        sa.Column("cancelled_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_schedules"),
    )
    op.create_index("ix_schedules_workflow_id", "schedules", ["workflow", "id"])
    for columns, condition in (
        (["alarm", "id"], "alarm IS NOT NULL"),
        (["subject", "id"], "subject <> ''"),
        (["id"], "at_start"),
    ):
        there = sa.text(condition)
        op.create_index(
            f"ix_schedules_{'_'.join(columns)}",
            "schedules",
            columns,
            sqlite_where=there,
            postgresql_where=there,
        )


def _fires() -> None:
    op.create_table(
        "fires",
        sa.Column("schedule_id", KEY, nullable=False),
        sa.Column("due_at", TIME, autoincrement=False, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("more", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", "due_at", name="pk_fires"),
        sa.CheckConstraint("outcome IN ('FIRED', 'CAUGHT_UP', 'SKIPPED', 'MISSED')", name="ck_fires_outcome"),
        sqlite_with_rowid=False,
    )
    for columns in (["workflow", "due_at", "schedule_id"], ["due_at", "schedule_id"]):
        op.create_index(f"ix_fires_{'_'.join(columns)}", "fires", columns)
