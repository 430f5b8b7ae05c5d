"""Runs with their steps: creates them, saves their transitions, and reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, and_, bindparam, exists, func, select, update

from toband.domain.identity import Visible
from toband.domain.overlap import is_full
from toband.domain.run_model import INSTANCE_BITS, Pin, Run, RunState, StepRun, StepState, run_name
from toband.ports import (
    ActiveRunError,
    HistoryEntry,
    PositionedChange,
    Request,
    RunChange,
    RunGoneError,
    RunOrigin,
    UpdateResult,
)
from toband.store.rows import dead_letters, run_history, run_transitions
from toband.store.rows.idempotent_calls import recall, recall_change, remember
from toband.store.sql.attempt_codec import ATTEMPT_COLUMNS, attempt_from
from toband.store.sql.columns import Raw
from toband.store.sql.keyset_paging import between, newest, unindexed
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.row_codec import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    run_facts,
    run_from,
    run_identity,
    step_from,
    step_item,
    step_row,
)
from toband.store.sql.row_codec import run_values as run_values_row
from toband.store.sql.statements import Statements
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    among,
    process_executions,
    run_labels,
    run_values,
    runs,
    step_items,
    step_runs,
)
from toband.store.sql.visible_rows import few_names, is_visible, only_visible
from toband.store.sql.writer import WriteSession

# More steps than any run has.
_ALL = 1_000_000_000
# Below the limit of parameters that a statement has in either database.
_AT_ONCE = 500
# Runs that one query searches for steps that succeeded.
_RUNS_AT_ONCE = 20

_RUN = select(runs).where(runs.c.id == bindparam("run_id"))
_ORIGIN = select(runs.c.workflow, runs.c.caller, runs.c.parent_run).where(runs.c.id == bindparam("run_id"))
_VALUES = select(run_values.c.params, run_values.c.event).where(run_values.c.run_id == bindparam("run_id"))
_STEPS = (
    select(step_runs, process_executions, step_items.c.item)
    .select_from(
        step_runs.outerjoin(process_executions, process_executions.c.id == step_runs.c.attempt_id).outerjoin(
            step_items,
            and_(
                step_items.c.run_id == step_runs.c.run_id,
                step_items.c.position == step_runs.c.position,
            ),
        )
    )
    .where(step_runs.c.run_id == bindparam("run_id"))
    .where(step_runs.c.position > bindparam("after"))
    .order_by(step_runs.c.position)
    .limit(bindparam("at_most"))
)
_DEFINED_STEPS = (
    select(step_runs)
    .where(step_runs.c.run_id == bindparam("run_id"))
    .where(step_runs.c.position.in_(bindparam("positions", expanding=True)))
    .order_by(step_runs.c.position)
)
_NEWEST = select(runs).where(runs.c.workflow == bindparam("workflow")).order_by(runs.c.id.desc()).limit(1)
_ACTIVE_IDS = select(runs.c.id).where(among(runs.c.state, ACTIVE_RUNS)).order_by(runs.c.id)
_ACTIVE = select(runs).where(among(runs.c.state, ACTIVE_RUNS)).order_by(runs.c.id)
_STATES = select(runs.c.id, runs.c.state).where(runs.c.id.in_(bindparam("run_ids", expanding=True)))
_ACTIVE_COUNT = select(func.count()).select_from(runs).where(among(runs.c.state, ACTIVE_RUNS))


class SqlRuns(OpenDatabase):
    """`toband.ports.RunStore`."""

    async def create_run(
        self,
        run: Run,
        *,
        max_active: int | None,
        request: Request | None = None,
        requeue: str = "",
        by: str = "",
    ) -> tuple[Run, bool]:
        new = encode(run)

        def operation(session: WriteSession) -> tuple[Run, bool]:
            session.lock_creation()
            made = recall_change(session, request)
            if made is None and session.fetch(self._sql.run_exists, {"run_id": run.id}):
                made = run.id
            if made is not None:
                return _made(session.connection, made), False
            check_active(self._sql, session, run.workflow, max_active)
            check_sources(session.connection, new.sources)
            if requeue:
                dead_letters.requeue(session, requeue, run, by)
            added = add(self._sql, session, new)
            remember(session, request, run.id, run.created_at)
            session.audit(f"run {added.name} ({added.id})")
            return added, True

        return await self._write.do(operation)

    @reading
    def run_of_request(self, connection: Connection, request: Request) -> Run | None:
        made = recall(connection, request)
        return _made(connection, made) if made is not None else None

    async def save(self, change: RunChange) -> UpdateResult:
        write = run_transitions.encode(change)
        return await self._write.do(partial(run_transitions.apply, self._sql, write))

    @reading
    def get_run(self, connection: Connection, run_id: str) -> Run | None:
        return _find(connection, run_id)

    @reading
    def get_run_page(self, connection: Connection, run_id: str, *, after: int = -1, limit: int = 500) -> Run | None:
        return _find(connection, run_id, after, limit)

    @reading
    def run_origin(self, connection: Connection, run_id: str) -> RunOrigin | None:
        row = connection.execute(_ORIGIN, {"run_id": run_id}).first()
        return None if row is None else RunOrigin(*row)

    @reading
    def defined_steps(self, connection: Connection, run: Run) -> Sequence[StepRun]:
        found: list[StepRun] = []
        for first in range(0, run.total_steps, _AT_ONCE):
            # Each by its key: instances, which may be many, are not read.
            indexes = range(first, min(first + _AT_ONCE, run.total_steps))
            some = {"run_id": run.id, "positions": [index << INSTANCE_BITS for index in indexes]}
            found += (
                step_from(dict(zip(STEP_COLUMNS, row, strict=True)), None)
                for row in connection.execute(_DEFINED_STEPS, some)
            )
        return found

    @reading
    def list_runs(
        self,
        connection: Connection,
        *,
        workflow: str = "",
        states: Sequence[RunState] = (),
        before: str = "",
        limit: int = 50,
        parent_run: str = "",
        retry_of: str = "",
        labels: Mapping[str, str] | None = None,
        after: str = "",
        number: int = 0,
        ids: Collection[str] = (),
        visible: Visible = None,
    ) -> Sequence[Run]:
        if number or ids:
            others = {"parent_run": parent_run, "retry_of": retry_of}
            if number:
                query = select(runs).where(runs.c.workflow == workflow, runs.c.number == number)
            else:
                query, others["workflow"] = select(runs), workflow
            if ids:
                query = query.where(runs.c.id.in_(list(ids)))
            query = _labelled(query, labels or {}).where(
                *(unindexed(runs.c[column]) == run_id for column, run_id in others.items() if run_id)
            )
            query = between(query, runs.c.id, after, before).order_by(runs.c.id.desc()).limit(limit)
        elif parent_run or retry_of or labels:
            linked = {"parent_run": parent_run} if parent_run else {"retry_of": retry_of} if retry_of else {}
            query = _linked(linked, labels or {}, after, before).limit(limit)
            # Conditions that few runs may fail: they must not choose the index.
            if workflow and linked:
                query = query.where(unindexed(runs.c.workflow) == workflow)
            elif workflow:
                query = query.where(run_labels.c.workflow == workflow)
        else:
            condition = None if visible is None else is_visible(connection, runs.c.workflow, visible)
            names = None if workflow else few_names(connection, visible)
            found = newest(
                connection, runs, workflow, states, before, limit, after=after, condition=condition, names=names
            )
            return [header(tuple(row)) for row in found]
        if states:
            query = query.where(unindexed(runs.c.state).in_([state.value for state in states]))
        query = only_visible(query, connection, runs.c.workflow, visible)
        return [header(tuple(row)) for row in connection.execute(query)]

    @writing
    def pin_run(self, session: WriteSession, run_id: str, pin: Pin | None) -> bool:
        values = {"pinned_at": None if pin is None else pin.at, "pinned_by": "", "pin_note": ""}
        if pin is not None:
            values |= {"pinned_by": pin.by, "pin_note": pin.note}
        found = session.connection.execute(update(runs).where(runs.c.id == run_id).values(values)).rowcount > 0
        if found:
            session.audit()
        return found

    @reading
    def current_run(self, connection: Connection, workflow: str) -> Run | None:
        row = next(iter(newest(connection, runs, workflow, ACTIVE_RUNS, "", 1)), None)
        if row is None:
            row = connection.execute(_NEWEST, {"workflow": workflow}).first()
        return None if row is None else _with_values(connection, header(tuple(row)))

    @reading
    def active_run_ids(self, connection: Connection) -> Sequence[str]:
        return list(connection.execute(_ACTIVE_IDS).scalars())

    @reading
    def known_runs(self, connection: Connection, run_ids: Collection[str]) -> Mapping[str, RunState]:
        return read_states(connection, run_ids)

    @reading
    def latest_success(self, connection: Connection, workflow: str, steps: Collection[str]) -> Mapping[str, str]:
        wanted, found = set(steps), dict[str, str]()
        before, at_once = "", 1  # the last run usually has most of them
        while wanted:
            page = select(runs.c.id).where(runs.c.workflow == workflow).order_by(runs.c.id.desc())
            if before:
                page = page.where(runs.c.id < before)
            run_ids = connection.execute(page.limit(at_once)).scalars().all()
            if not run_ids:
                break
            of = step_runs.c
            succeeded = select(of.step, of.run_id).where(
                # A result taken from another run is found in that run.
                of.run_id.in_(run_ids),
                of.state == StepState.SUCCEEDED,
                of.source.is_(None),
            )
            if len(wanted) <= _AT_ONCE:
                succeeded = succeeded.where(of.step.in_(wanted))
            for step, run_id in connection.execute(succeeded):
                if step in wanted and run_id > found.get(step, ""):
                    found[step] = run_id
            wanted -= found.keys()
            before, at_once = run_ids[-1], _RUNS_AT_ONCE
        return found

    @reading
    def history(
        self, connection: Connection, run_id: str, *, after: int = 0, limit: int = 500
    ) -> Sequence[HistoryEntry]:
        return run_history.read_history(connection, run_id, after, limit)

    @reading
    def last_change(self, connection: Connection) -> int:
        return run_history.last_position(connection)

    @reading
    def changes_after(self, connection: Connection, position: int, *, limit: int = 100) -> Sequence[PositionedChange]:
        return run_history.read_changes(connection, position, limit)

    @reading
    def active_at(
        self, connection: Connection, position: int, *, after: str = "", limit: int = 100
    ) -> tuple[Sequence[Run], str]:
        rows = connection.execute(_ACTIVE.where(runs.c.id > after).limit(limit)).all()
        found = [run for row in rows if (run := run_history.run_at(connection, position, tuple(row))) is not None]
        return found, rows[-1].id if len(rows) == limit else ""


class EncodedRun(NamedTuple):
    """Raw rows, ready for the driver."""

    run: Run
    header: Raw
    values: Raw | None
    steps: list[Raw]
    items: list[Raw]
    sources: list[str]
    history: Raw


def encode(run: Run) -> EncodedRun:
    """Call it in the caller's thread, to spare the writer's."""
    steps = [step_row(run.id, step) for step in run.steps.values()]
    items = [item for step in run.steps.values() if (item := step_item(run.id, step)) is not None]
    facts = run_facts(run)
    return EncodedRun(
        run=run,
        header=run_identity(run) | facts,
        values=run_values_row(run),
        steps=steps,
        items=items,
        sources=_sources(run),
        history=run_history.creation(run, facts),
    )


def check_active(sql: Statements, session: WriteSession, workflow: str, max_active: int | None) -> None:
    """Raises ActiveRunError if the workflow has no slot for another run."""
    if max_active is None:
        return
    active, oldest = session.fetch(sql.active, {"workflow": workflow})[0]
    if is_full(max_active, active):
        ((number,),) = session.fetch(sql.run_number, {"id": oldest})
        raise ActiveRunError(oldest, run_name(workflow, number))


def add(sql: Statements, session: WriteSession, new: EncodedRun) -> Run:
    """Inserts the run; returns it with its number."""
    run = new.run
    last, last_deleted = session.fetch(sql.last_number, {"workflow": run.workflow})[0]
    number = max(last or 0, last_deleted or 0) + 1
    session.run(sql.insert_run, new.header | {"number": number})
    session.run(sql.insert_history, new.history | {"position": session.next_position(sql.last_position)})
    if new.values is not None:
        session.run(sql.insert_run_values, new.values)
    if new.steps:
        session.run_many(sql.insert_step, new.steps)
    if new.items:
        session.run_many(sql.insert_item, new.items)
    if new.sources:
        rows = [{"run_id": run.id, "source": source} for source in new.sources]
        session.run_many(sql.insert_source, rows)
    if run.labels:
        rows = [
            {"run_id": run.id, "label": label, "content": content, "workflow": run.workflow}
            for label, content in run.labels.items()
        ]
        session.run_many(sql.insert_run_label, rows)
    return replace(run, number=number)


def _sources(run: Run) -> list[str]:
    """Runs that it takes results, artifacts or attempts from."""
    found = {run.retry_of, run.from_run}
    for step in run.steps.values():
        found.add(step.source)
        if step.attempt is not None:
            found.add(step.attempt.run_id)
    return sorted(found - {"", run.id})


def check_sources(connection: Connection, sources: Sequence[str]) -> None:
    """Raises RunGoneError if one of them was deleted."""
    known = read_states(connection, sources)
    for source in sources:
        if source not in known:
            raise RunGoneError(source)


def _find(connection: Connection, run_id: str, after: int = -1, limit: int = _ALL) -> Run | None:
    row = connection.execute(_RUN, {"run_id": run_id}).first()
    if row is None:
        return None
    page = {"run_id": run_id, "after": after, "at_most": limit}
    steps = {}
    for found in connection.execute(_STEPS, page):
        step = _step(tuple(found))
        steps[step.id] = step
    return _with_values(connection, header(tuple(row), steps))


def _with_values(connection: Connection, run: Run) -> Run:
    """The run with its large values, which have a table of their own."""
    found = connection.execute(_VALUES, {"run_id": run.id}).first()
    if found is None:
        return run
    params, event = found
    return replace(
        run,
        params=run.params if params is None else params,
        params_bytes=0,
        event=run.event if event is None else event,
    )


def _made(connection: Connection, run_id: str) -> Run:
    run = _find(connection, run_id)
    if run is None:
        raise RunGoneError(run_id)
    return run


def _step(row: tuple[Any, ...]) -> StepRun:
    values = dict(zip(STEP_COLUMNS, row, strict=False))
    *attempt_row, item = row[len(STEP_COLUMNS) :]
    attempt = dict(zip(ATTEMPT_COLUMNS, attempt_row, strict=True))
    if values["extra"].pop("item_bytes", 0):
        values["extra"]["item"] = item
    # An attempt of another run may have been deleted with that run.
    return step_from(values, None if attempt["id"] is None else attempt_from(attempt))


def header(row: tuple[Any, ...], steps: dict[str, StepRun] | None = None) -> Run:
    """The run of a row with all columns; without its large values."""
    return run_from(dict(zip(RUN_COLUMNS, row, strict=True)), {} if steps is None else steps)


def _linked(to: Mapping[str, str], labels: Mapping[str, str], after: str, before: str) -> Select[Any]:
    """Runs, newest first, that name another run in a column, or else that have the first label; and all labels."""
    query, others = select(runs), dict(labels)
    if to:
        ((column, run_id),) = to.items()
        query, newest_id = query.where(runs.c[column] == run_id), runs.c.id
    else:
        label, content = next(iter(others.items()))
        del others[label]
        query = query.select_from(run_labels.join(runs)).where(
            run_labels.c.label == label, run_labels.c.content == content
        )
        newest_id = run_labels.c.run_id
    return between(_labelled(query, others), newest_id, after, before).order_by(newest_id.desc())


def _labelled(query: Select[Any], labels: Mapping[str, str]) -> Select[Any]:
    for number, (label, content) in enumerate(labels.items()):
        other = run_labels.alias(f"label_{number}")
        query = query.where(
            exists().where(other.c.run_id == runs.c.id, other.c.label == label, other.c.content == content)
        )
    return query


def read_states(connection: Connection, run_ids: Collection[str]) -> dict[str, RunState]:
    wanted, found = list(run_ids), {}
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        for run_id, state in connection.execute(_STATES, {"run_ids": some}):
            found[run_id] = RunState(state)
    return found


def count_active(connection: Connection) -> int:
    return connection.execute(_ACTIVE_COUNT).scalar_one()
