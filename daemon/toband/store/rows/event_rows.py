"""Events as rows, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Table

from toban.limits import cut
from toband.domain.emitted_events import Emitted, EventRun
from toband.store.sql.columns import JsonText, Micros, Name, Raw, Values, micros_or_none, printable, to_json, to_micros
from toband.store.sql.event_tables import event_runs, events
from toband.store.sql.row_codec import not_started_columns, not_started_from
from toband.store.sql.statements import Statements
from toband.store.sql.writer import WriteSession


class NewEvent(NamedTuple):
    """A raw row, complete except for its sequence."""

    event: Emitted
    row: Raw


def encode(event: Emitted) -> NewEvent:
    """Call it in the caller's thread, to spare the writer's. Raises ValueError for times without a zone."""
    row = {
        "id": event.id,
        "type": event.type,
        "payload": to_json(event.payload),
        "emitted_at": to_micros(event.at),
        "source": event.source.value,
        "caller": printable(event.caller),
        "source_run": event.source_run,
        "source_step": event.source_step,
        "depth": event.depth,
        "dedupe_key": event.dedupe_key or None,
        "workflow": event.workflow,
        "params": to_json(event.params) if event.params else "{}",
        "schedule": event.schedule,
        "scheduled_at": micros_or_none(event.scheduled_at),
        "requested_at": None,
        "state": event.state.value,
        "reason": printable(cut(event.reason)),
        "resolved_at": micros_or_none(event.resolved_at),
    }
    return NewEvent(event, row)


def run_row(event_id: str, run: EventRun) -> Raw:
    return {
        "event_id": event_id,
        "workflow": run.workflow,
        "priority": run.priority,
        "outcome": run.outcome.value,
        **not_started_columns(run.reason),
        "run_id": run.run_id,
        "later_event": run.later_event or None,
    }


def read_written(sql: Statements, session: WriteSession, event_id: str) -> Emitted | None:
    """The event as this transaction sees it, with its runs."""
    return first_event(sql, session, session.fetch(sql.event, {"event_id": event_id}))


def first_event(sql: Statements, session: WriteSession, rows: Sequence[tuple[Any, ...]]) -> Emitted | None:
    if not rows:
        return None
    values = _EVENT(rows[0])
    found = session.fetch(sql.event_runs, {"event_id": values["id"]})
    return event_from(values, [run_from(_RUN(row)) for row in found])


# ------------------------------------------------------------------------------------------------ from rows


def event_from(values: Values, runs: Iterable[EventRun]) -> Emitted:
    """`values` are as the column types return them. Sorts the runs by descending priority, then by name."""
    return Emitted(
        id=values["id"],
        type=values["type"],
        payload=values["payload"],
        at=values["emitted_at"],
        source=values["source"],
        caller=values["caller"],
        source_run=values["source_run"],
        source_step=values["source_step"],
        depth=values["depth"],
        dedupe_key=values["dedupe_key"] or "",
        workflow=values["workflow"],
        params=values["params"],
        schedule=values["schedule"],
        scheduled_at=values["scheduled_at"],
        sequence=values["sequence"],
        state=values["state"],
        reason=values["reason"],
        resolved_at=values["resolved_at"],
        runs=tuple(sorted(runs, key=lambda run: (-run.priority, run.workflow))),
    )


def run_from(values: Values) -> EventRun:
    return EventRun(
        workflow=values["workflow"],
        priority=values["priority"],
        outcome=values["outcome"],
        reason=not_started_from(values["reason"], values["detail"]),
        run_id=values["run_id"],
        later_event=values["later_event"] or "",
    )


class _Read:
    """Converts a row from the driver into the values that its column types return."""

    def __init__(self, table: Table) -> None:
        self._names = tuple(table.c.keys())
        self._convert = tuple(
            (column.name, column.type.process_result_value)
            for column in table.c
            if isinstance(column.type, (JsonText, Micros, Name))
        )

    def __call__(self, row: Sequence[Any]) -> Mapping[str, Any]:
        values = dict(zip(self._names, row, strict=True))
        for name, convert in self._convert:
            values[name] = convert(values[name], None)
        return values


_EVENT = _Read(events)
_RUN = _Read(event_runs)
