"""Retention: the rules of workflows, the sizes of runs, the runs that may be removed, and their removal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from toban.definition import Retention
from toband.domain.run_ids import first_id
from toband.ports import EndedRun, RunSize, RunSpan, StoredSize, WorkflowText
from toband.store.rows.run_history import keep_last_position
from toband.store.rows.runs import read_states
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    among,
    run_numbers,
    run_sizes,
    run_sources,
    runs,
    workflow_retention,
    workflows,
)
from toband.store.sql.writer import WriteSession

# Below the limit of parameters that a statement has in either database.
_AT_ONCE = 500

_ENDED = not_(among(runs.c.state, ACTIVE_RUNS))
_others = runs.alias("others")
# The last run of a workflow shows its health: as long as the workflow exists, only DeleteRun removes it.
_NOT_LAST = runs.c.number < (
    select(func.max(_others.c.number)).where(_others.c.workflow == runs.c.workflow).correlate(runs).scalar_subquery()
)
_LAST = select(func.max(runs.c.number)).where(runs.c.workflow == bindparam("workflow"))
_users = runs.alias("users")
_parents = runs.alias("parents")
# An active run reads the runs that it takes results from, and its children. The former are collected once: a lookup
# for each run would search all active runs.
_NOT_NEEDED = and_(
    runs.c.id.not_in(
        select(run_sources.c.source)
        .join(_users, _users.c.id == run_sources.c.run_id)
        .where(among(_users.c.state, ACTIVE_RUNS))
    ),
    not_(exists().where(_parents.c.id == runs.c.parent_run, among(_parents.c.state, ACTIVE_RUNS))),
)
_DELETABLE = and_(_ENDED, _NOT_NEEDED, runs.c.pinned_at.is_(None))
_GONE = not_(exists().where(workflows.c.name == runs.c.workflow))
_REMOVABLE = and_(_DELETABLE, or_(_NOT_LAST, _GONE))
# Jumps from one name to the next along the index: one lookup per workflow, however many runs each has.
_first_name = select(func.min(runs.c.workflow).label("workflow")).cte("names", recursive=True)
_NAMES = _first_name.union_all(
    select(
        select(func.min(_others.c.workflow)).where(_others.c.workflow > _first_name.c.workflow).scalar_subquery()
    ).where(_first_name.c.workflow.is_not(None))
)


def _of_each(value: ColumnElement[Any]) -> ScalarSelect[Any]:
    """One lookup at an end of the index for each workflow; an aggregate over groups would read all rows."""
    return select(value).where(runs.c.workflow == _NAMES.c.workflow).correlate(_NAMES).scalar_subquery()


SPANS = select(
    _NAMES.c.workflow,
    _of_each(func.min(runs.c.number)),
    _of_each(func.max(runs.c.number)),
    _of_each(func.min(runs.c.id)),
    exists().where(workflows.c.name == _NAMES.c.workflow),
).where(_NAMES.c.workflow.is_not(None))
_BYTES_OF_EACH = (
    select(runs.c.workflow, func.sum(run_sizes.c.bytes))
    .select_from(runs.join(run_sizes))
    .where(runs.c.workflow.in_(bindparam("names", expanding=True)))
    .group_by(runs.c.workflow)
)
_SUMS = (
    func.coalesce(func.sum(run_sizes.c.bytes), 0),
    func.coalesce(func.sum(run_sizes.c.log_bytes), 0),
)
_RULES = select(workflow_retention.c.rules).where(workflow_retention.c.workflow == bindparam("of_workflow"))
_REMOVE_RULES = delete(workflow_retention).where(workflow_retention.c.workflow == bindparam("of_workflow"))
_ALL_RULES = select(workflow_retention.c.workflow, workflow_retention.c.rules).order_by(workflow_retention.c.workflow)


class SqlRetention(OpenDatabase):
    """`toband.ports.RetentionStore`."""

    @reading
    def retention_rules(self, connection: Connection) -> Mapping[str, Retention]:
        return {name: Retention.from_dict(rules) for name, rules in connection.execute(_ALL_RULES)}

    @reading
    def run_spans(self, connection: Connection) -> Sequence[RunSpan]:
        return [
            RunSpan(workflow=workflow, first=first, last=last, oldest_id=oldest_id, defined=bool(defined))
            for workflow, first, last, oldest_id, defined in connection.execute(SPANS)
        ]

    @reading
    def removable_runs(
        self,
        connection: Connection,
        *,
        workflow: str = "",
        finished_before: datetime | None = None,
        number_below: int | None = None,
        after: str = "",
        limit: int = 500,
    ) -> Sequence[EndedRun]:
        if number_below is not None and not _any_below(connection, workflow, number_below):
            return []
        query = _ended_runs().where(_REMOVABLE, runs.c.id > after)
        if workflow:
            query = query.where(runs.c.workflow == workflow)
        if finished_before is not None:
            # A run that ended before then was created before then: the condition on ids lets the index skip the rest.
            query = query.where(runs.c.finished_at < finished_before, runs.c.id < first_id(finished_before))
        if number_below is not None:
            query = query.where(runs.c.number < number_below)
        return _all(connection, query.order_by(runs.c.id).limit(limit))

    @reading
    def kept_number(self, connection: Connection, workflow: str, keep: int) -> int:
        query = select(runs.c.number).where(runs.c.workflow == workflow)
        oldest = query.order_by(runs.c.number.desc()).limit(1).offset(keep - 1)
        return connection.execute(oldest).scalar() or 0

    @reading
    def stored_size(self, connection: Connection) -> StoredSize:
        count = connection.execute(select(func.count()).select_from(runs)).scalar_one()
        size, log_size = connection.execute(select(*_SUMS)).one()
        # PostgreSQL returns sums of integers as decimals.
        return StoredSize(runs=count, bytes=int(size), log_bytes=int(log_size))

    @reading
    def stored_bytes(self, connection: Connection, workflows: Collection[str]) -> Mapping[str, int]:
        wanted, found = list(workflows), {}
        for place in range(0, len(wanted), _AT_ONCE):
            some = wanted[place : place + _AT_ONCE]
            for workflow, size in connection.execute(_BYTES_OF_EACH, {"names": some}):
                found[workflow] = int(size)
        return found

    @reading
    def unmeasured_runs(self, connection: Connection, *, start: str = "", limit: int = 500) -> Sequence[EndedRun]:
        query = _ended_runs().where(runs.c.id >= start, run_sizes.c.run_id.is_(None))
        return _all(connection, query.order_by(runs.c.id).limit(limit))

    @writing
    def save_sizes(self, session: WriteSession, sizes: Mapping[str, RunSize]) -> None:
        wanted = list(sizes)
        for place in range(0, len(wanted), _AT_ONCE):
            some = wanted[place : place + _AT_ONCE]
            known = read_states(session.connection, some)
            session.connection.execute(delete(run_sizes).where(run_sizes.c.run_id.in_(some)))
            rows = [
                {"run_id": run_id, "bytes": sizes[run_id].bytes, "log_bytes": sizes[run_id].log_bytes}
                for run_id in some
                if run_id in known
            ]
            if rows:
                session.connection.execute(insert(run_sizes), rows)

    @reading
    def deletable_runs(self, connection: Connection, run_ids: Sequence[str]) -> Sequence[str]:
        found: list[str] = []
        for place in range(0, len(run_ids), _AT_ONCE):
            some = _deletable(connection, run_ids[place : place + _AT_ONCE])
            found += [run_id for run_id, _, _ in some]
        return found

    @writing
    def delete_runs(self, session: WriteSession, run_ids: Sequence[str]) -> Sequence[str]:
        # Until the commit, no new run can take results from one of them, or the number of the last one.
        session.lock_creation()
        keep_last_position(session.connection)
        gone: list[str] = []
        for place in range(0, len(run_ids), _AT_ONCE):
            found = _deletable(session.connection, run_ids[place : place + _AT_ONCE])
            _keep_numbers(session.connection, found)
            some = [run_id for run_id, _, _ in found]
            session.connection.execute(delete(runs).where(runs.c.id.in_(some)))
            gone += some
        return gone


def replace_rules(session: WriteSession, definition: WorkflowText) -> None:
    """Stores the retention rules of a definition, in its transaction, or removes them if it has none."""
    wanted = definition.parsed.get("retention")
    key = {"of_workflow": definition.name}
    if session.connection.execute(_RULES, key).scalar() == wanted:
        return
    session.connection.execute(_REMOVE_RULES, key)
    if wanted is not None:
        session.connection.execute(insert(workflow_retention), {"workflow": definition.name, "rules": wanted})


def _any_below(connection: Connection, workflow: str, number: int) -> bool:
    """Uses the index of numbers: a walk by id would read all runs of the workflow in vain."""
    some = select(runs.c.id).where(runs.c.workflow == workflow, runs.c.number < number).limit(1)
    return connection.execute(some).first() is not None


def _deletable(connection: Connection, run_ids: Sequence[str]) -> list[tuple[str, str, int]]:
    """With workflow and number, oldest first."""
    some = select(runs.c.id, runs.c.workflow, runs.c.number).where(runs.c.id.in_(run_ids))
    found = connection.execute(some.where(_DELETABLE).order_by(runs.c.id))
    return [(run_id, workflow, number) for run_id, workflow, number in found]


def _keep_numbers(connection: Connection, going: Sequence[tuple[str, str, int]]) -> None:
    """Stores the number of a workflow's last run when that is deleted: the next run is counted from there."""
    highest: dict[str, int] = {}
    for _, workflow, number in going:
        highest[workflow] = max(number, highest.get(workflow, 0))
    for workflow, number in highest.items():
        if connection.execute(_LAST, {"workflow": workflow}).scalar_one() > number:
            continue
        mine = run_numbers.c.workflow == workflow
        known = connection.execute(select(run_numbers.c.last).where(mine)).scalar()
        if known is None:
            connection.execute(insert(run_numbers).values(workflow=workflow, last=number))
        elif known < number:
            connection.execute(update(run_numbers).where(mine).values(last=number))


def _ended_runs() -> Select[Any]:
    return (
        select(
            runs.c.id,
            runs.c.workflow,
            runs.c.number,
            runs.c.finished_at,
            runs.c.total_steps,
            runs.c.launches,
            run_sizes.c.bytes,
            run_sizes.c.log_bytes,
        )
        .select_from(runs.outerjoin(run_sizes))
        .where(_ENDED)
    )


def _all(connection: Connection, query: Select[Any]) -> Sequence[EndedRun]:
    found = []
    for row in connection.execute(query):
        run_id, workflow, number, finished_at, steps, launches, size, log_size = row
        found.append(
            EndedRun(
                id=run_id,
                workflow=workflow,
                number=number,
                finished_at=finished_at,
                # One row per step; per launch one attempt and about two history entries.
                rows=3 + steps + 3 * launches,
                size=None if size is None else RunSize(bytes=size, log_bytes=log_size),
            )
        )
    return found
