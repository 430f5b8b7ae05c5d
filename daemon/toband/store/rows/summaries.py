"""Summaries of workflows and jobs: a fixed number of index lookups for each, however many runs are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    Subquery,
    and_,
    bindparam,
    false,
    func,
    literal_column,
    select,
    text,
    union_all,
)

from toban.definition import DefinitionKind
from toband.domain.identity import Visible
from toband.domain.run_model import Run, RunState
from toband.ports.summaries import FAILURES_COUNTED, RATED_RUNS, RunTotals, WorkflowSummary
from toband.store.rows.definition_rows import workflow_from
from toband.store.rows.runs import header
from toband.store.sql.keyset_paging import unindexed
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.schedule_tables import schedules
from toband.store.sql.tables import ACTIVE_RUNS, FAILED_RUNS, HAS_FAILED, among, runs, workflow_labels, workflows
from toband.store.sql.visible_rows import is_visible, only_visible

# Below the limit of parameters that a statement has in either database.
_AT_ONCE = 500
_LAST_RUN = (
    select(runs.c.id)
    .where(runs.c.workflow == workflows.c.name)
    .order_by(runs.c.id.desc())
    .limit(1)
    .correlate(workflows)
    .scalar_subquery()
)


def _count(state: RunState) -> ScalarSelect[int]:
    of_state = and_(runs.c.workflow == workflows.c.name, among(runs.c.state, [state]))
    return select(func.count()).select_from(runs).where(of_state).correlate(workflows).scalar_subquery()


def _last(state: RunState) -> Select[Any]:
    """The last runs of a workflow in one state: their ids, read from the index alone."""
    page = (
        select(runs.c.id, literal_column("1" if state is RunState.SUCCEEDED else "0").label("good"))
        .where(runs.c.workflow == workflows.c.name, among(runs.c.state, [state]))
        .order_by(runs.c.id.desc())
        .limit(RATED_RUNS)
        .correlate(workflows)
        .subquery()
    )
    return select(page.c.id, page.c.good)


def _rated() -> Subquery:
    merged = union_all(*(_last(state) for state in (RunState.SUCCEEDED, *FAILED_RUNS))).subquery()
    return select(merged.c.good).order_by(merged.c.id.desc()).limit(RATED_RUNS).subquery()


_RATED = select(func.count()).select_from(_rated()).scalar_subquery()
_SUCCEEDED = select(func.coalesce(func.sum(_rated().c.good), 0)).scalar_subquery()


def _next(column: ColumnElement[Any]) -> ScalarSelect[Any]:
    """Of the schedule of the definition that is due next. The ids of its schedules start with its name."""
    name = workflows.c.name
    return (
        select(column)
        .where(
            schedules.c.workflow == name,
            schedules.c.id > name.concat("/"),
            schedules.c.id < name.concat("0"),
            schedules.c.next_due.is_not(None),
            schedules.c.cancelled_at.is_(None),
        )
        .order_by(schedules.c.next_due, schedules.c.id)
        .limit(1)
        .correlate(workflows)
        .scalar_subquery()
    )


_SUMMARY = select(
    workflows,
    _LAST_RUN.label("last_run"),
    _count(RunState.RUNNING).label("running"),
    _count(RunState.PENDING).label("waiting"),
    _RATED.label("rated"),
    _SUCCEEDED.label("succeeded"),
    _next(schedules.c.next_due).label("next_due"),
    _next(schedules.c.zone).label("zone"),
)
_NAMED = _SUMMARY.where(workflows.c.name.in_(bindparam("names", expanding=True)))
_RUNS = select(runs).where(runs.c.id.in_(bindparam("run_ids", expanding=True)))


def _failed(*columns: ColumnElement[Any], condition: ColumnElement[bool] | None = None) -> Select[Any]:
    """Of the last failed runs, latest end first: one walk along the index per state."""
    narrow = dict.fromkeys((runs.c.id, runs.c.finished_at, *columns)) if columns else runs.c
    others = [] if condition is None else [condition]
    pages = [
        select(*narrow)
        # The condition of the index, or SQLite does not use it.
        .where(
            text(HAS_FAILED),
            runs.c.state == literal_column(f"'{state}'"),
            runs.c.finished_at >= bindparam("since"),
            *others,
        )
        .order_by(runs.c.finished_at.desc(), runs.c.id.desc())
        .limit(bindparam("at_most"))
        .subquery()
        for state in FAILED_RUNS
    ]
    merged = union_all(*(select(page) for page in pages)).subquery()
    wanted = [merged.c[column.name] for column in columns] or [merged]
    return select(*wanted).order_by(merged.c.finished_at.desc(), merged.c.id.desc()).limit(bindparam("at_most"))


_FAILED = _failed()
_FAILING = _failed(runs.c.workflow)
_FAILURES = select(func.count()).select_from(_failed(runs.c.id).subquery())
_DISABLED = select(func.count()).select_from(workflows).where(workflows.c.enabled == false())
_ACTIVE = select(runs.c.state, func.count()).where(among(runs.c.state, ACTIVE_RUNS)).group_by(runs.c.state)
_KNOWN = select(workflows.c.name).where(workflows.c.name.in_(bindparam("names", expanding=True)))
_newest = func.max(runs.c.id)
_BUSY = (
    select(runs.c.workflow)
    .where(among(runs.c.state, ACTIVE_RUNS))
    .group_by(runs.c.workflow)
    .order_by(_newest.desc())
    .limit(bindparam("at_most"))
)
_DUE = (
    select(schedules.c.workflow)
    .where(schedules.c.alarm.is_not(None), schedules.c.subject == "")
    .order_by(schedules.c.alarm, schedules.c.id)
    .limit(bindparam("at_most"))
)
_FIRST = (
    select(workflows.c.name)
    .where(workflows.c.kind == DefinitionKind.WORKFLOW)
    .order_by(workflows.c.name)
    .limit(bindparam("at_most"))
)


class SqlSummaries(OpenDatabase):
    """`toband.ports.SummaryStore`."""

    @reading
    def list_summaries(
        self,
        connection: Connection,
        *,
        after: str = "",
        limit: int = 100,
        labels: Mapping[str, str] | None = None,
        text: str = "",
        kind: DefinitionKind | None = None,
        visible: Visible = None,
    ) -> Sequence[WorkflowSummary]:
        query, name = only_visible(select(workflows.c.name), connection, workflows.c.name, visible), workflows.c.name
        for count, (label, content) in enumerate((labels or {}).items()):
            labelled = workflow_labels.alias(f"label_{count}")
            query = query.join(labelled, labelled.c.workflow == workflows.c.name).where(
                labelled.c.label == label, labelled.c.content == content
            )
            # Walks along the first label, so that workflows without it are not read.
            name = name if count else labelled.c.workflow
        if kind is not None:
            query = query.where(unindexed(workflows.c.kind) == kind.value)
        query = query.where(name > after).order_by(name)
        if not text:
            return _summaries(connection, connection.execute(query.limit(limit)).scalars())
        wanted, found = text.casefold(), list[str]()
        for each, title in connection.execute(query.add_columns(workflows.c.title)):
            if wanted in each.casefold() or wanted in title.casefold():
                found.append(each)
                if len(found) == limit:
                    break
        return _summaries(connection, found)

    @reading
    def relevant_summaries(
        self, connection: Connection, *, failed_since: datetime, limit: int, visible: Visible = None
    ) -> Sequence[WorkflowSummary]:
        sources: list[tuple[Select[Any], dict[str, Any]]] = [
            (only_visible(_BUSY, connection, runs.c.workflow, visible), {"at_most": limit}),
            # One workflow may have failed often: more runs are read than workflows are wanted.
            (_failing(connection, visible), {"since": failed_since, "at_most": min(4 * limit, FAILURES_COUNTED)}),
            (only_visible(_DUE, connection, schedules.c.workflow, visible), {"at_most": limit}),
            (only_visible(_FIRST, connection, workflows.c.name, visible), {"at_most": limit}),
        ]
        names: dict[str, None] = {}
        for query, values in sources:
            if len(names) < limit:
                candidates = list(dict.fromkeys(connection.execute(query, values).scalars()))
                # Runs outlast their workflow.
                stored = _stored(connection, candidates)
                names |= dict.fromkeys(name for name in candidates if name in stored)
        return _summaries(connection, list(names)[:limit])

    @reading
    def failed_runs(
        self, connection: Connection, *, since: datetime, limit: int, visible: Visible = None
    ) -> Sequence[Run]:
        failed = _FAILED if visible is None else _failed(condition=is_visible(connection, runs.c.workflow, visible))
        rows = connection.execute(failed, {"since": since, "at_most": limit})
        return [header(tuple(row)) for row in rows]

    @reading
    def run_totals(self, connection: Connection, *, failed_since: datetime, visible: Visible = None) -> RunTotals:
        active = only_visible(_ACTIVE, connection, runs.c.workflow, visible)
        disabled = only_visible(_DISABLED, connection, workflows.c.name, visible)
        counts = {state: int(count) for state, count in connection.execute(active)}
        failed = {"since": failed_since, "at_most": FAILURES_COUNTED}
        return RunTotals(
            disabled=connection.execute(disabled).scalar_one(),
            running=counts.get(RunState.RUNNING, 0),
            waiting=counts.get(RunState.PENDING, 0),
            failures=connection.execute(_failures(connection, visible), failed).scalar_one(),
        )


def _failing(connection: Connection, visible: Visible) -> Select[Any]:
    if visible is None:
        return _FAILING
    return _failed(runs.c.workflow, condition=is_visible(connection, runs.c.workflow, visible))


def _failures(connection: Connection, visible: Visible) -> Select[Any]:
    if visible is None:
        return _FAILURES
    found = _failed(runs.c.id, condition=is_visible(connection, runs.c.workflow, visible))
    return select(func.count()).select_from(found.subquery())


def _stored(connection: Connection, names: Sequence[str]) -> set[str]:
    found = set[str]()
    for first in range(0, len(names), _AT_ONCE):
        found.update(connection.execute(_KNOWN, {"names": names[first : first + _AT_ONCE]}).scalars())
    return found


def _summaries(connection: Connection, wanted: Iterable[str]) -> list[WorkflowSummary]:
    """In the order of the names, without those that do not exist."""
    names, rows = list(wanted), dict[str, dict[str, Any]]()
    for first in range(0, len(names), _AT_ONCE):
        some = names[first : first + _AT_ONCE]
        rows |= {row["name"]: dict(row) for row in connection.execute(_NAMED, {"names": some}).mappings()}
    last = [row["last_run"] for row in rows.values() if row["last_run"] is not None]
    found: dict[str, Run] = {}
    for first in range(0, len(last), _AT_ONCE):
        for row in connection.execute(_RUNS, {"run_ids": last[first : first + _AT_ONCE]}):
            run = header(tuple(row))
            found[run.id] = run
    return [_summary(rows[name], found) for name in names if name in rows]


def _summary(row: dict[str, Any], found: Mapping[str, Run]) -> WorkflowSummary:
    return WorkflowSummary(
        stored=workflow_from(row),
        last_run=found.get(row["last_run"]),
        running=row["running"],
        waiting=row["waiting"],
        rated=row["rated"],
        succeeded=int(row["succeeded"]),
        next_due=row["next_due"],
        zone=row["zone"] or "",
    )
