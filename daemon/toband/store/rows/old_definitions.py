"""Old definitions: versions that no run uses any more, and what is left of deleted workflows and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, bindparam, delete, exists, not_, or_, select, tuple_

from toband.store.sql.open_database import OpenDatabase, writing
from toband.store.sql.tables import run_numbers, runs, workflow_versions, workflows
from toband.store.sql.writer import WriteSession

AT_ONCE = 200
"""Versions removed in one transaction; the limit keeps other writers from waiting long."""

_UNUSED = not_(
    exists().where(runs.c.workflow == workflow_versions.c.workflow, runs.c.version == workflow_versions.c.version)
)
_DEFINED = exists().where(workflows.c.name == workflow_versions.c.workflow)
_HAS_RUNS = exists().where(runs.c.workflow == workflow_versions.c.workflow)
_SURPLUS = exists().where(
    workflows.c.name == workflow_versions.c.workflow,
    workflow_versions.c.version <= workflows.c.version - bindparam("keep"),
)
# The newest version of a deleted definition says for how long it is gone at most.
_newer = workflow_versions.alias("newer")
_LEFT_OVER = and_(
    not_(_DEFINED),
    not_(_HAS_RUNS),
    not_(exists().where(_newer.c.workflow == workflow_versions.c.workflow, _newer.c.created_at >= bindparam("before"))),
)
_OLD = (
    select(workflow_versions.c.workflow, workflow_versions.c.version)
    .where(or_(and_(_SURPLUS, _UNUSED), _LEFT_OVER))
    .limit(AT_ONCE)
)
# Their runs are gone, and no version tells any more that there ever were some.
_LAST_NUMBERS = delete(run_numbers).where(
    run_numbers.c.workflow.in_(bindparam("names", expanding=True)),
    not_(exists().where(workflows.c.name == run_numbers.c.workflow)),
    not_(exists().where(workflow_versions.c.workflow == run_numbers.c.workflow)),
    not_(exists().where(runs.c.workflow == run_numbers.c.workflow)),
)


class SqlOldDefinitions(OpenDatabase):
    """A part of `toband.ports.DefinitionStore`."""

    async def forget_versions(self, before: datetime, keep: int) -> int:
        gone = 0
        while found := await self._read(_old, before, keep):
            removed = await self._remove_versions(found, before, keep)
            gone += removed
            if not removed:
                break  # other transactions need all of them by now
        return gone

    @writing
    def _remove_versions(
        self, session: WriteSession, found: Sequence[tuple[str, int]], before: datetime, keep: int
    ) -> int:
        """Removes those that are still unused; returns their number."""
        session.lock_creation()
        still = set(_old(session.connection, before, keep)).intersection(found)
        if not still:
            return 0
        key = tuple_(workflow_versions.c.workflow, workflow_versions.c.version)
        session.connection.execute(delete(workflow_versions).where(key.in_(sorted(still))))
        session.connection.execute(_LAST_NUMBERS, {"names": sorted({name for name, _ in still})})
        return len(still)


def _old(connection: Connection, before: datetime, keep: int) -> Sequence[tuple[str, int]]:
    return [(name, version) for name, version in connection.execute(_OLD, {"before": before, "keep": keep})]
