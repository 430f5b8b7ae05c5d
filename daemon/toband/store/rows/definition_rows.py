"""Workflows and jobs, and their versions, as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from toban.definition import DefinitionKind
from toband.ports import BY_API, StoredWorkflow, WorkflowVersion
from toband.store.sql.tables import workflow_labels, workflow_uses, workflow_versions, workflows

_WORKFLOW = select(workflows).where(workflows.c.name == bindparam("of_name"))
VERSION = select(workflow_versions).where(
    workflow_versions.c.workflow == bindparam("of_name"),
    workflow_versions.c.version == bindparam("of_version"),
)
_USERS = (
    select(workflow_uses.c.workflow)
    .where(workflow_uses.c.job == bindparam("of_job"))
    .order_by(workflow_uses.c.workflow)
)
_COUNT = select(workflows.c.kind, func.count()).group_by(workflows.c.kind)


def find(connection: Connection, name: str) -> Mapping[str, Any] | None:
    row = connection.execute(_WORKFLOW, {"of_name": name}).mappings().first()
    return None if row is None else dict(row)


def etag_of(stored: Mapping[str, Any]) -> str:
    """A version's number is never used again, so no two states of a workflow share one."""
    return f"{stored['version']}-{stored['revision']}"


def read(connection: Connection, name: str) -> StoredWorkflow | None:
    stored = find(connection, name)
    if stored is None:
        return None
    return workflow_from(stored, read_version(connection, name, stored["version"]))


def read_all(
    connection: Connection,
    after: str,
    limit: int,
    labels: Mapping[str, str],
    kind: DefinitionKind | None,
) -> Sequence[StoredWorkflow]:
    query, name = select(workflows), workflows.c.name
    if kind is not None:
        query = query.where(workflows.c.kind == kind)
    for count, (label, content) in enumerate(labels.items()):
        labelled = workflow_labels.alias(f"label_{count}")
        query = query.join(labelled, labelled.c.workflow == workflows.c.name).where(
            labelled.c.label == label, labelled.c.content == content
        )
        # The walk is along those with the first label, so that workflows without it cost nothing.
        name = name if count else labelled.c.workflow
    query = query.where(name > after).order_by(name).limit(limit)
    return [workflow_from(dict(row)) for row in connection.execute(query).mappings()]


def read_owned(connection: Connection) -> Sequence[StoredWorkflow]:
    query = select(workflows).where(workflows.c.owner != BY_API).order_by(workflows.c.name)
    return [workflow_from(dict(row)) for row in connection.execute(query).mappings()]


def read_versions(connection: Connection, name: str, before: int | None, limit: int) -> Sequence[WorkflowVersion]:
    table = workflow_versions
    query = (
        select(table.c.version, table.c.digest, table.c.base_dir, table.c.created_at)
        .where(table.c.workflow == name)
        .order_by(table.c.version.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(table.c.version < before)
    return [WorkflowVersion(workflow=name, **row) for row in connection.execute(query).mappings()]


def read_version(connection: Connection, name: str, version: int) -> WorkflowVersion | None:
    row = connection.execute(VERSION, {"of_name": name, "of_version": version}).first()
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


def count(connection: Connection) -> Mapping[DefinitionKind, int]:
    """By kind; without those that there are none of."""
    return {kind: number for kind, number in connection.execute(_COUNT)}  # noqa: C416 - rows


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
        # An answer that was remembered by an older release has none.
        kind=DefinitionKind(stored.get("kind", DefinitionKind.WORKFLOW)),
        definition=definition,
    )
