"""Definitions: stores, changes, enables and removes workflows and jobs, and reads them with their versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from toban.definition import DefinitionKind
from toband.domain.emitted_events import Cause
from toband.domain.identity import Visible
from toband.domain.run_model import run_name
from toband.ports import (
    BY_API,
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
    WorkflowVersion,
)
from toband.store.rows import event_triggers, retention, schedules
from toband.store.rows.definition_events import Action, DefinitionChanges
from toband.store.rows.definition_rows import (
    add_version,
    changed_columns,
    count,
    etag_of,
    find,
    header_of,
    read,
    read_users,
    read_version,
    set_labels,
    set_uses,
    workflow_from,
)
from toband.store.rows.idempotent_calls import recall_change, remember
from toband.store.sql.columns import from_micros, to_micros
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    among,
    runs,
    workflow_labels,
    workflow_versions,
    workflows,
)
from toband.store.sql.visible_rows import only_visible
from toband.store.sql.writer import Undo, WriteSession

_OLDEST_ACTIVE = (
    select(runs.c.id, runs.c.number)
    .where(runs.c.workflow == bindparam("of_name"), among(runs.c.state, ACTIVE_RUNS))
    .order_by(runs.c.id)
    .limit(1)
)
_CHANGE = update(workflows).where(workflows.c.name == bindparam("of_name"))
_TITLES = select(workflows.c.name, workflows.c.title).where(workflows.c.name.in_(bindparam("names", expanding=True)))
_LABELS = select(workflows.c.name, workflows.c.labels).where(workflows.c.name.in_(bindparam("names", expanding=True)))
_DELETE = delete(workflows).where(workflows.c.name == bindparam("of_name"))


class SqlDefinitions(OpenDatabase):
    """`toband.ports.DefinitionStore`."""

    @writing
    def create_workflow(
        self,
        session: WriteSession,
        text: WorkflowText,
        *,
        at: datetime,
        request: Request | None = None,
        cause: Cause | None = None,
    ) -> StoredWorkflow:
        session.lock_creation()
        answered = recall_change(session, request)
        if answered is not None:
            return _restored(session.connection, answered)
        taken = find(session.connection, text.name)
        if taken is not None:
            raise WorkflowExistsError(text.name, taken["kind"])
        changes = DefinitionChanges(self._sql, session, at, cause)
        changes.add(Action.CREATED, _add(session, text, at), new=text.source)
        changes.store()
        return _answer(session, text.name, request, at)

    @writing
    def update_workflow(
        self,
        session: WriteSession,
        text: WorkflowText,
        *,
        at: datetime,
        etag: str = "",
        request: Request | None = None,
        also: Sequence[WorkflowText] = (),
        cause: Cause | None = None,
    ) -> tuple[StoredWorkflow, bool] | None:
        session.lock_creation()
        answered = recall_change(session, request)
        if answered is not None:
            return _restored(session.connection, answered), answered["changed"]
        stored = find(session.connection, text.name)
        if stored is None:
            return None
        if stored["kind"] is not text.kind:
            raise WorkflowExistsError(text.name, stored["kind"])
        _check_etag(stored, etag, text.name)
        changes = DefinitionChanges(self._sql, session, at, cause)
        changed = _replace(session, stored, text, at, changes)
        if "version" in changed:
            _check_users(session.connection, text, also)
        _replace_users(session, also, at, changes)
        changes.store()
        return _answer(session, text.name, request, at, changed=bool(changed)), bool(changed)

    @writing
    def put_definitions(
        self,
        session: WriteSession,
        texts: Sequence[WorkflowText],
        *,
        at: datetime,
        also: Sequence[WorkflowText] = (),
        take_over: Mapping[str, str] | None = None,
        etags: Mapping[str, str] | None = None,
        request: Request | None = None,
        cause: Cause | None = None,
        dry_run: bool = False,
    ) -> Mapping[str, PutResult]:
        session.lock_creation()
        answered = recall_change(session, request)
        if answered is not None:
            return {name: _put_from(result) for name, result in answered.items()}
        changes = DefinitionChanges(self._sql, session, at, cause)
        results: dict[str, PutResult] = {}
        changed_jobs = []
        for text in sorted(texts, key=lambda text: text.kind is not DefinitionKind.JOB):
            stored = find(session.connection, text.name)
            _check_etag(stored, (etags or {}).get(text.name, ""), text.name)
            if stored is None:
                added = _add(session, text, at)
                changes.add(Action.CREATED, added, new=text.source)
                results[text.name] = _put(PutOutcome.CREATED, added)
                continue
            _check_owner(stored, text, take_over or {})
            changed = _replace(session, stored, text, at, changes)
            outcome = PutOutcome.UPDATED if changed else PutOutcome.UNCHANGED
            results[text.name] = _put(outcome, {**stored, **changed})
            if "version" in changed and text.kind is DefinitionKind.JOB:
                changed_jobs.append(text)
        for job in changed_jobs:
            _check_users(session.connection, job, [*also, *texts])
        updated = _replace_users(session, also, at, changes)
        for job in changed_jobs:
            users = tuple(user.name for user in updated if job.name in user.uses)
            results[job.name] = replace(results[job.name], users=users)
        changes.store()
        if dry_run:
            raise Undo(results)
        remember(session, request, {name: _put_answer(result) for name, result in results.items()}, at)
        return results

    @writing
    def disown_definition(self, session: WriteSession, name: str, owner: str, *, at: datetime) -> bool:
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
        changes = DefinitionChanges(self._sql, session, at)
        session.connection.execute(_CHANGE, {"of_name": name} | values)
        changes.add(Action.DISABLED if stored["enabled"] else Action.UPDATED, {**stored, **values})
        changes.store()
        return True

    @writing
    def delete_workflow(
        self,
        session: WriteSession,
        name: str,
        *,
        at: datetime,
        etag: str = "",
        kind: DefinitionKind | None = None,
        cause: Cause | None = None,
    ) -> bool:
        session.lock_creation()
        stored = find(session.connection, name)
        if stored is None or (kind is not None and stored["kind"] is not kind):
            return False
        _check_etag(stored, etag, name)
        users = read_users(session.connection, name)
        if users:
            raise JobInUseError(users)
        active = session.connection.execute(_OLDEST_ACTIVE, {"of_name": name}).first()
        if active is not None:
            raise ActiveRunError(active.id, run_name(name, active.number))
        changes = DefinitionChanges(self._sql, session, at, cause)
        # The database deletes labels, uses and triggers with it.
        session.connection.execute(_DELETE, {"of_name": name})
        schedules.remove_all(session, name)
        changes.add(Action.DELETED, stored, old=_source(session, stored))
        changes.store()
        return True

    @writing
    def set_enabled(
        self, session: WriteSession, name: str, enabled: bool, *, at: datetime, cause: Cause | None = None
    ) -> StoredWorkflow | None:
        session.lock_creation()
        stored = find(session.connection, name)
        if stored is None:
            return None
        if stored["enabled"] is not enabled:
            values = {"enabled": enabled, "revision": stored["revision"] + 1, "updated_at": at}
            changes = DefinitionChanges(self._sql, session, at, cause)
            session.connection.execute(_CHANGE, {"of_name": name} | values)
            changes.add(Action.ENABLED if enabled else Action.DISABLED, stored)
            changes.store()
        return read(session.connection, name)

    @reading
    def get_workflow(self, connection: Connection, name: str) -> StoredWorkflow | None:
        return read(connection, name)

    @reading
    def workflow_titles(self, connection: Connection, names: Collection[str]) -> Mapping[str, str]:
        return {row.name: row.title for row in connection.execute(_TITLES, {"names": list(names)})}

    @reading
    def list_workflows(
        self,
        connection: Connection,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        kind: DefinitionKind | None = DefinitionKind.WORKFLOW,
        visible: Visible = None,
    ) -> Sequence[StoredWorkflow]:
        query, name = select(workflows), workflows.c.name
        if kind is not None:
            query = query.where(workflows.c.kind == kind)
        for number, (label, content) in enumerate((labels or {}).items()):
            labelled = workflow_labels.alias(f"label_{number}")
            query = query.join(labelled, labelled.c.workflow == workflows.c.name).where(
                labelled.c.label == label, labelled.c.content == content
            )
            # Walks along the first label, so that workflows without it are not read.
            name = name if number else labelled.c.workflow
        query = only_visible(query, connection, workflows.c.name, visible)
        query = query.where(name > after).order_by(name).limit(limit)
        return [workflow_from(dict(row)) for row in connection.execute(query).mappings()]

    @reading
    def labels_of(self, connection: Connection, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {row.name: row.labels for row in connection.execute(_LABELS, {"names": list(names)})}

    @reading
    def count_definitions(self, connection: Connection, *, visible: Visible = None) -> Mapping[DefinitionKind, int]:
        return count(connection, visible)

    @reading
    def list_file_owned(self, connection: Connection) -> Sequence[StoredWorkflow]:
        query = select(workflows).where(workflows.c.owner != BY_API).order_by(workflows.c.name)
        return [workflow_from(dict(row)) for row in connection.execute(query).mappings()]

    @reading
    def workflows_using(self, connection: Connection, job: str) -> Sequence[str]:
        return read_users(connection, job)

    @reading
    def list_versions(
        self, connection: Connection, workflow: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[WorkflowVersion]:
        table = workflow_versions
        query = (
            select(table.c.version, table.c.digest, table.c.base_dir, table.c.created_at)
            .where(table.c.workflow == workflow)
            .order_by(table.c.version.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(table.c.version < before)
        return [WorkflowVersion(workflow=workflow, **row) for row in connection.execute(query).mappings()]

    @reading
    def get_version(self, connection: Connection, workflow: str, version: int) -> WorkflowVersion | None:
        return read_version(connection, workflow, version)


def _source(session: WriteSession, stored: Mapping[str, Any]) -> str:
    """The text of a definition, for the audit log; empty if the change is not recorded there."""
    if not session.audits:
        return ""
    found = read_version(session.connection, stored["name"], stored["version"])
    return "" if found is None or found.source is None else found.source


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


def _check_owner(stored: Mapping[str, Any], text: WorkflowText, take_over: Mapping[str, str]) -> None:
    """Raises WorkflowOwnedError for another owner's definition, else WorkflowExistsError for one of another kind."""
    if stored["owner"] not in (text.owner, take_over.get(text.name, text.owner)):
        raise WorkflowOwnedError(text.name, stored["owner"])
    if stored["kind"] is not text.kind:
        raise WorkflowExistsError(text.name, stored["kind"])


def _add(session: WriteSession, text: WorkflowText, at: datetime) -> Mapping[str, Any]:
    """Stores a definition whose name is free; returns its columns. Raises ConflictError."""
    _check_jobs(session.connection, text)
    version = add_version(session, text, at)
    header = header_of(text) | {
        "name": text.name,
        "kind": text.kind,
        "enabled": text.enabled,
        "version": version,
        "revision": 0,
        "created_at": at,
        "updated_at": at,
    }
    session.connection.execute(insert(workflows), header)
    set_labels(session, text)
    set_uses(session, text)
    schedules.replace_all(session, text)
    event_triggers.replace_all(session, text)
    retention.replace_rules(session, text)
    return header


def _check_etag(stored: Mapping[str, Any] | None, etag: str, name: str) -> None:
    current = "" if stored is None else etag_of(stored)
    if etag and etag != current:
        raise EtagMismatchError(current, name)


def _check_jobs(connection: Connection, text: WorkflowText) -> None:
    """Raises ConflictError for a job that is not at the version that the text was resolved with."""
    for job in sorted(text.uses):
        stored = find(connection, job)
        if stored is None or stored["kind"] is not DefinitionKind.JOB:
            raise ConflictError(job)
        if stored["version"] != text.job_versions.get(job, stored["version"]):
            raise ConflictError(job)


def _check_users(connection: Connection, job: WorkflowText, also: Sequence[WorkflowText]) -> None:
    """Raises ConflictError for a workflow that uses the job and is not in `also`."""
    known = {user.name for user in also}
    for user in read_users(connection, job.name):
        if user not in known:
            raise ConflictError(user)


def _replace_users(
    session: WriteSession, also: Sequence[WorkflowText], at: datetime, changes: DefinitionChanges
) -> Sequence[WorkflowText]:
    """Those that got a new version; deleted ones are passed over. Raises ConflictError."""
    updated = []
    for user in also:
        using = find(session.connection, user.name)
        if using is None:
            continue
        # Only the job was sent: its users keep their owners.
        owned = replace(user, owner=using["owner"], owner_removed=using["owner_removed"])
        if "version" in _replace(session, using, owned, at, changes):
            updated.append(user)
    return updated


def _replace(
    session: WriteSession,
    stored: Mapping[str, Any],
    text: WorkflowText,
    at: datetime,
    changes: DefinitionChanges,
) -> dict[str, Any]:
    """The columns that changed. Raises ConflictError."""
    if text.expected_version not in (None, stored["version"]):
        raise ConflictError(text.name)
    _check_jobs(session.connection, text)
    old = _source(session, stored)
    values = changed_columns(session, stored, text, at)
    if values:
        session.connection.execute(_CHANGE, {"of_name": text.name, "updated_at": at} | values)
        set_labels(session, text)
        set_uses(session, text)
        retention.replace_rules(session, text)
        changes.add(Action.UPDATED, {**stored, **values}, old=old, new=text.source if old else "")
    # They may change while the definition does not: the daemon's own time zone is not part of it.
    schedules.replace_all(session, text)
    event_triggers.replace_all(session, text)
    return values


# ------------------------------------------------------------------------------------------------ repeated requests


def _answer(
    session: WriteSession, name: str, request: Request | None, at: datetime, changed: bool = True
) -> StoredWorkflow:
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
