"""The store in a SQL database. Every method is one transaction, or one snapshot, unless it says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from toban.definition import DefinitionKind
from toband.domain.emitted_events import Cause
from toband.ports import (
    Counts,
    Inspection,
    PutResult,
    Request,
    StoredWorkflow,
    WorkflowText,
    WorkflowVersion,
)
from toband.store.rows import (
    database_check,
    definition_rows,
    definitions,
    events,
    idempotent_calls,
    runs,
    schedules,
)
from toband.store.rows.attempts import SqlAttempts
from toband.store.rows.dead_letters import SqlDeadLetters
from toband.store.rows.event_triggers import SqlTriggers
from toband.store.rows.events import SqlEvents
from toband.store.rows.fire_ledger import SqlFires
from toband.store.rows.retention import SqlRetention
from toband.store.rows.runs import SqlRuns
from toband.store.rows.schedules import SqlSchedules
from toband.store.sql.errors import store_errors


class SqlStore(SqlRuns, SqlAttempts, SqlDeadLetters, SqlSchedules, SqlFires, SqlEvents, SqlTriggers, SqlRetention):
    """`toband.ports.Store` for `sqlite:///PATH` and `postgresql://HOST/NAME`.

    Raises StoreError for a URL that names neither.
    """

    # workflows

    async def create_workflow(
        self,
        text: WorkflowText,
        *,
        at: datetime,
        request: Request | None = None,
        cause: Cause | None = None,
    ) -> StoredWorkflow:
        return await self._write.do(definitions.create(self._sql, text, at, request, cause))

    async def update_workflow(
        self,
        text: WorkflowText,
        *,
        at: datetime,
        etag: str = "",
        request: Request | None = None,
        also: Sequence[WorkflowText] = (),
        cause: Cause | None = None,
    ) -> tuple[StoredWorkflow, bool] | None:
        return await self._write.do(definitions.change(self._sql, text, at, etag, request, also, cause))

    async def put_definitions(
        self,
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
        put = definitions.put_all(self._sql, texts, at, also, take_over or {}, etags or {}, request, cause, dry_run)
        return await self._write.do(put)

    async def disown_definition(self, name: str, owner: str, *, at: datetime) -> bool:
        return await self._write.do(definitions.disown(self._sql, name, owner, at))

    async def list_file_owned(self) -> Sequence[StoredWorkflow]:
        return await self._read(definition_rows.read_owned)

    async def get_workflow(self, name: str) -> StoredWorkflow | None:
        return await self._read(definition_rows.read, name)

    async def list_workflows(
        self,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        kind: DefinitionKind | None = DefinitionKind.WORKFLOW,
    ) -> Sequence[StoredWorkflow]:
        return await self._read(definition_rows.read_all, after, limit, labels or {}, kind)

    async def workflows_using(self, job: str) -> Sequence[str]:
        return await self._read(definition_rows.read_users, job)

    async def delete_workflow(
        self,
        name: str,
        *,
        at: datetime,
        etag: str = "",
        kind: DefinitionKind | None = None,
        cause: Cause | None = None,
    ) -> bool:
        return await self._write.do(definitions.remove(self._sql, name, at, etag, kind, cause))

    async def set_enabled(
        self, name: str, enabled: bool, *, at: datetime, cause: Cause | None = None
    ) -> StoredWorkflow | None:
        return await self._write.do(definitions.enable(self._sql, name, enabled, at, cause))

    async def list_versions(
        self, workflow: str, *, before: int | None = None, limit: int = 100
    ) -> Sequence[WorkflowVersion]:
        return await self._read(definition_rows.read_versions, workflow, before, limit)

    async def get_version(self, workflow: str, version: int) -> WorkflowVersion | None:
        return await self._read(definition_rows.read_version, workflow, version)

    # the whole

    async def try_write(self) -> None:
        await self._write.do(database_check.touch)

    async def inspect(self) -> Inspection:
        return await self._read(database_check.inspect, self._database)

    async def checkpoint(self) -> None:
        def call() -> None:
            with store_errors("cannot write to the database", self._database.error):
                self._database.checkpoint()

        await asyncio.to_thread(call)

    async def counts(self) -> Counts:
        return await self._read(_counts)

    async def forget_requests(self, before: datetime) -> int:
        return await self._write.do(idempotent_calls.forget(before))


def _counts(connection: Connection) -> Counts:
    stored = definition_rows.count(connection)
    return Counts(
        workflows=stored.get(DefinitionKind.WORKFLOW, 0),
        active_runs=runs.count_active(connection),
        jobs=stored.get(DefinitionKind.JOB, 0),
        schedules=schedules.count(connection),
        pending_events=events.count_pending(connection),
    )
