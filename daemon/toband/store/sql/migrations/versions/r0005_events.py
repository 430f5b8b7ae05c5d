"""Events, what each started, the workflows that listen to them, and what a run knows of the one that started it.

Besides, how long runs are kept by workflows that say so, apart from their definitions.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TIME = sa.BigInteger()


def upgrade() -> None:
    op.add_column("runs", sa.Column("event", sa.Text()))
    op.add_column("runs", sa.Column("depth", sa.Integer(), nullable=False, server_default=sa.text("0")))
    _events()
    _event_runs()
    _event_triggers()
    _workflow_watches()
    _workflow_retention()


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", KEY, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("type", KEY, nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("emitted_at", TIME, nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("source_run", KEY, nullable=False),
        sa.Column("source_step", KEY, nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("dedupe_key", KEY),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("schedule", KEY, nullable=False),
        sa.Column("scheduled_at", TIME),
        sa.Column("requested_at", TIME),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("resolved_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.UniqueConstraint("sequence", name="uq_events_sequence"),
        sa.CheckConstraint("state IN ('PENDING', 'RESOLVED', 'CUT')", name="ck_events_state"),
    )
    op.create_index("ix_events_type_sequence", "events", ["type", "sequence"])
    op.create_index("ix_events_emitted_at", "events", ["emitted_at"])
    for columns, condition, unique in (
        (["sequence"], "state = 'PENDING'", False),
        (["dedupe_key", "type"], "dedupe_key IS NOT NULL", True),
    ):
        there = sa.text(condition)
        op.create_index(
            f"ix_events_{'_'.join(columns)}",
            "events",
            columns,
            unique=unique,
            sqlite_where=there,
            postgresql_where=there,
        )


def _event_runs() -> None:
    op.create_table(
        "event_runs",
        sa.Column("event_id", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.PrimaryKeyConstraint("event_id", "workflow", name="pk_event_runs"),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="fk_event_runs_event_id", ondelete="CASCADE"),
        sa.CheckConstraint("outcome IN ('STARTED', 'SKIPPED')", name="ck_event_runs_outcome"),
        sqlite_with_rowid=False,
    )


def _event_triggers() -> None:
    op.create_table(
        "event_triggers",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("type", KEY, nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("workflow", "position", "type", name="pk_event_triggers"),
        sa.ForeignKeyConstraint(
            ["workflow"],
            ["workflows.name"],
            name="fk_event_triggers_workflow",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        "ix_event_triggers_type_workflow_position",
        "event_triggers",
        ["type", "workflow", "position"],
    )


def _workflow_watches() -> None:
    op.create_table(
        "workflow_watches",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workflow", "position", name="pk_workflow_watches"),
        sa.ForeignKeyConstraint(
            ["workflow"],
            ["workflows.name"],
            name="fk_workflow_watches_workflow",
            ondelete="CASCADE",
        ),
    )


def _workflow_retention() -> None:
    op.create_table(
        "workflow_retention",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workflow", name="pk_workflow_retention"),
        sa.ForeignKeyConstraint(
            ["workflow"],
            ["workflows.name"],
            name="fk_workflow_retention_workflow",
            ondelete="CASCADE",
        ),
    )
    # Few say so, and definitions may be long: their text is looked through before it is read.
    current = sa.text(
        "SELECT name, parsed FROM workflows JOIN workflow_versions"
        " ON workflow = name AND workflow_versions.version = workflows.version"
        """ WHERE parsed LIKE '%"retention":{%'"""
    )
    rows = []
    for name, parsed in op.get_bind().execute(current):
        rules = json.loads(parsed).get("retention")
        if rules is not None:
            rows.append({"workflow": name, "rules": json.dumps(rules)})
    if rows:
        insert = "INSERT INTO workflow_retention (workflow, rules) VALUES (:workflow, :rules)"
        op.get_bind().execute(sa.text(insert), rows)
