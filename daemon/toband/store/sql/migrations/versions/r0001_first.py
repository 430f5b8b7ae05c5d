"""The first tables: workflows and their versions, runs, steps, attempts, history, requests."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TIME = sa.BigInteger()


def upgrade() -> None:
    _workflows()
    _runs()
    _requests()


def _workflows() -> None:
    op.create_table(
        "workflow_versions",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("base_dir", sa.Text(), nullable=False),
        sa.Column("parsed", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("workflow", "version", name="pk_workflow_versions"),
    )
    op.create_table(
        "workflows",
        sa.Column("name", KEY, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_workflows"),
        sa.ForeignKeyConstraint(
            ["name", "version"],
            ["workflow_versions.workflow", "workflow_versions.version"],
            name="fk_workflows_name",
        ),
    )
    op.create_table(
        "workflow_labels",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("label", KEY, nullable=False),
        sa.Column("content", KEY, nullable=False),
        sa.PrimaryKeyConstraint("workflow", "label", name="pk_workflow_labels"),
        sa.ForeignKeyConstraint(
            ["workflow"],
            ["workflows.name"],
            name="fk_workflow_labels_workflow",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        "ix_workflow_labels_label_content_workflow",
        "workflow_labels",
        ["label", "content", "workflow"],
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("triggered_by", sa.String(), nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("failed_steps", sa.Integer(), nullable=False),
        sa.Column("ended_steps", sa.Integer(), nullable=False),
        sa.Column("total_steps", sa.Integer(), nullable=False),
        sa.Column("current_step", sa.Text(), nullable=False),
        sa.Column("cancel_requested_at", TIME),
        sa.Column("ending_cause", sa.String()),
        sa.Column("ending_at", TIME),
        sa.Column("launches", sa.Integer(), nullable=False),
        sa.Column("timeout", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.CheckConstraint(
            "state IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELLED')",
            name="ck_runs_state",
        ),
        sa.UniqueConstraint("workflow", "number", name="uq_runs_workflow_number"),
        sa.ForeignKeyConstraint(
            ["workflow", "version"],
            ["workflow_versions.workflow", "workflow_versions.version"],
            name="fk_runs_workflow",
        ),
    )
    op.create_index("ix_runs_workflow_id", "runs", ["workflow", "id"])
    op.create_index("ix_runs_workflow_state_id", "runs", ["workflow", "state", "id"])
    op.create_index("ix_runs_state_id", "runs", ["state", "id"])
    _step_runs()
    _process_executions()
    op.create_table(
        "run_history",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "sequence", name="pk_run_history"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_history_run_id", ondelete="CASCADE"),
    )


def _step_runs() -> None:
    op.create_table(
        "step_runs",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", KEY, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("attempt_id", KEY),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("error_class", sa.String()),
        sa.Column("result", sa.Text()),
        sa.Column("outputs", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_step_runs"),
        sa.CheckConstraint(
            "state IN ('PENDING', 'READY', 'RUNNING', 'SUCCEEDED', 'FAILED', 'SKIPPED', 'CANCELLED')",
            name="ck_step_runs_state",
        ),
        sa.UniqueConstraint("run_id", "step", name="uq_step_runs_run_id_step"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_step_runs_run_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def _process_executions() -> None:
    op.create_table(
        "process_executions",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("step", KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("token", KEY, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger()),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("signal", sa.BigInteger()),
        sa.Column("error_class", sa.String()),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text()),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("user_time", sa.Double(), nullable=False),
        sa.Column("system_time", sa.Double(), nullable=False),
        sa.Column("max_rss_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stdout_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stderr_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_process_executions"),
        sa.CheckConstraint(
            "state IN ('STARTING', 'RUNNING', 'COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED', 'LOST')",
            name="ck_process_executions_state",
        ),
        sa.UniqueConstraint("run_id", "ordinal", name="uq_process_executions_run_id_ordinal"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_process_executions_run_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_process_executions_run_id_id", "process_executions", ["run_id", "id"])
    op.create_index("ix_process_executions_step_id", "process_executions", ["step", "id"])


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("caller", KEY, nullable=False),
        sa.Column("rpc", KEY, nullable=False),
        sa.Column("request_id", KEY, nullable=False),
        sa.Column("digest", KEY, nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("caller", "rpc", "request_id", name="pk_requests"),
    )
    op.create_index("ix_requests_created_at", "requests", ["created_at"])
