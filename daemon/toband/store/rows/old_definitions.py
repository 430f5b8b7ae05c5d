"""Old definitions: versions that no run uses any more, and what is left of deleted workflows and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, exists, func, not_, select

from toband.store.sql.open_database import OpenDatabase, writing
from toband.store.sql.tables import run_numbers, runs, workflow_versions, workflows
from toband.store.sql.writer import WriteSession

AT_ONCE = 200
"""Versions removed in one transaction; the limit keeps other writers from waiting long."""

_OF_NAME = workflow_versions.c.workflow == bindparam("of_name")
_CURRENT = select(workflows.c.version).where(workflows.c.name == bindparam("of_name"))
_LONG = (
    select(workflows.c.name)
    .where(
        exists().where(
            workflow_versions.c.workflow == workflows.c.name,
            workflow_versions.c.version <= workflows.c.version - bindparam("keep"),
        )
    )
    .order_by(workflows.c.name)
)
_LEFT_OVER = (
    select(workflow_versions.c.workflow)
    .where(
        not_(exists().where(workflows.c.name == workflow_versions.c.workflow)),
        not_(exists().where(runs.c.workflow == workflow_versions.c.workflow)),
    )
    .group_by(workflow_versions.c.workflow)
    # The newest version of a deleted definition says for how long it is gone at most.
    .having(func.max(workflow_versions.c.created_at) < bindparam("before"))
    .order_by(workflow_versions.c.workflow)
)
_IS_LEFT_OVER = _LEFT_OVER.where(_OF_NAME)
_SURPLUS = select(workflow_versions.c.version).where(_OF_NAME, workflow_versions.c.version <= bindparam("most"))
# One walk over the runs of the workflow; a lookup for each version would be as many.
_USED = select(runs.c.version).where(runs.c.workflow == bindparam("of_name")).distinct()
_REMOVE = delete(workflow_versions).where(
    _OF_NAME, workflow_versions.c.version.in_(bindparam("versions", expanding=True))
)
# Its runs are gone, and no version tells any more that there ever were some.
_REMOVE_NUMBER = delete(run_numbers).where(
    run_numbers.c.workflow == bindparam("of_name"),
    not_(exists().where(workflow_versions.c.workflow == run_numbers.c.workflow)),
)


class SqlOldDefinitions(OpenDatabase):
    """A part of `toband.ports.DefinitionStore`."""

    async def forget_versions(self, before: datetime, keep: int) -> int:
        gone = 0
        for name in await self._read(_names, before, keep):
            # Read first: the writer has to look at those alone that have something to remove.
            while await self._read(_unused, name, before, keep):
                removed = await self._remove_versions(name, before, keep)
                gone += removed
                if not removed:
                    break
        return gone

    @writing
    def _remove_versions(self, session: WriteSession, name: str, before: datetime, keep: int) -> int:
        """Removes some that are still unused; returns their number."""
        session.lock_creation()
        versions = _unused(session.connection, name, before, keep)[:AT_ONCE]
        if versions:
            session.connection.execute(_REMOVE, {"of_name": name, "versions": versions})
            session.connection.execute(_REMOVE_NUMBER, {"of_name": name})
        return len(versions)


def _names(connection: Connection, before: datetime, keep: int) -> Sequence[str]:
    """Definitions with more versions than `keep`, and deleted ones without runs."""
    return [
        *connection.execute(_LONG, {"keep": keep}).scalars(),
        *connection.execute(_LEFT_OVER, {"before": before}).scalars(),
    ]


def _unused(connection: Connection, name: str, before: datetime, keep: int) -> Sequence[int]:
    """Versions that may be removed, oldest first."""
    of = {"of_name": name}
    current = connection.execute(_CURRENT, of).scalar()
    if current is None:
        if connection.execute(_IS_LEFT_OVER, {**of, "before": before}).first() is None:
            return []
        most = connection.execute(select(func.max(workflow_versions.c.version)).where(_OF_NAME), of).scalar() or 0
    else:
        most = current - keep
    versions = set(connection.execute(_SURPLUS, {**of, "most": most}).scalars())
    return sorted(versions.difference(connection.execute(_USED, of).scalars())) if versions else []
