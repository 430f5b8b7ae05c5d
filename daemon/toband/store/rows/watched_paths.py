"""Paths that workflows watch: stored with them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select, true

from toband.domain.emitted_events import WatchedPath
from toband.ports import WorkflowText
from toband.store.sql.columns import printable
from toband.store.sql.tables import workflow_watches as table
from toband.store.sql.tables import workflows
from toband.store.sql.writer import Session

_OF_WORKFLOW = table.c.workflow == bindparam("of_workflow")
_FIND_ALL = select(table.c.path).where(_OF_WORKFLOW).order_by(table.c.position)
_REMOVE_ALL = delete(table).where(_OF_WORKFLOW)
_ENABLED = (
    select(table.c.workflow, table.c.path)
    .join(workflows, workflows.c.name == table.c.workflow)
    .where(workflows.c.enabled == true())
    .order_by(table.c.workflow, table.c.position)
)


def replace_all(session: Session, definition: WorkflowText) -> None:
    """In the transaction that stores the definition: from here on it watches what that says, and nothing else."""
    wanted = [printable(path) for path in definition.watches]
    key = {"of_workflow": definition.name}
    if session.connection.execute(_FIND_ALL, key).scalars().all() == wanted:
        return
    session.connection.execute(_REMOVE_ALL, key)
    rows = [{"workflow": definition.name, "position": position, "path": path} for position, path in enumerate(wanted)]
    if rows:
        session.connection.execute(insert(table), rows)


def read(connection: Connection) -> Sequence[WatchedPath]:
    """Of those that are enabled."""
    found = connection.execute(_ENABLED)
    return [WatchedPath(workflow=workflow, path=path) for workflow, path in found]
