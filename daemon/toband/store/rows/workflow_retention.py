"""What workflows say themselves about how long their runs are kept: stored with them, since few do."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select

from toban.definition import Retention
from toband.ports import WorkflowText
from toband.store.sql.tables import workflow_retention as table
from toband.store.sql.writer import Session

_FIND = select(table.c.rules).where(table.c.workflow == bindparam("of_workflow"))
_REMOVE = delete(table).where(table.c.workflow == bindparam("of_workflow"))
_ALL = select(table.c.workflow, table.c.rules).order_by(table.c.workflow)


def replace_own(session: Session, definition: WorkflowText) -> None:
    """In the transaction that stores the definition: from here on what that says holds, and nothing else."""
    wanted = definition.parsed.get("retention")
    key = {"of_workflow": definition.name}
    if session.connection.execute(_FIND, key).scalar() == wanted:
        return
    session.connection.execute(_REMOVE, key)
    if wanted is not None:
        session.connection.execute(insert(table), {"workflow": definition.name, "rules": wanted})


def read_all(connection: Connection) -> Mapping[str, Retention]:
    return {name: Retention.from_dict(rules) for name, rules in connection.execute(_ALL)}
