"""Triggers of workflows: the event types they listen to and the paths they watch. Stored with their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, true

from toban.definition.model.event_triggers import Pace
from toband.domain.emitted_events import Listener, WatchedPath
from toband.ports import WorkflowText
from toband.store.sql.columns import printable
from toband.store.sql.event_tables import event_triggers
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.tables import workflow_watches, workflows
from toband.store.sql.writer import WriteSession

_OF_WORKFLOW = event_triggers.c.workflow == bindparam("of_workflow")
_TRIGGERS = select(event_triggers).where(_OF_WORKFLOW)
_REMOVE_TRIGGERS = delete(event_triggers).where(_OF_WORKFLOW)
_TYPES = select(event_triggers.c.type).distinct()
_LISTENERS = (
    select(
        event_triggers.c.workflow,
        event_triggers.c.position,
        event_triggers.c.condition,
        event_triggers.c.priority,
        event_triggers.c.scope,
        event_triggers.c.pace,
        workflows.c.enabled,
    )
    .join(workflows, workflows.c.name == event_triggers.c.workflow)
    .where(event_triggers.c.type == bindparam("of_type"))
    .order_by(event_triggers.c.workflow, event_triggers.c.position)
)
_WATCHES_OF = workflow_watches.c.workflow == bindparam("of_workflow")
_WATCHES = (
    select(workflow_watches.c.path, workflow_watches.c.settle).where(_WATCHES_OF).order_by(workflow_watches.c.position)
)
_REMOVE_WATCHES = delete(workflow_watches).where(_WATCHES_OF)
_ENABLED_WATCHES = (
    select(workflow_watches.c.workflow, workflows.c.title, workflow_watches.c.path, workflow_watches.c.settle)
    .join(workflows, workflows.c.name == workflow_watches.c.workflow)
    .where(workflows.c.enabled == true())
    .order_by(workflow_watches.c.workflow, workflow_watches.c.position)
)


class SqlTriggers(OpenDatabase):
    """`toband.ports.TriggerStore`."""

    @reading
    def listened_types(self, connection: Connection) -> frozenset[str]:
        return frozenset(connection.execute(_TYPES).scalars())

    @reading
    def listeners(self, connection: Connection, event_type: str) -> Sequence[Listener]:
        found = connection.execute(_LISTENERS, {"of_type": event_type})
        return [
            Listener(
                workflow=workflow,
                position=position,
                condition=condition,
                priority=priority,
                scope=scope,
                pace=Pace.from_dict(pace),
                enabled=enabled,
            )
            for workflow, position, condition, priority, scope, pace, enabled in found
        ]

    @reading
    def watched_paths(self, connection: Connection) -> Sequence[WatchedPath]:
        found = connection.execute(_ENABLED_WATCHES)
        return [
            WatchedPath(workflow=workflow, title=title, path=path, settle=settle)
            for workflow, title, path, settle in found
        ]


def replace_all(session: WriteSession, definition: WorkflowText) -> None:
    """Stores the triggers of a definition, in its transaction, and removes those it no longer has.

    Raises ValueError for a trigger without a priority.
    """
    _replace_triggers(session, definition)
    _replace_watches(session, definition)


def _replace_triggers(session: WriteSession, definition: WorkflowText) -> None:
    wanted = _rows(definition)
    found = session.connection.execute(_TRIGGERS, {"of_workflow": definition.name}).mappings()
    stored = {(row["position"], row["type"]): dict(row) for row in found}
    if stored == {(row["position"], row["type"]): row for row in wanted}:
        return
    session.connection.execute(_REMOVE_TRIGGERS, {"of_workflow": definition.name})
    if wanted:
        session.connection.execute(insert(event_triggers), wanted)


def _replace_watches(session: WriteSession, definition: WorkflowText) -> None:
    wanted = [(printable(path), settle) for path, settle in definition.watches.items()]
    key = {"of_workflow": definition.name}
    if [(path, settle) for path, settle in session.connection.execute(_WATCHES, key)] == wanted:
        return
    session.connection.execute(_REMOVE_WATCHES, key)
    rows = [
        {"workflow": definition.name, "position": position, "path": path, "settle": settle}
        for position, (path, settle) in enumerate(wanted)
    ]
    if rows:
        session.connection.execute(insert(workflow_watches), rows)


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
                "scope": trigger.scope,
                "pace": trigger.pace.to_dict(),
            }
            for event_type in dict.fromkeys(trigger.events)
        ]
    return rows
