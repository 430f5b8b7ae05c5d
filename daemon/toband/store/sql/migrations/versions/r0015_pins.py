"""Runs can be pinned."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("pinned_at", sa.BigInteger()))
    for name in ("pinned_by", "pin_note"):
        op.add_column("runs", sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''")))
