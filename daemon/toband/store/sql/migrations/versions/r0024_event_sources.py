"""The events of a run are found along an index."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

CONDITION = sa.text("source_run <> ''")


def upgrade() -> None:
    op.create_index(
        "ix_events_source_run_sequence",
        "events",
        ["source_run", "sequence"],
        sqlite_where=CONDITION,
        postgresql_where=CONDITION,
    )
