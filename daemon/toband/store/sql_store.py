"""The store: every noun in one SQL database, and the database as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection

from toban.definition import DefinitionKind
from toband.ports import Counts, Inspection
from toband.store.rows import database_check, definition_rows, events, idempotent_calls, runs, schedules
from toband.store.rows.access import SqlAccess
from toband.store.rows.attempts import SqlAttempts
from toband.store.rows.audit_entries import SqlAudit
from toband.store.rows.dead_letters import SqlDeadLetters
from toband.store.rows.definitions import SqlDefinitions
from toband.store.rows.event_triggers import SqlTriggers
from toband.store.rows.events import SqlEvents
from toband.store.rows.fire_ledger import SqlFires
from toband.store.rows.hooks import SqlHooks
from toband.store.rows.ids import SqlIds
from toband.store.rows.lock_leftovers import SqlLockLeftovers
from toband.store.rows.old_definitions import SqlOldDefinitions
from toband.store.rows.retention import SqlRetention
from toband.store.rows.run_statistics import SqlRunStatistics
from toband.store.rows.runs import SqlRuns
from toband.store.rows.schedules import SqlSchedules
from toband.store.rows.secrets import SqlSecrets
from toband.store.rows.summaries import SqlSummaries
from toband.store.sql.errors import store_errors
from toband.store.sql.open_database import reading, writing
from toband.store.sql.row_snapshot import RowSnapshot, missing_runs
from toband.store.sql.writer import WriteSession


class SqlStore(
    SqlDefinitions,
    SqlRuns,
    SqlAttempts,
    SqlDeadLetters,
    SqlIds,
    SqlLockLeftovers,
    SqlSchedules,
    SqlFires,
    SqlEvents,
    SqlTriggers,
    SqlRetention,
    SqlSummaries,
    SqlAccess,
    SqlAudit,
    SqlSecrets,
    SqlHooks,
    SqlRunStatistics,
    SqlOldDefinitions,
):
    """`toband.ports.Store` for `sqlite:///PATH` and `postgresql://HOST/NAME`.

    Every method is one transaction, or reads one snapshot, unless it says otherwise. Raises StoreError for other URLs.
    """

    @writing
    def try_write(self, session: WriteSession) -> None:
        database_check.touch(session)

    @reading
    def inspect(self, connection: Connection) -> Inspection:
        return database_check.inspect(connection, self._database)

    async def checkpoint(self) -> None:
        def call() -> None:
            with store_errors("cannot write to the database", self._database.error):
                self._database.checkpoint()

        await asyncio.to_thread(call)

    @writing
    def release_space(self, session: WriteSession, most: int) -> int:
        return self._database.release_space(session.connection, most)

    @reading
    def counts(self, connection: Connection) -> Counts:
        stored = definition_rows.count(connection)
        return Counts(
            workflows=stored.get(DefinitionKind.WORKFLOW, 0),
            active_runs=runs.count_active(connection),
            jobs=stored.get(DefinitionKind.JOB, 0),
            schedules=schedules.count(connection),
            pending_events=events.count_pending(connection),
        )

    @writing
    def forget_requests(self, session: WriteSession, before: datetime) -> int:
        return idempotent_calls.forget(session, before)

    def snapshot(self) -> RowSnapshot:
        """All rows as they are when it is entered, for a backup. It has a connection of its own."""
        return RowSnapshot(self._database)

    def missing_runs(self, run_ids: Collection[str]) -> set[str]:
        """Those that are not in the database. Blocks. Raises StoreError."""
        return missing_runs(self._database, run_ids)
