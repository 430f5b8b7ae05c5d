"""Large parameters, events and items lie beside the rows of runs and steps, which every change writes anew."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
INLINE_MOST = 4096
AT_ONCE = 100


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column("params_bytes", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "run_values",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("params", sa.Text()),
        sa.Column("event", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_values"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_values_run_id", ondelete="CASCADE"),
    )
    op.create_table(
        "step_items",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_step_items"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_step_items_run_id", ondelete="CASCADE"),
    )
    _move_run_values()
    _move_items()


def _move_run_values() -> None:
    connection = op.get_bind()
    long = {"most": INLINE_MOST}
    connection.execute(
        sa.text(
            "INSERT INTO run_values (run_id, params, event)"
            " SELECT id, CASE WHEN length(params) > :most THEN params END,"
            " CASE WHEN length(event) > :most THEN event END"
            " FROM runs WHERE length(params) > :most OR length(event) > :most"
        ),
        long,
    )
    connection.execute(
        sa.text("UPDATE runs SET params_bytes = length(params), params = '{}' WHERE length(params) > :most"),
        long,
    )
    slim = sa.text("UPDATE runs SET event = :event WHERE id = :id")
    found = sa.text("SELECT run_id, event FROM run_values WHERE event IS NOT NULL")
    for run_id, event in connection.execute(found).all():
        connection.execute(slim, {"id": run_id, "event": json.dumps({**json.loads(event), "payload": {}})})


def _move_items() -> None:
    """Some at a time: all of them together may be more than the memory has room for."""
    connection = op.get_bind()
    where = "FROM step_runs WHERE length(extra) > :most AND (run_id, position) > (:run_id, :position)"
    page = sa.text(f"SELECT run_id, position, extra {where} ORDER BY run_id, position LIMIT {AT_ONCE}")
    insert = sa.text("INSERT INTO step_items (run_id, position, item) VALUES (:run_id, :position, :item)")
    update = sa.text("UPDATE step_runs SET extra = :extra WHERE run_id = :run_id AND position = :position")
    last = {"run_id": "", "position": -1}
    while rows := connection.execute(page, {**last, "most": INLINE_MOST}).all():
        for run_id, position, text in rows:
            extra = json.loads(text)
            item = json.dumps(extra.pop("item", None), separators=(",", ":"))
            last = {"run_id": run_id, "position": position}
            if len(item) > INLINE_MOST:
                extra["item_bytes"] = len(item)
                connection.execute(insert, {**last, "item": item})
                connection.execute(update, {**last, "extra": json.dumps(extra)})
