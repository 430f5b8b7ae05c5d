"""Runs with their steps: creating and reading them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, union_all

from toband.domain.model import Run, RunState, StepRun
from toband.ports import ActiveRunError, Request, RunGoneError
from toband.store.codec import (
    ATTEMPT_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    attempt_from,
    run_facts,
    run_from,
    run_identity,
    step_from,
    step_row,
)
from toband.store.requests import recall, remember
from toband.store.statements import Statements
from toband.store.tables import ACTIVE_RUNS, among, process_executions, runs, step_runs
from toband.store.writer import Session

# No run has so many steps: all of them.
ALL = 1_000_000_000
# Below what either database takes as parameters of one statement.
_AT_ONCE = 500

_RUN = select(runs).where(runs.c.id == bindparam("run_id"))
_STEPS = (
    select(step_runs, process_executions)
    .select_from(
        step_runs.outerjoin(process_executions, process_executions.c.id == step_runs.c.attempt_id)
    )
    .where(step_runs.c.run_id == bindparam("run_id"))
    .where(step_runs.c.position > bindparam("after"))
    .order_by(step_runs.c.position)
    .limit(bindparam("at_most"))
)
_NEWEST = (
    select(runs).where(runs.c.workflow == bindparam("workflow")).order_by(runs.c.id.desc()).limit(1)
)
_ACTIVE_IDS = select(runs.c.id).where(among(runs.c.state, ACTIVE_RUNS)).order_by(runs.c.id)
_STATES = select(runs.c.id, runs.c.state).where(runs.c.id.in_(bindparam("run_ids", expanding=True)))
_ACTIVE_COUNT = select(func.count()).select_from(runs).where(among(runs.c.state, ACTIVE_RUNS))


def create(
    sql: Statements, run: Run, max_active: int | None, request: Request | None
) -> Callable[[Session], tuple[Run, bool]]:
    # Encoded here, in the caller's thread.
    header = run_identity(run) | run_facts(run)
    steps = [step_row(run.id, step) for step in run.steps.values()]

    def operation(session: Session) -> tuple[Run, bool]:
        session.lock_creation()
        made = recall(session.connection, request)
        if made is not None:
            return _made(session.connection, made), False
        where = {"workflow": run.workflow}
        if max_active is not None:
            active, oldest = session.fetch(sql.active, where)[0]
            if active >= max_active:
                raise ActiveRunError(oldest)
        number = (session.fetch(sql.last_number, where)[0][0] or 0) + 1
        session.run(sql.insert_run, header | {"number": number})
        if steps:
            session.run_many(sql.insert_step, steps)
        remember(session, request, run.id, run.created_at)
        return replace(run, number=number), True

    return operation


def read_run(
    connection: Connection, run_id: str, after_index: int = -1, limit: int = ALL
) -> Run | None:
    row = connection.execute(_RUN, {"run_id": run_id}).first()
    if row is None:
        return None
    page = {"run_id": run_id, "after": after_index, "at_most": limit}
    steps = {}
    for found in connection.execute(_STEPS, page):
        step = _step(tuple(found))
        steps[step.id] = step
    return _header(tuple(row), steps)


def read_made(connection: Connection, request: Request) -> Run | None:
    made = recall(connection, request)
    return _made(connection, made) if made is not None else None


def _made(connection: Connection, run_id: str) -> Run:
    run = read_run(connection, run_id)
    if run is None:
        raise RunGoneError(run_id)
    return run


def _step(row: tuple[Any, ...]) -> StepRun:
    values = dict(zip(STEP_COLUMNS, row, strict=False))
    attempt = None
    if values["attempt_id"] is not None:
        attempt = attempt_from(dict(zip(ATTEMPT_COLUMNS, row[len(STEP_COLUMNS) :], strict=True)))
    return step_from(values, attempt)


def _header(row: tuple[Any, ...], steps: dict[str, StepRun] | None = None) -> Run:
    return run_from(dict(zip(RUN_COLUMNS, row, strict=True)), {} if steps is None else steps)


def read_runs(
    connection: Connection, workflow: str, states: Sequence[RunState], before: str, limit: int
) -> Sequence[Run]:
    wanted: list[RunState | None] = [*dict.fromkeys(states)]
    if len(wanted) == len(RunState):
        wanted = []
    # One walk of an index per state, each cut at the limit: never through runs in other states.
    pages = [_page(workflow, state, before, limit) for state in wanted or [None]]
    if len(pages) == 1:
        found = connection.execute(pages[0])
    else:
        merged = union_all(*(select(page.subquery()) for page in pages)).subquery()
        found = connection.execute(select(merged).order_by(merged.c.id.desc()).limit(limit))
    return [_header(tuple(row)) for row in found]


def _page(workflow: str, state: RunState | None, before: str, limit: int) -> Select[Any]:
    page = select(runs)
    if workflow:
        page = page.where(runs.c.workflow == workflow)
    if state is not None:
        page = page.where(runs.c.state == state)
    if before:
        page = page.where(runs.c.id < before)
    return page.order_by(runs.c.id.desc()).limit(limit)


def read_current(connection: Connection, workflow: str) -> Run | None:
    active = read_runs(connection, workflow, ACTIVE_RUNS, "", 1)
    if active:
        return active[0]
    row = connection.execute(_NEWEST, {"workflow": workflow}).first()
    return None if row is None else _header(tuple(row))


def read_active_ids(connection: Connection) -> Sequence[str]:
    return list(connection.execute(_ACTIVE_IDS).scalars())


def read_states(connection: Connection, run_ids: Collection[str]) -> dict[str, RunState]:
    wanted, found = list(run_ids), {}
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        for run_id, state in connection.execute(_STATES, {"run_ids": some}):
            found[run_id] = RunState(state)
    return found


def count_active(connection: Connection) -> int:
    return connection.execute(_ACTIVE_COUNT).scalar_one()
