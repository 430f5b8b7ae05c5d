"""Emitted events: stores them, resolves them with the runs that they start, and forgets old ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    union_all,
)

from toband.domain import overlap
from toband.domain.emitted_events import Burst, Emitted, EventRun, EventRunOutcome, EventState
from toband.domain.not_started import NotStarted
from toband.domain.run_model import Run
from toband.ports import (
    ActiveRunError,
    EventResolution,
    Request,
    RequestReusedError,
    Resolved,
)
from toband.store.rows import debounce_and_throttle, event_rows, runs
from toband.store.rows.event_deduplication import append_events
from toband.store.rows.idempotent_calls import recall_change, remember
from toband.store.sql.columns import printable, to_micros
from toband.store.sql.event_tables import event_bursts, event_runs
from toband.store.sql.event_tables import events as table
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.statements import Statements
from toband.store.sql.tables import requests
from toband.store.sql.writer import WriteSession

FORGET_AT_ONCE = 500
"""Events removed in one transaction; the limit keeps other writers from waiting long."""
# Below the limit of parameters that a statement has in either database.
_AT_ONCE = 500

# Exactly as the partial index spells it, or SQLite does not use that.
_PENDING = table.c.state == literal_column(f"'{EventState.PENDING.value}'")
_EVENT = select(table).where(table.c.id == bindparam("of_id"))
_RUNS = select(event_runs).where(event_runs.c.event_id.in_(bindparam("of_ids", expanding=True)))
_WAITING = (
    select(table)
    .where(_PENDING, table.c.sequence > bindparam("after"))
    .order_by(table.c.sequence)
    .limit(bindparam("at_most"))
)
_LAST = select(func.max(table.c.sequence))
_COUNT = select(func.count()).select_from(table).where(_PENDING)

_FIRST_REQUEST = select(func.min(requests.c.created_at)).scalar_subquery()
_REMOVABLE = and_(
    not_(_PENDING),
    not_(exists().where(event_bursts.c.event_id == table.c.id)),
    # The next sequence is counted from the last event.
    table.c.sequence < _LAST.scalar_subquery(),
    # A repeated request returns the same event.
    or_(table.c.requested_at.is_(None), func.coalesce(table.c.requested_at < _FIRST_REQUEST, True)),
)
_OLD = (
    select(table.c.id)
    .where(table.c.emitted_at < bindparam("before"), _REMOVABLE)
    .order_by(table.c.emitted_at)
    .limit(FORGET_AT_ONCE)
)
_OLDEST_KEPT = select(table.c.sequence).order_by(table.c.sequence.desc()).limit(1)
_SURPLUS = (
    select(table.c.id, table.c.sequence)
    .where(table.c.sequence > bindparam("after"), table.c.sequence < bindparam("first"), _REMOVABLE)
    .order_by(table.c.sequence)
    .limit(FORGET_AT_ONCE)
)
_REMOVE = delete(table).where(table.c.id.in_(bindparam("of_ids", expanding=True)), _REMOVABLE)


class SqlEvents(OpenDatabase):
    """`toband.ports.EventStore`."""

    async def add_events(
        self, events: Sequence[Emitted], *, request: Request | None = None
    ) -> Sequence[tuple[Emitted, bool]]:
        if request is not None and len(events) != 1:
            raise ValueError(f"cannot store {len(events)} events for one request")
        new = [event_rows.encode(event) for event in events]

        def operation(session: WriteSession) -> Sequence[tuple[Emitted, bool]]:
            session.lock_creation()
            made = recall_change(session, request)
            if made is not None:
                event_id, is_new = _answered(made)
                known = event_rows.read_written(self._sql, session, event_id)
                if known is None:
                    assert request is not None
                    raise RequestReusedError(request.id)  # the clock was set back by days
                return [(known, is_new)]
            answers = append_events(self._sql, session, new)
            if request is not None:
                ((event, is_new),) = answers
                at = events[0].at
                session.run(self._sql.answer_with_event, {"event_id": event.id, "requested_at": to_micros(at)})
                remember(session, request, {"event": event.id, "created": is_new}, at)
            for event, is_new in answers:
                session.audit(f"event {event.id}" if is_new else f"event {event.id}, emitted before")
            return answers

        return await self._write.do(operation)

    @reading
    def get_event(self, connection: Connection, event_id: str) -> Emitted | None:
        found = read_events(connection, _EVENT, of_id=event_id)
        return found[0] if found else None

    @reading
    def list_events(
        self, connection: Connection, *, types: Sequence[str] = (), before: int | None = None, limit: int = 100
    ) -> Sequence[Emitted]:
        conditions = [] if before is None else [table.c.sequence < before]
        return read_events(connection, _walk(types, conditions, limit, newest_first=True))

    @reading
    def events_after(
        self, connection: Connection, sequence: int, *, up_to: int, types: Sequence[str] = (), limit: int = 100
    ) -> Sequence[Emitted]:
        conditions = [table.c.sequence > sequence, table.c.sequence <= up_to]
        return read_events(connection, _walk(types, conditions, limit, newest_first=False))

    @reading
    def pending_events(self, connection: Connection, *, after: int = 0, limit: int = 100) -> Sequence[Emitted]:
        return read_events(connection, _WAITING, after=after, at_most=limit)

    @reading
    def last_event(self, connection: Connection) -> int:
        return connection.execute(_LAST).scalar() or 0

    async def resolve_event(self, resolution: EventResolution) -> Resolved | None:
        return await self._write.do(_resolving(self._sql, resolution))

    @reading
    def due_bursts(self, connection: Connection, now: datetime, *, limit: int = 100) -> Sequence[Burst]:
        return debounce_and_throttle.due_bursts(connection, now, limit)

    @reading
    def next_burst(self, connection: Connection) -> datetime | None:
        return debounce_and_throttle.next_burst(connection)

    async def end_burst(
        self, burst: Burst, *, run: Run | None, max_active: int | None = None, reason: NotStarted | None = None
    ) -> Run | None:
        new = runs.encode(run) if run is not None else None

        def operation(session: WriteSession) -> Run | None:
            session.lock_creation()
            if not debounce_and_throttle.end_burst(session, burst):
                return None
            made, why = None, reason
            if new is not None:
                try:
                    runs.check_active(self._sql, session, burst.workflow, max_active)
                except ActiveRunError as error:
                    why = overlap.skipped(error.name)
                else:
                    made = runs.add(self._sql, session, new)
            debounce_and_throttle.decide_line(session, burst, made.id if made is not None else "", why)
            return made

        return await self._write.do(operation)

    async def forget_events(self, before: datetime, keep: int) -> int:
        gone = 0
        while ids := await self._read(_read_old, before):
            removed = await self._remove_events(ids)
            gone += removed
            if not removed:
                break  # other transactions need all of them by now
        first_kept = await self._read(_read_first_kept, keep)
        after = 0
        while found := await self._read(_read_surplus, after, first_kept):
            gone += await self._remove_events([event_id for event_id, _ in found])
            after = found[-1][1]
        return gone

    @writing
    def _remove_events(self, session: WriteSession, ids: Sequence[str]) -> int:
        """Removes those that are still removable; returns their number."""
        session.lock_creation()
        return session.connection.execute(_REMOVE, {"of_ids": list(ids)}).rowcount


def _answered(answer: Any) -> tuple[str, bool]:
    """The event in the remembered answer, and whether that call stored it. Older releases stored the id alone."""
    return (answer, True) if isinstance(answer, str) else (answer["event"], answer["created"])


def _resolving(sql: Statements, resolution: EventResolution) -> Callable[[WriteSession], Resolved | None]:
    event_id = resolution.event_id
    pending = resolution.state is EventState.PENDING
    decided = {
        "event_id": event_id,
        "state": resolution.state.value,
        "reason": printable(resolution.reason),
        "resolved_at": None if pending else to_micros(resolution.at),
    }
    # Encoded here, in the caller's thread.
    new = [(line, runs.encode(run), most) for line, run, most in resolution.runs]

    def operation(session: WriteSession) -> Resolved | None:
        session.lock_creation()
        if not session.run(sql.resolve_event, decided):
            return None
        lines = _Lines(sql, session, event_id)
        made: list[Run] = []
        for line, run, max_active in new:
            if not lines.free(line):
                continue
            by = resolution.throttled.get(line.workflow)
            if by is not None and (slow := debounce_and_throttle.throttled(session, by, resolution.at)) is not None:
                lines.add(replace(line, outcome=EventRunOutcome.SKIPPED, reason=slow, run_id=""))
                continue
            try:
                runs.check_active(sql, session, line.workflow, max_active)
            except ActiveRunError as error:
                reason = overlap.skipped(error.name)
                lines.add(replace(line, outcome=EventRunOutcome.SKIPPED, reason=reason, run_id=""))
            else:
                runs.check_sources(session.connection, run.sources)
                made.append(runs.add(sql, session, run))
                lines.add(line)
                if by is not None:
                    debounce_and_throttle.count_start(session, by, resolution.at)
        for line, start, scope in resolution.debounced:
            if lines.free(line):
                why = debounce_and_throttle.join_burst(
                    session, event_id, start, resolution.at, priority=line.priority, scope=scope
                )
                lines.add(replace(line, reason=why))
        for line in resolution.skipped:
            if lines.free(line):
                lines.add(line)
        lines.write()
        event = event_rows.read_written(sql, session, event_id)
        assert event is not None
        return Resolved(event=event, runs=tuple(made))

    return operation


class _Lines:
    """Collects one line per workflow."""

    def __init__(self, sql: Statements, session: WriteSession, event_id: str) -> None:
        self._sql = sql
        self._session = session
        self._event_id = event_id
        found = session.fetch(sql.event_workflows, {"event_id": event_id})
        self._known = {workflow for (workflow,) in found}
        self._rows: list[dict[str, Any]] = []

    def free(self, line: EventRun) -> bool:
        return line.workflow not in self._known

    def add(self, line: EventRun) -> None:
        self._known.add(line.workflow)
        self._rows.append(event_rows.run_row(self._event_id, line))

    def write(self) -> None:
        if self._rows:
            self._session.run_many(self._sql.insert_event_run, self._rows)


# ------------------------------------------------------------------------------------------------ reading


def _walk(
    types: Sequence[str],
    conditions: Sequence[ColumnElement[bool]],
    limit: int,
    *,
    newest_first: bool,
) -> Select[Any]:
    """One index walk per type, each cut at the limit, so that events of other types are not read."""
    pages = []
    for wanted in dict.fromkeys(types) or [None]:
        page = select(table).where(*conditions)
        if wanted is not None:
            page = page.where(table.c.type == wanted)
        pages.append(_in_order(page, table.c.sequence, limit, newest_first))
    if len(pages) == 1:
        return pages[0]
    merged = union_all(*(select(page.subquery()) for page in pages)).subquery()
    return _in_order(select(merged), merged.c.sequence, limit, newest_first)


def _in_order(page: Select[Any], sequence: ColumnElement[int], limit: int, newest_first: bool) -> Select[Any]:
    return page.order_by(sequence.desc() if newest_first else sequence).limit(limit)


def count_pending(connection: Connection) -> int:
    return connection.execute(_COUNT).scalar_one()


def read_events(connection: Connection, query: Any, **of: object) -> list[Emitted]:
    rows = connection.execute(query, of).mappings().all()
    runs_of: dict[str, list[EventRun]] = {row["id"]: [] for row in rows}
    ids = list(runs_of)
    for first in range(0, len(ids), _AT_ONCE):
        some = {"of_ids": ids[first : first + _AT_ONCE]}
        for run in connection.execute(_RUNS, some).mappings():
            runs_of[run["event_id"]].append(event_rows.run_from(dict(run)))
    return [event_rows.event_from(dict(row), runs_of[row["id"]]) for row in rows]


# ------------------------------------------------------------------------------------------------ forgetting


def _read_old(connection: Connection, before: datetime) -> Sequence[str]:
    """Ids of events emitted before then; one batch."""
    return connection.execute(_OLD, {"before": before}).scalars().all()


def _read_first_kept(connection: Connection, keep: int) -> int:
    """The lowest sequence among the newest `keep`; 0 if there are fewer."""
    return connection.execute(_OLDEST_KEPT.offset(max(keep, 1) - 1)).scalar() or 0


def _read_surplus(connection: Connection, after: int, first_kept: int) -> Sequence[tuple[str, int]]:
    """Ids and sequences of events between the two sequences; one batch."""
    found = connection.execute(_SURPLUS, {"after": after, "first": first_kept})
    return [(event_id, sequence) for event_id, sequence in found]
