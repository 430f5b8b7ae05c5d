"""Statistics of runs: counts by day, grids of runs and steps, and what follows from runs.

The id of a run begins with the time of its creation, so an index over ids is one over times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from toband.domain.emitted_events import Emitted
from toband.domain.identity import Narrowing, Visible
from toband.domain.run_model import INSTANCE_BITS, Run, RunState
from toband.ports import GridCell, GridRow
from toband.store.rows.events import read_events
from toband.store.rows.runs import header
from toband.store.sql.event_tables import events
from toband.store.sql.keyset_paging import newest, unindexed
from toband.store.sql.open_database import OpenDatabase, reading
from toband.store.sql.tables import among, runs, step_runs
from toband.store.sql.visible_rows import few_names, is_visible

_AT_ONCE: Final = 500
_CELLS = (
    select(step_runs.c.step, step_runs.c.state, step_runs.c.started_at, step_runs.c.finished_at, step_runs.c.attempts)
    .where(step_runs.c.run_id == bindparam("of_run"), step_runs.c.position % (1 << INSTANCE_BITS) == 0)
    .order_by(step_runs.c.position)
)
_HEADERS = select(runs).where(runs.c.id.in_(bindparam("run_ids", expanding=True))).order_by(runs.c.id)
_EMITTED = (
    select(events)
    # The condition of the index, or SQLite does not use it.
    .where(events.c.source_run != "", events.c.source_run.in_(bindparam("run_ids", expanding=True)))
    .order_by(events.c.sequence)
    .limit(bindparam("at_most"))
)


class SqlRunStatistics(OpenDatabase):
    """`toband.ports.RunStatisticsStore`."""

    @reading
    def count_created(
        self, connection: Connection, bounds: Sequence[datetime], *, workflow: str = "", visible: Visible = None
    ) -> Sequence[Mapping[RunState, int]]:
        names = [workflow] if workflow else few_names(connection, visible)
        if visible is not None and names is None:
            return _scanned(connection, bounds, visible)
        condition = is_visible(connection, runs.c.workflow, visible) if visible is not None and workflow else None
        queries = [_counts(name, condition) for name in (names if names is not None else [""])]
        found: list[Mapping[RunState, int]] = []
        first = _first(connection, names)
        for low, high in zip(map(_id_from, bounds[:-1]), map(_id_from, bounds[1:]), strict=True):
            counts: dict[RunState, int] = {}
            if first and high > first:
                for query in queries:
                    row = connection.execute(query, {"low": low, "high": high}).one()
                    for state, count in zip(RunState, row, strict=True):
                        counts[state] = counts.get(state, 0) + count
            found.append({state: count for state, count in counts.items() if count})
        return found

    @reading
    def run_grid(
        self, connection: Connection, workflow: str, *, before: str = "", limit: int, most_cells: int
    ) -> tuple[Sequence[GridRow], bool]:
        found: list[GridRow] = []
        for row in newest(connection, runs, workflow, (), before, limit + 1):
            if len(found) >= limit:
                return found, True
            run = header(tuple(row))
            cells = [GridCell(*each) for each in connection.execute(_CELLS, {"of_run": run.id})]
            most_cells -= len(cells)
            if found and most_cells < 0:
                return found, True
            found.append(GridRow(run=run, cells=cells))
        return found, False

    @reading
    def events_of_runs(self, connection: Connection, run_ids: Sequence[str], *, limit: int) -> Sequence[Emitted]:
        found: list[Emitted] = []
        for start in range(0, len(run_ids), _AT_ONCE):
            some = list(run_ids[start : start + _AT_ONCE])
            found += read_events(connection, _EMITTED, run_ids=some, at_most=limit)
        return sorted(found, key=lambda event: event.sequence)[:limit]

    @reading
    def headers(self, connection: Connection, run_ids: Sequence[str]) -> Sequence[Run]:
        found: list[Run] = []
        for start in range(0, len(run_ids), _AT_ONCE):
            some = list(run_ids[start : start + _AT_ONCE])
            found += [header(tuple(row)) for row in connection.execute(_HEADERS, {"run_ids": some})]
        return found


def _counts(workflow: str, condition: ColumnElement[bool] | None) -> Select[Any]:
    """The number of runs in each state: for each a part of an index."""
    columns = []
    for state in RunState:
        of_state = (
            select(func.count())
            .select_from(runs)
            .where(among(runs.c.state, [state]), runs.c.id >= bindparam("low"), runs.c.id < bindparam("high"))
        )
        if workflow:
            of_state = of_state.where(runs.c.workflow == workflow)
        if condition is not None:
            of_state = of_state.where(condition)
        columns.append(of_state.scalar_subquery().label(state.value))
    return select(*columns)


def _scanned(
    connection: Connection, bounds: Sequence[datetime], visible: Sequence[Narrowing]
) -> Sequence[Mapping[RunState, int]]:
    """For many workflows: one walk along the index that has workflow, state and id, without reading rows."""
    ids = [_id_from(at) for at in bounds]
    query = select(runs.c.state, runs.c.id).where(
        # The whole index is shorter than a search for each row.
        unindexed(runs.c.id) >= ids[0],
        unindexed(runs.c.id) < ids[-1],
        is_visible(connection, runs.c.workflow, visible),
    )
    found: list[Counter[RunState]] = [Counter() for _ in bounds[1:]]
    for state, run_id in connection.execute(query):
        found[bisect_right(ids, run_id) - 1][state] += 1
    return found


def _first(connection: Connection, names: Sequence[str] | None) -> str:
    """The id of the oldest run of these workflows; days before it need not be counted."""
    if names is None:
        return connection.execute(select(func.min(runs.c.id))).scalar() or ""
    oldest = (select(func.min(runs.c.id)).where(runs.c.workflow == name) for name in names)
    return min(filter(None, (connection.execute(query).scalar() for query in oldest)), default="")


def _id_from(at: datetime) -> str:
    """The smallest id of a run that was created then."""
    digits = f"{max(0, int(at.timestamp() * 1000)):012x}"
    return f"{digits[:8]}-{digits[8:]}"
