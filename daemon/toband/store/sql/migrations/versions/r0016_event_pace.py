"""Triggers have a pace: bursts of events that start one run, and starts that count for a throttle."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    pace: sa.Column[str] = sa.Column("pace", sa.Text(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("event_triggers", pace)
    op.create_table(
        "event_bursts",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("event_id", KEY, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("scope", KEY, nullable=False),
        sa.PrimaryKeyConstraint("workflow", "position", "key", name="pk_event_bursts"),
    )
    op.create_index("ix_event_bursts_due_at", "event_bursts", ["due_at"])
    op.create_index("ix_event_bursts_event_id", "event_bursts", ["event_id"])
    op.create_table(
        "event_throttles",
        sa.Column("workflow", KEY, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", KEY, nullable=False),
        sa.Column("starts", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workflow", "position", "key", name="pk_event_throttles"),
    )
    op.create_index("ix_event_throttles_until", "event_throttles", ["until"])
