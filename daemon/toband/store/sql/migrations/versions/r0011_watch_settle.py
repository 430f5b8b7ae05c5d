"""Watched paths have the time after which a file counts as complete. Definitions stored before did not wait."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workflow_watches", sa.Column("settle", sa.Double(), nullable=False, server_default=sa.text("0")))
