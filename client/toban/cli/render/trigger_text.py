"""Text for what starts a workflow or a job: its schedules and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.human_text import clock

if TYPE_CHECKING:
    from toban.v1 import job_pb2, workflow_pb2


def next_due_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """When its schedules are due next; empty if it has none."""
    if not definition.schedules:
        return ""
    return clock(definition.next_due, absent="no time that is known") + _held(definition)


def events_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """The types of events that start it; empty if none does."""
    if not definition.event_types:
        return ""
    return f"{', '.join(definition.event_types)}{_held(definition)}"


def _held(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    return "" if definition.enabled else "; not started while it is disabled"
