"""The fire ledger: a line for every due time, written with the runs and events that it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, bindparam, delete, exists, func, not_, or_, select

from toband.domain import overlap
from toband.domain.identity import Visible
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.ports import ActiveRunError, Fired, Firing, Request
from toband.store.rows import event_rows, runs
from toband.store.rows.event_deduplication import append_events
from toband.store.rows.idempotent_calls import recall_change, remember
from toband.store.sql.columns import micros_or_none, to_json, to_micros
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.row_codec import not_started_columns, not_started_from
from toband.store.sql.schedule_tables import fires as table
from toband.store.sql.statements import Statements
from toband.store.sql.tables import runs as all_runs
from toband.store.sql.visible_rows import only_visible
from toband.store.sql.writer import WriteSession

FORGET_AT_ONCE = 1_000
"""Lines removed in one transaction; the limit keeps other writers from waiting long."""

Key = tuple[str, datetime]

_LINE = and_(table.c.schedule_id == bindparam("of_schedule"), table.c.due_at == bindparam("of_due"))
_REMOVE = delete(table).where(_LINE)
_OLD = (
    select(table.c.schedule_id, table.c.due_at)
    # A line may be much younger than its due time: that of a backfill.
    .where(table.c.due_at < bindparam("before"), table.c.at < bindparam("before"))
    .order_by(table.c.due_at, table.c.schedule_id)
    .limit(FORGET_AT_ONCE)
)
_CROWDED = (
    select(table.c.schedule_id)
    .group_by(table.c.schedule_id)
    .having(func.count() > bindparam("keep"))
    .order_by(table.c.schedule_id)
)
_SURPLUS = (
    select(table.c.schedule_id, table.c.due_at)
    .where(table.c.schedule_id == bindparam("of_schedule"))
    .order_by(table.c.due_at.desc())
    .offset(bindparam("keep"))
    .limit(FORGET_AT_ONCE)
)
_later = table.alias("later")
# A run that also represents missed times belongs to the last of its due times.
_OWN = and_(
    table.c.run_id != "",
    not_(
        exists().where(
            _later.c.schedule_id == table.c.schedule_id,
            _later.c.run_id == table.c.run_id,
            _later.c.due_at > table.c.due_at,
        )
    ),
)
_OWN_RUN = select(table.c.run_id).where(_LINE, _OWN)
_OWN_RUNS = (
    select(table.c.due_at, table.c.run_id)
    .where(
        table.c.schedule_id == bindparam("of_schedule"),
        table.c.due_at >= bindparam("first"),
        table.c.due_at <= bindparam("last"),
        _OWN,
    )
    .order_by(table.c.due_at)
)
# Their lines may have been forgotten.
_KEPT_RUNS = (
    select(all_runs.c.scheduled_at.label("due_at"), func.min(all_runs.c.id).label("run_id"))
    .where(
        all_runs.c.workflow == bindparam("of_workflow"),
        all_runs.c.schedule == bindparam("of_schedule"),
        all_runs.c.scheduled_at >= bindparam("first"),
        all_runs.c.scheduled_at <= bindparam("last"),
    )
    .group_by(all_runs.c.scheduled_at)
)


class SqlFires(OpenDatabase):
    """`toband.ports.FireLedger`."""

    async def fire(self, firing: Firing) -> Fired | None:
        return await self._write.do(_firing(self._sql, firing))

    async def backfill(
        self, line: Fire, run: Run, *, again: bool, request: Request | None = None
    ) -> tuple[str, Run | None]:
        new = runs.encode(run)
        key = {"of_schedule": line.schedule_id, "of_due": line.due_at}

        def operation(session: WriteSession) -> tuple[str, Run | None]:
            session.lock_creation()
            made = recall_change(session, request)
            if made is not None:
                return made, None
            own = session.connection.execute(_OWN_RUN, key).scalar()
            if own is not None and not again:
                return own, None
            runs.check_sources(session.connection, new.sources)
            added = runs.add(self._sql, session, new)
            if own is None:
                session.connection.execute(_REMOVE, key)
                session.run_many(self._sql.insert_fire, [_row(line)])
            remember(session, request, run.id, run.created_at)
            return run.id, added

        return await self._write.do(operation)

    @reading
    def own_runs(
        self, connection: Connection, schedule_id: str, first: datetime, last: datetime
    ) -> Mapping[datetime, str]:
        of = {"of_schedule": schedule_id, "first": first, "last": last}
        workflow = schedule_id.rpartition("/")[0]
        found = [
            *connection.execute(_KEPT_RUNS, of | {"of_workflow": workflow}),
            *connection.execute(_OWN_RUNS, of),
        ]
        return {row.due_at: row.run_id for row in found}

    @reading
    def fires(
        self,
        connection: Connection,
        *,
        schedule_id: str = "",
        workflow: str = "",
        before: datetime | None = None,
        before_schedule: str = "",
        after: datetime | None = None,
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[Fire]:
        query = select(table).order_by(table.c.due_at.desc(), table.c.schedule_id.desc()).limit(limit)
        if schedule_id:
            query = query.where(table.c.schedule_id == schedule_id)
        if workflow:
            query = query.where(table.c.workflow == workflow)
        if before is not None and before_schedule:
            query = query.where(
                table.c.due_at <= before,
                or_(table.c.due_at < before, table.c.schedule_id < before_schedule),
            )
        elif before is not None:
            query = query.where(table.c.due_at < before)
        if after is not None:
            query = query.where(table.c.due_at > after)
        query = only_visible(query, connection, table.c.workflow, visible)
        return [_line_from(row) for row in connection.execute(query).mappings()]

    async def forget_fires(self, before: datetime, keep: int) -> int:
        gone = 0
        while lines := await self._read(_keys, _OLD, before=before):
            gone += await self._remove_lines(lines)
        for schedule_id in await self._read(_read_crowded, keep):
            while lines := await self._read(_keys, _SURPLUS, of_schedule=schedule_id, keep=keep):
                gone += await self._remove_lines(lines)
        return gone

    @writing
    def _remove_lines(self, session: WriteSession, lines: Sequence[Key]) -> int:
        rows = [{"of_schedule": schedule_id, "of_due": due_at} for schedule_id, due_at in lines]
        session.connection.execute(_REMOVE, rows)
        return len(lines)


def _read_crowded(connection: Connection, keep: int) -> Sequence[str]:
    """Ids of schedules with more than `keep` lines."""
    return connection.execute(_CROWDED, {"keep": keep}).scalars().all()


def _keys(connection: Connection, /, query: Any, **of: object) -> Sequence[Key]:
    return [(schedule_id, due_at) for schedule_id, due_at in connection.execute(query, of)]


# ------------------------------------------------------------------------------------------------ firing


def _firing(sql: Statements, firing: Firing) -> Callable[[WriteSession], Fired | None]:
    """Raises ValueError if `after` or a line is of another schedule than `before`."""
    before, after = firing.before, firing.after
    event_lines = tuple(line for line, _ in firing.events)
    lines = (*firing.fires, *(line for line, _, _ in firing.runs), *event_lines)
    if after.id != before.id or any(line.schedule_id != before.id for line in lines):
        raise ValueError(f"cannot fire {before.id}: not all of it is of that schedule")
    # In the caller's thread, to spare the writer's.
    moved = _moved(before, after)
    times = [to_micros(line.due_at) for line in lines]
    between = {
        "schedule_id": before.id,
        "first": min(times, default=0),
        "last": max(times, default=-1),
    }
    new = {run.id: runs.encode(run) for _, run, _ in firing.runs}
    events = [(line, event_rows.encode(event)) for line, event in firing.events]

    def operation(session: WriteSession) -> Fired | None:
        session.lock_creation()
        if not session.run(sql.move_schedule, moved):
            return None
        known = frozenset(at for (at,) in session.fetch(sql.known_fires, between))
        ledger = _Ledger(set(known))
        made: list[Run] = []
        in_the_way: dict[str, NotStarted] = {}
        for line, run, max_active in firing.runs:
            if ledger.knows(line):
                in_the_way[run.id] = NotStarted(NotStartedReason.DECIDED_BEFORE)
                continue
            try:
                runs.check_active(sql, session, run.workflow, max_active)
            except ActiveRunError as error:
                in_the_way[run.id] = overlap.skipped(error.name)
            else:
                encoded = new[run.id]
                missed = tuple(at for at in run.missed if to_micros(at) not in known)
                if missed != run.missed:
                    # Those have lines of other runs: the clock was set back.
                    encoded = runs.encode(replace(run, missed=missed))
                runs.check_sources(session.connection, encoded.sources)
                made.append(runs.add(sql, session, encoded))
            ledger.add(line, in_the_way)
        emitted = []
        for line, event in events:
            if not ledger.knows(line):
                emitted.append(event)
                ledger.add(line, in_the_way)
        for line in firing.fires:
            ledger.add(line, in_the_way)
        if ledger.rows:
            session.run_many(sql.insert_fire, ledger.rows)
        if emitted:
            append_events(sql, session, emitted)
        return Fired(runs=tuple(made), skipped=tuple(ledger.skipped), repeated=tuple(ledger.repeated))

    return operation


class _Ledger:
    """Collects the lines of one firing. `known` are the due times that have a line."""

    def __init__(self, known: set[int]) -> None:
        self._known = known
        self.rows: list[Mapping[str, Any]] = []
        self.skipped: list[Fire] = []
        self.repeated: list[Fire] = []

    def knows(self, line: Fire) -> bool:
        if to_micros(line.due_at) not in self._known:
            return False
        self.repeated.append(line)
        return True

    def add(self, line: Fire, in_the_way: Mapping[str, NotStarted]) -> None:
        """Adds the line; as SKIPPED if its run was not created, and not at all if its due time has a line."""
        if self.knows(line):
            return
        if line.run_id in in_the_way:
            reason = in_the_way[line.run_id]
            line = replace(line, outcome=FireOutcome.SKIPPED, reason=reason, run_id="")
            self.skipped.append(line)
        row = _row(line)
        self._known.add(row["due_at"])
        self.rows.append(row)


def _moved(before: ScheduleEntry, after: ScheduleEntry) -> Mapping[str, Any]:
    alarm = after.alarm
    return {
        "schedule_id": before.id,
        "was_due": micros_or_none(before.next_due),
        "was_occurrences": before.occurrences,
        "was_stored_at": to_micros(before.stored_at),
        "was_zone": before.zone,
        "was_spec": to_json(before.spec.to_dict()),
        "next_due": micros_or_none(after.next_due),
        "alarm": micros_or_none(alarm),
        "occurrences": after.occurrences,
    }


def _row(line: Fire) -> dict[str, Any]:
    return {
        "schedule_id": line.schedule_id,
        "due_at": to_micros(line.due_at),
        "workflow": line.workflow,
        "outcome": line.outcome.value,
        "at": to_micros(line.at),
        **not_started_columns(line.reason),
        "run_id": line.run_id,
        "event_id": line.event_id,
        "more": line.more,
    }


def _line_from(values: RowMapping) -> Fire:
    stored = dict(values)
    return Fire(**stored | {"reason": not_started_from(stored["reason"], stored.pop("detail"))})
