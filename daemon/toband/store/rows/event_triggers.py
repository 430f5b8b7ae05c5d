"""What workflows listen to: stored with them, found by the type of an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from toband.domain.emitted_events import Listener
from toband.ports import WorkflowText
from toband.store.sql.columns import printable
from toband.store.sql.tables import event_triggers as table
from toband.store.sql.tables import workflows
from toband.store.sql.writer import Session

_OF_WORKFLOW = table.c.workflow == bindparam("of_workflow")
_FIND_ALL = select(table).where(_OF_WORKFLOW)
_REMOVE_ALL = delete(table).where(_OF_WORKFLOW)
_TYPES = select(table.c.type).distinct()
_LISTENERS = (
    select(
        table.c.workflow,
        table.c.position,
        table.c.condition,
        table.c.priority,
        workflows.c.enabled,
    )
    .join(workflows, workflows.c.name == table.c.workflow)
    .where(table.c.type == bindparam("of_type"))
    .order_by(table.c.workflow, table.c.position)
)


def replace_all(session: Session, definition: WorkflowText) -> None:
    """In the transaction that stores the definition: from here on it listens to what that says, and nothing else.

    Raises ValueError for a trigger without a priority.
    """
    wanted = _rows(definition)
    found = session.connection.execute(_FIND_ALL, {"of_workflow": definition.name}).mappings()
    stored = {(row["position"], row["type"]): dict(row) for row in found}
    if stored == {(row["position"], row["type"]): row for row in wanted}:
        return
    session.connection.execute(_REMOVE_ALL, {"of_workflow": definition.name})
    if wanted:
        session.connection.execute(insert(table), wanted)


def _rows(definition: WorkflowText) -> list[dict[str, Any]]:
    rows = []
    for position, trigger in enumerate(definition.triggers):
        if trigger.priority is None:
            raise ValueError(f"cannot store the workflow {definition.name}: `on` entry {position} has no priority")
        rows += [
            {
                "workflow": definition.name,
                "position": position,
                "type": event_type,
                "condition": printable(trigger.condition),
                "priority": trigger.priority,
            }
            for event_type in dict.fromkeys(trigger.events)
        ]
    return rows


def read_types(connection: Connection) -> frozenset[str]:
    return frozenset(connection.execute(_TYPES).scalars())


def read_listeners(connection: Connection, event_type: str) -> Sequence[Listener]:
    found = connection.execute(_LISTENERS, {"of_type": event_type})
    return [
        Listener(
            workflow=workflow,
            position=position,
            condition=condition,
            priority=priority,
            enabled=enabled,
        )
        for workflow, position, condition, priority, enabled in found
    ]
