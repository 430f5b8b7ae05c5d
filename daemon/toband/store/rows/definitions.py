"""Workflows and jobs, and their versions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from toban.definition import DefinitionKind
from toband.domain.emitted_events import Cause
from toband.ports import (
    ActiveRunError,
    ConflictError,
    EtagMismatchError,
    JobInUseError,
    PutOutcome,
    PutResult,
    Request,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowOwnedError,
    WorkflowText,
)
from toband.store.rows import event_triggers, retention, schedules
from toband.store.rows.definition_events import Action, DataChanges
from toband.store.rows.definition_rows import (
    VERSION,
    etag_of,
    find,
    read,
    read_users,
    read_version,
    workflow_from,
)
from toband.store.rows.idempotent_calls import recall, remember
from toband.store.sql.columns import from_json, from_micros, to_json, to_micros
from toband.store.sql.statements import Statements
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    among,
    runs,
    workflow_labels,
    workflow_uses,
    workflow_versions,
    workflows,
)
from toband.store.sql.writer import Session, Undo

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


# ------------------------------------------------------------------------------------------------ writing


def create(
    sql: Statements,
    text: WorkflowText,
    at: datetime,
    request: Request | None,
    cause: Cause | None,
) -> Callable[[Session], StoredWorkflow]:
    def operation(session: Session) -> StoredWorkflow:
        session.lock_creation()
        answered = recall(session.connection, request)
        if answered is not None:
            return _restored(session.connection, answered)
        taken = find(session.connection, text.name)
        if taken is not None:
            raise WorkflowExistsError(text.name, taken["kind"])
        told = DataChanges(sql, session, at, cause)
        told.add(Action.CREATED, _add(session, text, at))
        told.store()
        return _answer(session, text.name, request, at)

    return operation


def change(
    sql: Statements,
    text: WorkflowText,
    at: datetime,
    etag: str,
    request: Request | None,
    also: Sequence[WorkflowText],
    cause: Cause | None,
) -> Callable[[Session], tuple[StoredWorkflow, bool] | None]:
    def operation(session: Session) -> tuple[StoredWorkflow, bool] | None:
        session.lock_creation()
        answered = recall(session.connection, request)
        if answered is not None:
            return _restored(session.connection, answered), answered["changed"]
        stored = find(session.connection, text.name)
        if stored is None:
            return None
        if stored["kind"] is not text.kind:
            raise WorkflowExistsError(text.name, stored["kind"])
        _check_etag(stored, etag, text.name)
        told = DataChanges(sql, session, at, cause)
        changed = _replace(session, stored, text, at, told)
        if "version" in changed:
            _check_users(session.connection, text, also)
        _replace_users(session, also, at, told)
        told.store()
        return _answer(session, text.name, request, at, changed=bool(changed)), bool(changed)

    return operation


def put_all(
    sql: Statements,
    texts: Sequence[WorkflowText],
    at: datetime,
    also: Sequence[WorkflowText],
    take_over: Mapping[str, str],
    etags: Mapping[str, str],
    request: Request | None,
    cause: Cause | None,
    dry_run: bool,
) -> Callable[[Session], Mapping[str, PutResult]]:
    def operation(session: Session) -> Mapping[str, PutResult]:
        session.lock_creation()
        answered = recall(session.connection, request)
        if answered is not None:
            return {name: _put_from(result) for name, result in answered.items()}
        told = DataChanges(sql, session, at, cause)
        results: dict[str, PutResult] = {}
        changed_jobs = []
        for text in sorted(texts, key=lambda text: text.kind is not DefinitionKind.JOB):
            stored = find(session.connection, text.name)
            _check_etag(stored, etags.get(text.name, ""), text.name)
            if stored is None:
                added = _add(session, text, at)
                told.add(Action.CREATED, added)
                results[text.name] = _put(PutOutcome.CREATED, added)
                continue
            _check_owner(stored, text, take_over)
            changed = _replace(session, stored, text, at, told)
            outcome = PutOutcome.UPDATED if changed else PutOutcome.UNCHANGED
            results[text.name] = _put(outcome, {**stored, **changed})
            if "version" in changed and text.kind is DefinitionKind.JOB:
                changed_jobs.append(text)
        for job in changed_jobs:
            _check_users(session.connection, job, [*also, *texts])
        updated = _replace_users(session, also, at, told)
        for job in changed_jobs:
            users = tuple(user.name for user in updated if job.name in user.uses)
            results[job.name] = replace(results[job.name], users=users)
        told.store()
        if dry_run:
            raise Undo(results)
        remember(session, request, {name: _put_answer(result) for name, result in results.items()}, at)
        return results

    return operation


def _put(outcome: PutOutcome, stored: Mapping[str, Any]) -> PutResult:
    return PutResult(outcome=outcome, version=stored["version"], etag=etag_of(stored))


def _put_answer(result: PutResult) -> Mapping[str, Any]:
    return {
        "outcome": result.outcome.value,
        "version": result.version,
        "etag": result.etag,
        "users": list(result.users),
    }


def _put_from(answer: Mapping[str, Any]) -> PutResult:
    return PutResult(
        outcome=PutOutcome(answer["outcome"]),
        version=answer["version"],
        etag=answer["etag"],
        users=tuple(answer["users"]),
    )


def disown(sql: Statements, name: str, owner: str, at: datetime) -> Callable[[Session], bool]:
    def operation(session: Session) -> bool:
        session.lock_creation()
        stored = find(session.connection, name)
        if stored is None or stored["owner"] != owner or stored["owner_removed"]:
            return False
        values = {
            "owner_removed": True,
            "enabled": False,
            "revision": stored["revision"] + 1,
            "updated_at": at,
        }
        told = DataChanges(sql, session, at)
        session.connection.execute(_CHANGE, {"of_name": name} | values)
        told.add(Action.DISABLED if stored["enabled"] else Action.UPDATED, {**stored, **values})
        told.store()
        return True

    return operation


def _check_owner(stored: Mapping[str, Any], text: WorkflowText, take_over: Mapping[str, str]) -> None:
    """Raises WorkflowOwnedError for what somebody else owns, else WorkflowExistsError for what is of another kind."""
    if stored["owner"] not in (text.owner, take_over.get(text.name, text.owner)):
        raise WorkflowOwnedError(text.name, stored["owner"])
    if stored["kind"] is not text.kind:
        raise WorkflowExistsError(text.name, stored["kind"])


def remove(
    sql: Statements,
    name: str,
    at: datetime,
    etag: str,
    kind: DefinitionKind | None,
    cause: Cause | None,
) -> Callable[[Session], bool]:
    def operation(session: Session) -> bool:
        session.lock_creation()
        stored = find(session.connection, name)
        if stored is None or (kind is not None and stored["kind"] is not kind):
            return False
        _check_etag(stored, etag, name)
        users = read_users(session.connection, name)
        if users:
            raise JobInUseError(users)
        active = session.connection.execute(_OLDEST_ACTIVE, {"of_name": name}).scalar()
        if active is not None:
            raise ActiveRunError(active)
        told = DataChanges(sql, session, at, cause)
        # Labels, uses and triggers go with it.
        session.connection.execute(_DELETE, {"of_name": name})
        schedules.remove_all(session, name)
        told.add(Action.DELETED, stored)
        told.store()
        return True

    return operation


def enable(
    sql: Statements, name: str, enabled: bool, at: datetime, cause: Cause | None
) -> Callable[[Session], StoredWorkflow | None]:
    def operation(session: Session) -> StoredWorkflow | None:
        session.lock_creation()
        stored = find(session.connection, name)
        if stored is None:
            return None
        if stored["enabled"] is not enabled:
            values = {"enabled": enabled, "revision": stored["revision"] + 1, "updated_at": at}
            told = DataChanges(sql, session, at, cause)
            session.connection.execute(_CHANGE, {"of_name": name} | values)
            told.add(Action.ENABLED if enabled else Action.DISABLED, stored)
            told.store()
        return read(session.connection, name)

    return operation


def _add(session: Session, text: WorkflowText, at: datetime) -> Mapping[str, Any]:
    """Its columns; of a name that is free. Raises ConflictError."""
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
    event_triggers.replace_all(session, text)
    retention.replace_rules(session, text)
    return header


def _check_etag(stored: Mapping[str, Any] | None, etag: str, name: str) -> None:
    current = "" if stored is None else etag_of(stored)
    if etag and etag != current:
        raise EtagMismatchError(current, name)


def _check_jobs(connection: Connection, text: WorkflowText) -> None:
    """Raises ConflictError for a job that is not as the text has it."""
    for job in sorted(text.uses):
        stored = find(connection, job)
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
        "owner_removed": text.owner_removed,
    }


def _replace_users(
    session: Session, also: Sequence[WorkflowText], at: datetime, told: DataChanges
) -> Sequence[WorkflowText]:
    """Those that got a new version; deleted ones are passed over. Raises ConflictError."""
    updated = []
    for user in also:
        using = find(session.connection, user.name)
        if using is None:
            continue
        # Only the job was sent: its users keep their owners.
        owned = replace(user, owner=using["owner"], owner_removed=using["owner_removed"])
        if "version" in _replace(session, using, owned, at, told):
            updated.append(user)
    return updated


def _replace(
    session: Session,
    stored: Mapping[str, Any],
    text: WorkflowText,
    at: datetime,
    told: DataChanges,
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
        retention.replace_rules(session, text)
        told.add(Action.UPDATED, {**stored, **values})
    # They may change without it: the daemon's own zone is not written in it.
    schedules.replace_all(session, text)
    event_triggers.replace_all(session, text)
    return values


def _changes(session: Session, stored: Mapping[str, Any], text: WorkflowText, at: datetime) -> dict[str, Any]:
    """The columns that are to change; none if nothing does. Adds a version if need be."""
    key = {"of_name": text.name, "of_version": stored["version"]}
    current = session.connection.execute(VERSION, key).one()
    header = _header(text)
    # It was disabled because it was in no file, and now somebody has it.
    taken_up = stored["owner_removed"] and not text.owner_removed
    if (
        text.source == current.source
        and text.base_dir == current.base_dir
        # As it would come back: JSON knows no tuples.
        and from_json(to_json(text.parsed)) == current.parsed
    ):
        if all(stored[name] == value for name, value in header.items()):
            return {}
        enabled = text.enabled if taken_up else stored["enabled"]
        return header | {"enabled": enabled, "revision": stored["revision"] + 1}
    by_definition = taken_up or text.enabled is not current.enabled
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
    rows = [{"workflow": text.name, "label": label, "content": content} for label, content in text.labels.items()]
    if rows:
        session.connection.execute(insert(workflow_labels), rows)


def _set_uses(session: Session, text: WorkflowText) -> None:
    session.connection.execute(_DELETE_USES, {"of_name": text.name})
    rows = [{"workflow": text.name, "job": job} for job in sorted(text.uses)]
    if rows:
        session.connection.execute(insert(workflow_uses), rows)


# ------------------------------------------------------------------------------------------------ repeated requests


def _answer(session: Session, name: str, request: Request | None, at: datetime, changed: bool = True) -> StoredWorkflow:
    """The workflow as it is now, remembered as the answer to the request."""
    stored = find(session.connection, name)
    assert stored is not None
    if request is not None:
        times = {key: to_micros(stored[key]) for key in ("created_at", "updated_at")}
        remember(session, request, {**stored, **times, "changed": changed}, at)
    return workflow_from(stored, read_version(session.connection, name, stored["version"]))


def _restored(connection: Connection, answer: Mapping[str, Any]) -> StoredWorkflow:
    times = {key: from_micros(answer[key]) for key in ("created_at", "updated_at")}
    definition = read_version(connection, answer["name"], answer["version"])
    return workflow_from({**answer, **times}, definition)
