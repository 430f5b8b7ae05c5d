"""What retention asks of the database: which runs could go, what is kept, and removing runs with all that is theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    select,
    update,
)

from toband.domain.run_ids import first_id
from toband.ports import EndedRun, RunSize, RunSpan, StoredSize
from toband.store.rows.runs import read_states
from toband.store.sql.tables import ACTIVE_RUNS, among, run_numbers, run_sizes, run_sources, runs
from toband.store.sql.writer import Session

# Below what any of the databases takes in one statement.
_AT_ONCE = 500

_ENDED = not_(among(runs.c.state, ACTIVE_RUNS))
_others = runs.alias("others")
# The last run of a workflow shows how it does. It stays until somebody deletes it.
_NOT_LAST = runs.c.number < (
    select(func.max(_others.c.number)).where(_others.c.workflow == runs.c.workflow).correlate(runs).scalar_subquery()
)
_LAST = select(func.max(runs.c.number)).where(runs.c.workflow == bindparam("workflow"))
_users = runs.alias("users")
_parents = runs.alias("parents")
# An active run reads from those that it takes results from, and asks what became of its children. The former are
# gathered once: looked up for each run, they would be sought among all that are active.
_NOT_NEEDED = and_(
    runs.c.id.not_in(
        select(run_sources.c.source)
        .join(_users, _users.c.id == run_sources.c.run_id)
        .where(among(_users.c.state, ACTIVE_RUNS))
    ),
    not_(exists().where(_parents.c.id == runs.c.parent_run, among(_parents.c.state, ACTIVE_RUNS))),
)
_DELETABLE = and_(_ENDED, _NOT_NEEDED)
_REMOVABLE = and_(_DELETABLE, _NOT_LAST)
# From one name to the next by the index: a look per workflow that has runs, however many each has.
_first_name = select(func.min(runs.c.workflow).label("workflow")).cte("names", recursive=True)
_NAMES = _first_name.union_all(
    select(
        select(func.min(_others.c.workflow)).where(_others.c.workflow > _first_name.c.workflow).scalar_subquery()
    ).where(_first_name.c.workflow.is_not(None))
)


def _of_each(value: ColumnElement[Any]) -> ScalarSelect[Any]:
    """Each a look at one end of an index, which no aggregate over a group of rows is."""
    return select(value).where(runs.c.workflow == _NAMES.c.workflow).correlate(_NAMES).scalar_subquery()


SPANS = select(
    _NAMES.c.workflow,
    _of_each(func.min(runs.c.number)),
    _of_each(func.max(runs.c.number)),
    _of_each(func.min(runs.c.id)),
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


def read_spans(connection: Connection) -> Sequence[RunSpan]:
    return [
        RunSpan(workflow=workflow, first=first, last=last, oldest_id=oldest_id)
        for workflow, first, last, oldest_id in connection.execute(SPANS)
    ]


def read_removable(
    connection: Connection,
    workflow: str,
    finished_before: datetime | None,
    number_below: int | None,
    after: str,
    limit: int,
) -> Sequence[EndedRun]:
    if number_below is not None and not _any_below(connection, workflow, number_below):
        return []
    query = _ended_runs().where(_REMOVABLE, runs.c.id > after)
    if workflow:
        query = query.where(runs.c.workflow == workflow)
    if finished_before is not None:
        # What ended before then was created before then: the index leads past everything younger.
        query = query.where(runs.c.finished_at < finished_before, runs.c.id < first_id(finished_before))
    if number_below is not None:
        query = query.where(runs.c.number < number_below)
    return _all(connection, query.order_by(runs.c.id).limit(limit))


def _any_below(connection: Connection, workflow: str, number: int) -> bool:
    """By the index of numbers: walked by id, all of a workflow's runs would be looked at in vain."""
    some = select(runs.c.id).where(runs.c.workflow == workflow, runs.c.number < number).limit(1)
    return connection.execute(some).first() is not None


def read_kept_number(connection: Connection, workflow: str, keep: int) -> int:
    query = select(runs.c.number).where(runs.c.workflow == workflow)
    oldest = query.order_by(runs.c.number.desc()).limit(1).offset(keep - 1)
    return connection.execute(oldest).scalar() or 0


def read_stored_size(connection: Connection) -> StoredSize:
    count = connection.execute(select(func.count()).select_from(runs)).scalar_one()
    size, log_size = connection.execute(select(*_SUMS)).one()
    # PostgreSQL sums whole numbers to decimals.
    return StoredSize(runs=count, bytes=int(size), log_bytes=int(log_size))


def read_stored_bytes(connection: Connection, workflows: Collection[str]) -> Mapping[str, int]:
    wanted, found = list(workflows), {}
    for place in range(0, len(wanted), _AT_ONCE):
        some = wanted[place : place + _AT_ONCE]
        for workflow, size in connection.execute(_BYTES_OF_EACH, {"names": some}):
            found[workflow] = int(size)
    return found


def read_unmeasured(connection: Connection, start: str, limit: int) -> Sequence[EndedRun]:
    query = _ended_runs().where(runs.c.id >= start, run_sizes.c.run_id.is_(None))
    return _all(connection, query.order_by(runs.c.id).limit(limit))


def save_sizes(sizes: Mapping[str, RunSize]) -> Callable[[Session], None]:
    wanted = list(sizes)

    def operation(session: Session) -> None:
        for place in range(0, len(wanted), _AT_ONCE):
            some = wanted[place : place + _AT_ONCE]
            known = read_states(session.connection, some)
            session.connection.execute(delete(run_sizes).where(run_sizes.c.run_id.in_(some)))
            rows = [
                {
                    "run_id": run_id,
                    "bytes": sizes[run_id].bytes,
                    "log_bytes": sizes[run_id].log_bytes,
                }
                for run_id in some
                if run_id in known
            ]
            if rows:
                session.connection.execute(insert(run_sizes), rows)

    return operation


def delete_runs(run_ids: Sequence[str]) -> Callable[[Session], Sequence[str]]:
    def operation(session: Session) -> Sequence[str]:
        # No run is made meanwhile that takes results from one of them, or the number of the last one.
        session.lock_creation()
        gone: list[str] = []
        for place in range(0, len(run_ids), _AT_ONCE):
            found = _deletable(session.connection, run_ids[place : place + _AT_ONCE])
            _keep_numbers(session.connection, found)
            some = [run_id for run_id, _, _ in found]
            session.connection.execute(delete(runs).where(runs.c.id.in_(some)))
            gone += some
        return gone

    return operation


def read_deletable(connection: Connection, run_ids: Sequence[str]) -> Sequence[str]:
    found: list[str] = []
    for place in range(0, len(run_ids), _AT_ONCE):
        some = _deletable(connection, run_ids[place : place + _AT_ONCE])
        found += [run_id for run_id, _, _ in some]
    return found


def _deletable(connection: Connection, run_ids: Sequence[str]) -> list[tuple[str, str, int]]:
    """With workflow and number, oldest first."""
    some = select(runs.c.id, runs.c.workflow, runs.c.number).where(runs.c.id.in_(run_ids))
    found = connection.execute(some.where(_DELETABLE).order_by(runs.c.id))
    return [(run_id, workflow, number) for run_id, workflow, number in found]


def _keep_numbers(connection: Connection, going: Sequence[tuple[str, str, int]]) -> None:
    """Notes the number of a workflow's last run when that goes: the next run counts on from there."""
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
                # A row per step; per launch an attempt, and about two changes in the history.
                rows=3 + steps + 3 * launches,
                size=None if size is None else RunSize(bytes=size, log_bytes=log_size),
            )
        )
    return found
