"""What the whole language keeps: jobs, instances and iterations of steps, links between runs, dead letters.

A step's position leaves room for its instances from here on. In entries of the history it has another name since, so
that those of before need not be rewritten.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TIME = sa.BigInteger()
STEP_STATES = (
    "state IN ('PENDING', 'READY', 'RUNNING', 'CHECKING', 'SUCCEEDED', 'FAILED', 'INCOMPLETE', 'SKIPPED', 'CANCELLED')"
)
# Those of revision 0002.
STEP_COLUMNS = (
    "run_id",
    "position",
    "step",
    "state",
    "reason",
    "attempts",
    "losses",
    "attempt_id",
    "started_at",
    "finished_at",
    "exit_code",
    "error_class",
    "result",
    "outputs",
)


def upgrade() -> None:
    _workflows()
    _runs()
    if op.get_context().dialect.name == "sqlite":
        _step_runs_made_anew()
    else:
        _step_runs_altered()
    _process_executions()
    _dead_letters()


def _workflows() -> None:
    op.add_column(
        "workflows",
        sa.Column("kind", sa.String(), nullable=False, server_default=sa.text("'workflow'")),
    )
    op.create_index("ix_workflows_kind_name", "workflows", ["kind", "name"])
    op.create_table(
        "workflow_uses",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("job", KEY, nullable=False),
        sa.PrimaryKeyConstraint("workflow", "job", name="pk_workflow_uses"),
        sa.ForeignKeyConstraint(["workflow"], ["workflows.name"], name="fk_workflow_uses_workflow", ondelete="CASCADE"),
    )
    op.create_index("ix_workflow_uses_job_workflow", "workflow_uses", ["job", "workflow"])


def _runs() -> None:
    for name in ("retry_of", "from_run", "parent_run", "parent_step"):
        op.add_column("runs", sa.Column(name, KEY))
    op.add_column(
        "runs",
        sa.Column("incomplete_steps", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )
    op.add_column("runs", sa.Column("paused_at", TIME))
    for name in ("parent_run", "retry_of"):
        there = sa.text(f"{name} IS NOT NULL")
        op.create_index(
            f"ix_runs_{name}_id",
            "runs",
            [name, "id"],
            sqlite_where=there,
            postgresql_where=there,
        )
    op.create_table(
        "run_sources",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("source", KEY, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "source", name="pk_run_sources"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_sources_run_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["source"], ["runs.id"], name="fk_run_sources_source", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_run_sources_source_run_id", "run_sources", ["source", "run_id"])


def _new_step_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("evaluated", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("iteration", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("extra", sa.Text(), nullable=False, server_default=sa.text("'{}'")),
    ]


def _step_runs_made_anew() -> None:
    """SQLite cannot change the constraint of a table that is there."""
    op.create_table(
        "new_step_runs",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", KEY, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("attempt_id", KEY),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("error_class", sa.String()),
        sa.Column("result", sa.Text()),
        sa.Column("outputs", sa.Text(), nullable=False),
        *_new_step_columns(),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_step_runs"),
        sa.CheckConstraint(STEP_STATES, name="ck_step_runs_state"),
        sa.UniqueConstraint("run_id", "step", name="uq_step_runs_run_id_step"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_step_runs_run_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    columns = ", ".join(STEP_COLUMNS)
    values = columns.replace("position", "position << 14")
    op.execute(
        f"INSERT INTO new_step_runs ({columns}) SELECT {values} FROM step_runs"  # noqa: S608 - constants
    )
    op.drop_table("step_runs")
    op.rename_table("new_step_runs", "step_runs")


def _step_runs_altered() -> None:
    for column in _new_step_columns():
        op.add_column("step_runs", column)
    op.drop_constraint("ck_step_runs_state", "step_runs", type_="check")
    op.create_check_constraint("ck_step_runs_state", "step_runs", STEP_STATES)
    # No run has 16,384 steps: no row takes the place of one that is still to move.
    op.execute("UPDATE step_runs SET position = position << 14 WHERE position > 0")


def _process_executions() -> None:
    for column in (
        sa.Column("child", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("job", KEY, nullable=False, server_default=sa.text("''")),
        sa.Column("iteration", sa.Integer(), nullable=False, server_default=sa.text("1")),
    ):
        op.add_column("process_executions", column)


def _dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("step", KEY, nullable=False),
        sa.Column("attempt_id", KEY, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("error_class", sa.String(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("resolved_at", TIME),
        sa.Column("resolved_by", sa.Text(), nullable=False),
        sa.Column("requeued_as", KEY, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_dead_letters"),
        sa.CheckConstraint("state IN ('OPEN', 'REQUEUED', 'DISCARDED')", name="ck_dead_letters_state"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_dead_letters_run_id", ondelete="CASCADE"),
    )
    for columns in (["run_id"], ["workflow", "id"], ["workflow", "state", "id"], ["state", "id"]):
        op.create_index(f"ix_dead_letters_{'_'.join(columns)}", "dead_letters", columns)
