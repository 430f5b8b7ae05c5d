"""Failed runs are listed by their end."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

FAILED = "state IN ('FAILED', 'TIMED_OUT')"


def upgrade() -> None:
    there, columns = sa.text(FAILED), ["state", "finished_at", "id"]
    op.create_index("ix_runs_state_finished_at_id", "runs", columns, sqlite_where=there, postgresql_where=there)
