"""Process executions are listed by workflow, job and state."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
TABLE = "process_executions"
NOT_WELL = "state IN ('FAILED', 'TIMED_OUT', 'CANCELLED', 'LOST')"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column("workflow", KEY, nullable=False, server_default=sa.text("''")))
    op.execute(f"UPDATE {TABLE} SET workflow = (SELECT workflow FROM runs WHERE runs.id = {TABLE}.run_id)")  # noqa: S608 - constants
    op.create_index(f"ix_{TABLE}_workflow_id", TABLE, ["workflow", "id"])
    for columns, condition in (
        (["job", "id"], "job <> ''"),
        (["state", "id"], NOT_WELL),
        (["workflow", "state", "id"], NOT_WELL),
        (["job", "state", "id"], f"job <> '' AND {NOT_WELL}"),
    ):
        there = sa.text(condition)
        op.create_index(f"ix_{TABLE}_{'_'.join(columns)}", TABLE, columns, sqlite_where=there, postgresql_where=there)
