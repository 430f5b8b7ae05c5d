"""Workflows, jobs and their versions as rows, and back; in whatever transaction needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from toban.definition import DefinitionKind
from toband.domain.identity import Visible
from toband.ports import StoredWorkflow, WorkflowText, WorkflowVersion
from toband.store.sql.columns import from_json, to_json
from toband.store.sql.tables import workflow_labels, workflow_uses, workflow_versions, workflows
from toband.store.sql.visible_rows import only_visible
from toband.store.sql.writer import WriteSession

_WORKFLOW = select(workflows).where(workflows.c.name == bindparam("of_name"))
_VERSION = select(workflow_versions).where(
    workflow_versions.c.workflow == bindparam("of_name"),
    workflow_versions.c.version == bindparam("of_version"),
)
_USERS = (
    select(workflow_uses.c.workflow)
    .where(workflow_uses.c.job == bindparam("of_job"))
    .order_by(workflow_uses.c.workflow)
)
_LAST_VERSION = select(func.max(workflow_versions.c.version)).where(
    workflow_versions.c.workflow == bindparam("of_name")
)
_DELETE_LABELS = delete(workflow_labels).where(workflow_labels.c.workflow == bindparam("of_name"))
_DELETE_USES = delete(workflow_uses).where(workflow_uses.c.workflow == bindparam("of_name"))
_COUNT = select(workflows.c.kind, func.count()).group_by(workflows.c.kind)


def find(connection: Connection, name: str) -> Mapping[str, Any] | None:
    row = connection.execute(_WORKFLOW, {"of_name": name}).mappings().first()
    return None if row is None else dict(row)


def etag_of(stored: Mapping[str, Any]) -> str:
    """Version numbers are never reused, so no two states of a definition share an etag."""
    return f"{stored['version']}-{stored['revision']}"


def read(connection: Connection, name: str) -> StoredWorkflow | None:
    stored = find(connection, name)
    if stored is None:
        return None
    return workflow_from(stored, read_version(connection, name, stored["version"]))


def read_version(connection: Connection, name: str, version: int) -> WorkflowVersion | None:
    row = connection.execute(_VERSION, {"of_name": name, "of_version": version}).first()
    if row is None:
        return None
    return WorkflowVersion(
        workflow=row.workflow,
        version=row.version,
        digest=row.digest,
        created_at=row.created_at,
        source=row.source,
        base_dir=row.base_dir,
        parsed=row.parsed,
    )


def read_users(connection: Connection, job: str) -> Sequence[str]:
    return connection.execute(_USERS, {"of_job": job}).scalars().all()


def count(connection: Connection, visible: Visible = None) -> Mapping[DefinitionKind, int]:
    """By kind; without kinds that have none."""
    query = only_visible(_COUNT, connection, workflows.c.name, visible)
    return {kind: number for kind, number in connection.execute(query)}  # noqa: C416 - rows


def workflow_from(stored: Mapping[str, Any], definition: WorkflowVersion | None = None) -> StoredWorkflow:
    return StoredWorkflow(
        name=stored["name"],
        title=stored["title"],
        description=stored["description"],
        labels=stored["labels"],
        enabled=stored["enabled"],
        version=stored["version"],
        owner=stored["owner"],
        owner_removed=stored["owner_removed"],
        created_at=stored["created_at"],
        updated_at=stored["updated_at"],
        etag=etag_of(stored),
        # An answer that an older release remembered has none.
        kind=DefinitionKind(stored.get("kind", DefinitionKind.WORKFLOW)),
        definition=definition,
    )


def header_of(text: WorkflowText) -> dict[str, Any]:
    return {
        "title": text.title,
        "description": text.description,
        "labels": text.labels,
        "owner": text.owner,
        "owner_removed": text.owner_removed,
    }


def add_version(session: WriteSession, text: WorkflowText, at: datetime) -> int:
    last = session.connection.execute(_LAST_VERSION, {"of_name": text.name}).scalar()
    version = (last or 0) + 1
    row = {
        "workflow": text.name,
        "version": version,
        "digest": hashlib.sha256(text.source.encode()).hexdigest(),
        "source": text.source,
        "base_dir": text.base_dir,
        "parsed": text.parsed,
        "enabled": text.enabled,
        "created_at": at,
    }
    session.connection.execute(insert(workflow_versions), row)
    return version


def set_labels(session: WriteSession, text: WorkflowText) -> None:
    session.connection.execute(_DELETE_LABELS, {"of_name": text.name})
    rows = [{"workflow": text.name, "label": label, "content": content} for label, content in text.labels.items()]
    if rows:
        session.connection.execute(insert(workflow_labels), rows)


def set_uses(session: WriteSession, text: WorkflowText) -> None:
    session.connection.execute(_DELETE_USES, {"of_name": text.name})
    rows = [{"workflow": text.name, "job": job} for job in sorted(text.uses)]
    if rows:
        session.connection.execute(insert(workflow_uses), rows)


def changed_columns(
    session: WriteSession, stored: Mapping[str, Any], text: WorkflowText, at: datetime
) -> dict[str, Any]:
    """The columns to change; empty if nothing differs. Adds a version if the definition differs."""
    key = {"of_name": text.name, "of_version": stored["version"]}
    current = session.connection.execute(_VERSION, key).one()
    header = header_of(text)
    # Its file was removed, which disabled it, and now it has an owner again.
    taken_up = stored["owner_removed"] and not text.owner_removed
    if (
        text.source == current.source
        and text.base_dir == current.base_dir
        # Through JSON, because the stored one came from there: it has lists for tuples.
        and from_json(to_json(text.parsed)) == current.parsed
    ):
        if all(stored[name] == value for name, value in header.items()):
            return {}
        enabled = text.enabled if taken_up else stored["enabled"]
        return header | {"enabled": enabled, "revision": stored["revision"] + 1}
    by_definition = taken_up or text.enabled is not current.enabled
    return header | {
        "enabled": text.enabled if by_definition else stored["enabled"],
        "version": add_version(session, text, at),
        "revision": 0,
    }
