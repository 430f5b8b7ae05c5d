"""Lock leftovers: locks that stay held after an attempt. A run's transition writes them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, bindparam, delete, select

from toband.domain.lock_rules import LockLeftover, LockUser
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.tables import lock_leftovers as table
from toband.store.sql.tables import runs
from toband.store.sql.writer import WriteSession

_DELETE = delete(table).where(and_(table.c.lock == bindparam("of_lock"), table.c.attempt_id == bindparam("of_attempt")))


class SqlLockLeftovers(OpenDatabase):
    """`toband.ports.LockLeftoverStore`."""

    @reading
    def list_lock_leftovers(self, connection: Connection) -> Sequence[LockLeftover]:
        named = table.outerjoin(runs, runs.c.id == table.c.run_id)
        order = table.c.since, table.c.attempt_id, table.c.lock
        rows = connection.execute(select(table, runs.c.number).select_from(named).order_by(*order))
        return [
            LockLeftover(
                lock=row.lock,
                user=LockUser(row.user_run, row.user_step),
                attempt_id=row.attempt_id,
                run_id=row.run_id,
                workflow=row.workflow,
                number=row.number or 0,
                step=row.step,
                since=row.since,
                boot_id=row.boot_id,
                pids=tuple(row.pids),
            )
            for row in rows
        ]

    @writing
    def delete_lock_leftovers(self, session: WriteSession, leftovers: Sequence[LockLeftover]) -> None:
        for each in leftovers:
            session.connection.execute(_DELETE, {"of_lock": each.lock, "of_attempt": each.attempt_id})
