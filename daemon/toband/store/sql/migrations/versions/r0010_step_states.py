"""Runs know how many of their steps are in which state, so that lists can show it without reading steps."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

AT_ONCE = 500


def upgrade() -> None:
    """The positions of the steps of a definition are multiples of 16,384; those of instances are between them."""
    column: sa.Column[str] = sa.Column("step_states", sa.Text(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("runs", column)
    connection = op.get_bind()
    page = sa.text("SELECT id FROM runs WHERE id > :last ORDER BY id LIMIT :at_once")
    count = sa.text(
        "SELECT run_id, state, count(*) FROM step_runs WHERE run_id > :last AND run_id <= :to"
        " AND position % 16384 = 0 GROUP BY run_id, state"
    )
    update = sa.text("UPDATE runs SET step_states = :states WHERE id = :id")
    last = ""
    while ids := connection.execute(page, {"last": last, "at_once": AT_ONCE}).scalars().all():
        found: dict[str, dict[str, int]] = {}
        for run_id, state, number in connection.execute(count, {"last": last, "to": ids[-1]}):
            found.setdefault(run_id, {})[state] = number
        for run_id, states in found.items():
            connection.execute(update, {"id": run_id, "states": json.dumps(states, separators=(",", ":"))})
        last = ids[-1]
