"""Facts that were texts become columns and flags: why a step was skipped, whether its retry was stopped, its timeout,
whether the file that owned a definition was removed, and why schedules and events did not start runs.

Rows of steps and entries of the history are mapped alike. They are read a page at a time: all of them may not fit into
memory.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = sa.String().with_variant(sa.String(collation="C"), "postgresql")
REMOVED = " (removed)"
NOT_STARTED = (
    ("the workflow is gone|there is no workflow .*", "DELETED", ""),
    ("disabled", "DISABLED", ""),
    ("draining", "DRAINING", ""),
    ("blackout (.*)", "BLACKOUT", r"\1"),
    ("overlap: (.*)", "OVERLAP", r"\1"),
    ("parameters: (.*)", "INVALID_PARAMS", r"\1"),
    (".* wait already, no more may", "QUEUE_FULL", r"\g<0>"),
    (".* was decided before", "DECIDED_BEFORE", ""),
    ("nobody was there, and `misfire: skip` .*", "MISFIRE_SKIP", "the daemon was not running"),
    ("(.*), and `misfire: skip` .*", "MISFIRE_SKIP", r"\1"),
    (
        "nobody was there for longer than its misfire_grace of (.*)",
        "MISFIRE_GRACE",
        r"the daemon was not running for longer than \1",
    ),
    (
        "its misfire_grace of (.*) passed before it could be caught up: (.*)",
        "MISFIRE_GRACE",
        r"not caught up within \1: \2",
    ),
)
STOPPED = {
    "aborted": "the run was aborted",
    "cancelled": "the run was cancelled",
    "timed_out": "the run timed out",
}


def upgrade() -> None:
    op.add_column("step_runs", sa.Column("skip_reason", sa.String()))
    op.add_column("step_runs", sa.Column("source", KEY))
    op.add_column("runs", sa.Column("progress", sa.Text()))
    removed: sa.Column[bool] = sa.Column("owner_removed", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("workflows", removed)
    for table in ("fires", "event_runs"):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN reason TO detail")
        op.add_column(table, sa.Column("reason", sa.String()))
    op.add_column("fires", sa.Column("event_id", KEY, nullable=False, server_default=sa.text("''")))
    _map_not_started(op.get_bind())
    _map_owners(op.get_bind())
    _map_steps(op.get_bind())
    _map_history(op.get_bind())


def _map_not_started(connection: sa.Connection) -> None:
    """Texts of the ledger begin with their reason; few of them differ, apart from their details."""
    emitted = "UPDATE fires SET event_id = substr(detail, 7), detail = '' WHERE detail LIKE 'event %'"
    connection.execute(sa.text(f"{emitted} AND outcome IN ('FIRED', 'CAUGHT_UP')"))
    for table in ("fires", "event_runs"):
        found = connection.execute(sa.text(f"SELECT DISTINCT detail FROM {table} WHERE detail <> ''"))  # noqa: S608 - constants
        update = sa.text(f"UPDATE {table} SET reason = :reason, detail = :detail WHERE detail = :was")  # noqa: S608 - constants
        for (text,) in found.all():
            reason, detail = _not_started(text)
            connection.execute(update, {"was": text, "reason": reason, "detail": detail})


def _not_started(text: str) -> tuple[str, str]:
    for pattern, reason, detail in NOT_STARTED:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return reason, match.expand(detail)
    return "OTHER", text


def _map_owners(connection: sa.Connection) -> None:
    """Of definitions, and of answers that are remembered."""
    update = sa.text("UPDATE workflows SET owner = :owner, owner_removed = :removed WHERE name = :name")
    for name, owner in connection.execute(sa.text("SELECT name, owner FROM workflows")).all():
        if owner.endswith(REMOVED):
            connection.execute(update, {"name": name, "owner": owner.removesuffix(REMOVED), "removed": True})
    answers = sa.text("SELECT caller, rpc, request_id, answer FROM requests WHERE answer LIKE '%\"owner\"%'")
    update = sa.text(
        "UPDATE requests SET answer = :answer WHERE caller = :caller AND rpc = :rpc AND request_id = :request_id"
    )
    for caller, rpc, request_id, text in connection.execute(answers).all():
        answer = json.loads(text)
        owner = answer["owner"]
        answer |= {"owner": owner.removesuffix(REMOVED), "owner_removed": owner.endswith(REMOVED)}
        key = {"caller": caller, "rpc": rpc, "request_id": request_id}
        connection.execute(update, {**key, "answer": _json(answer)})


def _step_facts(state: str, reason: str, extra: dict[str, Any], child_error: str) -> dict[str, Any]:
    """The facts behind the texts of a step. `child_error` is the error of its live child run."""
    facts: dict[str, Any] = {"reason": reason, "skip_reason": None, "source": extra.pop("source", None)}
    match state:
        case "SKIPPED":
            facts |= {"reason": "", "skip_reason": reason or None}
        case "SUCCEEDED" if reason == "kept":
            facts["reason"] = ""
        case "CANCELLED":
            facts["reason"] = STOPPED.get(reason, reason)
        case "READY" if reason:
            extra["retrying"] = True
        case "FAILED" if extra.pop("not_before", None) is not None:
            extra["retry_stopped"] = True
        case "RUNNING" | "CHECKING" if reason:
            # Only the timeout of a loop gave a reason to a step that ran.
            facts["reason"], extra["overdue"] = "", "loop_timeout"
        case "RUNNING" if child_error:
            extra["overdue"] = "timeout"
    return facts | {"extra": _json(extra)}


def _map_steps(connection: sa.Connection) -> None:
    page = sa.text(
        "SELECT s.run_id, s.position, s.state, s.reason, s.extra,"
        " CASE WHEN a.child AND a.state IN ('STARTING', 'RUNNING') THEN a.error ELSE '' END AS child_error"
        " FROM step_runs AS s LEFT JOIN process_executions AS a ON a.id = s.attempt_id AND a.run_id = s.run_id"
        " WHERE (s.run_id, s.position) > (:run_id, :key) AND (s.reason <> '' OR s.state = 'RUNNING'"
        " OR s.extra LIKE '%source%' OR s.extra LIKE '%not_before%')"
        " ORDER BY s.run_id, s.position LIMIT 500"
    )
    update = sa.text(
        "UPDATE step_runs SET reason = :reason, skip_reason = :skip_reason, source = :source, extra = :extra"
        " WHERE run_id = :run_id AND position = :position"
    )
    for row in _rows(connection, page):
        facts = _step_facts(row.state, row.reason, json.loads(row.extra), row.child_error or "")
        connection.execute(update, {"run_id": row.run_id, "position": row.position, **facts})


def _map_history(connection: sa.Connection) -> None:
    page = sa.text(
        "SELECT run_id, sequence, change FROM run_history WHERE (run_id, sequence) > (:run_id, :key)"
        " AND (change LIKE '%\"reason\"%' OR change LIKE '%source%' OR change LIKE '%not_before%'"
        " OR change LIKE '%\"child\"%')"
        " ORDER BY run_id, sequence LIMIT 500"
    )
    update = sa.text("UPDATE run_history SET change = :change WHERE run_id = :run_id AND sequence = :sequence")
    for row in _rows(connection, page):
        change = json.loads(row.change)
        for step in change["steps"]:
            attempt = step.get("attempt", {})
            live = attempt.get("child") and attempt.get("state") in ("STARTING", "RUNNING")
            child_error = attempt.get("error", "") if live else ""
            facts = _step_facts(step["state"], step.pop("reason", ""), json.loads(step.pop("extra", "{}")), child_error)
            step |= {name: value for name, value in facts.items() if value not in (None, "", "{}")}
        connection.execute(update, {"run_id": row.run_id, "sequence": row.sequence, "change": _json(change)})


def _rows(connection: sa.Connection, page: sa.TextClause) -> Iterator[Any]:
    last = {"run_id": "", "key": -1}
    while rows := connection.execute(page, last).all():
        yield from rows
        last = {"run_id": rows[-1][0], "key": rows[-1][1]}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
