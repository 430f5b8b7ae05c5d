"""Workflows and jobs, and their versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from toban.definition import DefinitionKind
from toband.ports import (
    BY_API,
    REMOVED,
    ActiveRunError,
    ConflictError,
    EtagMismatchError,
    JobInUseError,
    PutOutcome,
    Request,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowOwnedError,
    WorkflowText,
    WorkflowVersion,
)
from toband.store import schedules
from toband.store.columns import from_json, from_micros, to_json, to_micros
from toband.store.requests import recall, remember
from toband.store.tables import (
    ACTIVE_RUNS,
    among,
    runs,
    workflow_labels,
    workflow_uses,
    workflow_versions,
    workflows,
)
from toband.store.writer import Session

_WORKFLOW = select(workflows).where(workflows.c.name == bindparam("of_name"))
_VERSION = select(workflow_versions).where(
    workflow_versions.c.workflow == bindparam("of_name"),
    workflow_versions.c.version == bindparam("of_version"),
)
_LAST_VERSION = select(func.max(workflow_versions.c.version)).where(
    workflow_versions.c.workflow == bindparam("of_name")
)
_OLDEST_ACTIVE = (
    select(runs.c.id)
    .where(runs.c.workflow == bindparam("of_name"), among(runs.c.state, ACTIVE_RUNS))
    .order_by(runs.c.id)
    .limit(1)
)
_CHANGE = update(workflows).where(workflows.c.name == bindparam("of_name"))
_DELETE = delete(workflows).where(workflows.c.name == bindparam("of_name"))
_DELETE_LABELS = delete(workflow_labels).where(workflow_labels.c.workflow == bindparam("of_name"))
_DELETE_USES = delete(workflow_uses).where(workflow_uses.c.workflow == bindparam("of_name"))
_USERS = (
    select(workflow_uses.c.workflow)
    .where(workflow_uses.c.job == bindparam("of_job"))
    .order_by(workflow_uses.c.workflow)
)
_COUNT = select(workflows.c.kind, func.count()).group_by(workflows.c.kind)


# ------------------------------------------------------------------------------------------------ writing


def create(
    text: WorkflowText, at: datetime, request: Request | None
) -> Callable[[Session], StoredWorkflow]:
    def operation(session: Session) -> StoredWorkflow:
        session.lock_creation()
        answered = recall(session.connection, request)
        if answered is not None:
            return _restored(session.connection, answered)
        taken = _find(session.connection, text.name)
        if taken is not None:
            raise WorkflowExistsError(text.name, taken["kind"])
        _add(session, text, at)
        return _answer(session, text.name, request, at)

    return operation


def change(
    text: WorkflowText,
    at: datetime,
    etag: str,
    request: Request | None,
    also: Sequence[WorkflowText],
) -> Callable[[Session], tuple[StoredWorkflow, bool] | None]:
    def operation(session: Session) -> tuple[StoredWorkflow, bool] | None:
        session.lock_creation()
        answered = recall(session.connection, request)
        if answered is not None:
            return _restored(session.connection, answered), answered["changed"]
        stored = _find(session.connection, text.name)
        if stored is None:
            return None
        if stored["kind"] is not text.kind:
            raise WorkflowExistsError(text.name, stored["kind"])
        _check_etag(stored, etag)
        changed = _replace(session, stored, text, at)
        if "version" in changed:
            _check_users(session.connection, text, also)
        for user in also:
            using = _find(session.connection, user.name)
            if using is not None:
                # It was not they who were sent: they stay whose they were.
                _replace(session, using, replace(user, owner=using["owner"]), at)
        return _answer(session, text.name, request, at, changed=bool(changed)), bool(changed)

    return operation


def put_all(
    texts: Sequence[WorkflowText],
    at: datetime,
    also: Sequence[WorkflowText],
    take_over: Mapping[str, str],
) -> Callable[[Session], Mapping[str, PutOutcome]]:
    def operation(session: Session) -> Mapping[str, PutOutcome]:
        session.lock_creation()
        outcomes = {}
        changed_jobs = []
        for text in sorted(texts, key=lambda text: text.kind is not DefinitionKind.JOB):
            stored = _find(session.connection, text.name)
            if stored is None:
                _add(session, text, at)
                outcomes[text.name] = PutOutcome.CREATED
                continue
            _check_owner(stored, text, take_over)
            changed = _replace(session, stored, text, at)
            if stored["owner"].endswith(REMOVED):
                # It was disabled because it was in no file.
                values = {"enabled": text.enabled, "updated_at": at}
                session.connection.execute(_CHANGE, {"of_name": text.name} | values)
            outcomes[text.name] = PutOutcome.UPDATED if changed else PutOutcome.UNCHANGED
            if "version" in changed and text.kind is DefinitionKind.JOB:
                changed_jobs.append(text)
        for job in changed_jobs:
            _check_users(session.connection, job, [*also, *texts])
        for user in also:
            using = _find(session.connection, user.name)
            if using is not None:
                _replace(session, using, replace(user, owner=using["owner"]), at)
        return outcomes

    return operation


def disown(name: str, owner: str, at: datetime) -> Callable[[Session], bool]:
    def operation(session: Session) -> bool:
        session.lock_creation()
        stored = _find(session.connection, name)
        if stored is None or stored["owner"] != owner:
            return False
        values = {
            "owner": owner + REMOVED,
            "enabled": False,
            "revision": stored["revision"] + 1,
            "updated_at": at,
        }
        session.connection.execute(_CHANGE, {"of_name": name} | values)
        return True

    return operation


def _check_owner(
    stored: Mapping[str, Any], text: WorkflowText, take_over: Mapping[str, str]
) -> None:
    """Raises WorkflowExistsError for what is of another kind, WorkflowOwnedError for what somebody else owns."""
    if stored["kind"] is not text.kind:
        raise WorkflowExistsError(text.name, stored["kind"])
    if stored["owner"] not in (text.owner, take_over.get(text.name, text.owner)):
        raise WorkflowOwnedError(text.name, stored["owner"])


def remove(name: str, etag: str, kind: DefinitionKind | None) -> Callable[[Session], bool]:
    def operation(session: Session) -> bool:
        session.lock_creation()
        stored = _find(session.connection, name)
        if stored is None or (kind is not None and stored["kind"] is not kind):
            return False
        _check_etag(stored, etag)
        users = read_users(session.connection, name)
        if users:
            raise JobInUseError(users)
        active = session.connection.execute(_OLDEST_ACTIVE, {"of_name": name}).scalar()
        if active is not None:
            raise ActiveRunError(active)
        session.connection.execute(_DELETE, {"of_name": name})
        schedules.remove_all(session, name)
        return True

    return operation


def enable(name: str, enabled: bool, at: datetime) -> Callable[[Session], StoredWorkflow | None]:
    def operation(session: Session) -> StoredWorkflow | None:
        session.lock_creation()
        stored = _find(session.connection, name)
        if stored is None:
            return None
        if stored["enabled"] is not enabled:
            values = {"enabled": enabled, "revision": stored["revision"] + 1, "updated_at": at}
            session.connection.execute(_CHANGE, {"of_name": name} | values)
        return read(session.connection, name)

    return operation


def _add(session: Session, text: WorkflowText, at: datetime) -> None:
    """Of a name that is free. Raises ConflictError."""
    _check_jobs(session.connection, text)
    version = _add_version(session, text, at)
    header = _header(text) | {
        "name": text.name,
        "kind": text.kind,
        "enabled": text.enabled,
        "version": version,
        "revision": 0,
        "created_at": at,
        "updated_at": at,
    }
    session.connection.execute(insert(workflows), header)
    _set_labels(session, text)
    _set_uses(session, text)
    schedules.replace_all(session, text)


def _find(connection: Connection, name: str) -> Mapping[str, Any] | None:
    row = connection.execute(_WORKFLOW, {"of_name": name}).mappings().first()
    return None if row is None else dict(row)


def _check_etag(stored: Mapping[str, Any], etag: str) -> None:
    if etag and etag != _etag(stored):
        raise EtagMismatchError(_etag(stored))


def _etag(stored: Mapping[str, Any]) -> str:
    """A version's number is never used again, so no two states of a workflow share one."""
    return f"{stored['version']}-{stored['revision']}"


def _check_jobs(connection: Connection, text: WorkflowText) -> None:
    """Raises ConflictError for a job that is not as the text has it."""
    for job in sorted(text.uses):
        stored = _find(connection, job)
        if stored is None or stored["kind"] is not DefinitionKind.JOB:
            raise ConflictError(job)
        if stored["version"] != text.job_versions.get(job, stored["version"]):
            raise ConflictError(job)


def _check_users(connection: Connection, job: WorkflowText, also: Sequence[WorkflowText]) -> None:
    """Raises ConflictError for a workflow that came to use the job meanwhile."""
    known = {user.name for user in also}
    for user in read_users(connection, job.name):
        if user not in known:
            raise ConflictError(user)


def _header(text: WorkflowText) -> dict[str, Any]:
    return {
        "title": text.title,
        "description": text.description,
        "labels": text.labels,
        "owner": text.owner,
    }


def _replace(
    session: Session, stored: Mapping[str, Any], text: WorkflowText, at: datetime
) -> dict[str, Any]:
    """The columns that changed. Raises ConflictError."""
    if text.expected_version not in (None, stored["version"]):
        raise ConflictError(text.name)
    _check_jobs(session.connection, text)
    values = _changes(session, stored, text, at)
    if values:
        session.connection.execute(_CHANGE, {"of_name": text.name, "updated_at": at} | values)
        _set_labels(session, text)
        _set_uses(session, text)
    # They may change without it: the daemon's own zone is not written in it.
    schedules.replace_all(session, text)
    return values


def _changes(
    session: Session, stored: Mapping[str, Any], text: WorkflowText, at: datetime
) -> dict[str, Any]:
    """The columns that are to change; none if nothing does. Adds a version if need be."""
    key = {"of_name": text.name, "of_version": stored["version"]}
    current = session.connection.execute(_VERSION, key).one()
    header = _header(text)
    if (
        text.source == current.source
        and text.base_dir == current.base_dir
        # As it would come back: JSON knows no tuples.
        and from_json(to_json(text.parsed)) == current.parsed
    ):
        if all(stored[name] == value for name, value in header.items()):
            return {}
        return header | {"revision": stored["revision"] + 1}
    by_definition = text.enabled is not current.enabled
    return header | {
        "enabled": text.enabled if by_definition else stored["enabled"],
        "version": _add_version(session, text, at),
        "revision": 0,
    }


def _add_version(session: Session, text: WorkflowText, at: datetime) -> int:
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


def _set_labels(session: Session, text: WorkflowText) -> None:
    session.connection.execute(_DELETE_LABELS, {"of_name": text.name})
    rows = [
        {"workflow": text.name, "label": label, "content": content}
        for label, content in text.labels.items()
    ]
    if rows:
        session.connection.execute(insert(workflow_labels), rows)


def _set_uses(session: Session, text: WorkflowText) -> None:
    session.connection.execute(_DELETE_USES, {"of_name": text.name})
    rows = [{"workflow": text.name, "job": job} for job in sorted(text.uses)]
    if rows:
        session.connection.execute(insert(workflow_uses), rows)


# ------------------------------------------------------------------------------------------------ repeated requests


def _answer(
    session: Session, name: str, request: Request | None, at: datetime, changed: bool = True
) -> StoredWorkflow:
    """The workflow as it is now, remembered as the answer to the request."""
    stored = _find(session.connection, name)
    assert stored is not None
    if request is not None:
        times = {key: to_micros(stored[key]) for key in ("created_at", "updated_at")}
        remember(session, request, {**stored, **times, "changed": changed}, at)
    return _workflow(stored, read_version(session.connection, name, stored["version"]))


def _restored(connection: Connection, answer: Mapping[str, Any]) -> StoredWorkflow:
    times = {key: from_micros(answer[key]) for key in ("created_at", "updated_at")}
    definition = read_version(connection, answer["name"], answer["version"])
    return _workflow({**answer, **times}, definition)


# ------------------------------------------------------------------------------------------------ reading


def read(connection: Connection, name: str) -> StoredWorkflow | None:
    stored = _find(connection, name)
    if stored is None:
        return None
    return _workflow(stored, read_version(connection, name, stored["version"]))


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
    return [_workflow(dict(row)) for row in connection.execute(query).mappings()]


def read_owned(connection: Connection) -> Sequence[StoredWorkflow]:
    query = select(workflows).where(workflows.c.owner != BY_API).order_by(workflows.c.name)
    return [_workflow(dict(row)) for row in connection.execute(query).mappings()]


def read_versions(
    connection: Connection, name: str, before: int | None, limit: int
) -> Sequence[WorkflowVersion]:
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


def count(connection: Connection) -> Mapping[DefinitionKind, int]:
    """By kind; without those that there are none of."""
    return {kind: number for kind, number in connection.execute(_COUNT)}  # noqa: C416 - rows


def _workflow(
    stored: Mapping[str, Any], definition: WorkflowVersion | None = None
) -> StoredWorkflow:
    return StoredWorkflow(
        name=stored["name"],
        title=stored["title"],
        description=stored["description"],
        labels=stored["labels"],
        enabled=stored["enabled"],
        version=stored["version"],
        owner=stored["owner"],
        created_at=stored["created_at"],
        updated_at=stored["updated_at"],
        etag=_etag(stored),
        # An answer that was remembered by an older release has none.
        kind=DefinitionKind(stored.get("kind", DefinitionKind.WORKFLOW)),
        definition=definition,
    )
