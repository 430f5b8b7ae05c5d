"""Text for what starts a workflow or a job: its schedules and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.cli.human_text import clock

if TYPE_CHECKING:
    from toban.v1 import job_pb2, workflow_pb2


def next_due_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """The next due time of a definition; empty if it has no schedules."""
    if not definition.schedules:
        return ""
    return clock(definition.next_due, absent="none") + _held(definition)


def events_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """The event types that start a definition; empty if there are none."""
    if not definition.event_types:
        return ""
    return f"{', '.join(definition.event_types)}{_held(definition)}"


def _held(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    return "" if definition.enabled else "; disabled, so not started"
