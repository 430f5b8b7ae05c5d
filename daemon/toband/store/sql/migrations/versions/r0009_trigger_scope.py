"""Triggers have the scope of the runs that they start."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("event_triggers", sa.Column("scope", KEY, nullable=False, server_default=sa.text("''")))
