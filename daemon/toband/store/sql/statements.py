"""The statements of the hot path: compiled once, then passed to the driver as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from sqlalchemy import Dialect, Table, and_, bindparam, func, insert, not_, select, update
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from toband.domain.emitted_events import EventState
from toband.domain.run_model import Trigger
from toband.store.sql.attempt_codec import ATTEMPT_IDENTITY
from toband.store.sql.event_tables import event_runs, event_triggers, events
from toband.store.sql.row_codec import RUN_IDENTITY, STEP_IDENTITY
from toband.store.sql.schedule_tables import fires, schedules
from toband.store.sql.tables import (
    ACTIVE_RUNS,
    LIVE_ATTEMPTS,
    OPEN_STEPS,
    among,
    dead_letters,
    deleted_changes,
    lock_leftovers,
    process_executions,
    run_history,
    run_labels,
    run_numbers,
    run_sources,
    run_values,
    runs,
    step_items,
    step_runs,
)


def _others(table: Table, without: Iterable[str]) -> list[str]:
    left_out = set(without)
    return [name for name in table.c.keys() if name not in left_out]  # noqa: SIM118


class Statement:
    """SQL for the driver. `bind` makes its parameters from a row: a mapping by names of columns and of bound
    parameters.
    """

    __slots__ = ("bind", "sql")

    sql: str
    bind: Callable[[Mapping[str, Any]], Any]

    def __init__(self, statement: ClauseElement, columns: list[str] | None, dialect: Dialect):
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        assert isinstance(compiled, SQLCompiler)
        self.sql = compiled.string
        names = compiled.positiontup
        if names is None:
            self.bind = _as_it_is
        elif not names:
            self.bind = lambda row: ()
        elif len(names) == 1:
            only = names[0]
            self.bind = lambda row: (row[only],)
        else:
            self.bind = itemgetter(*names)


def _as_it_is(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row


class Statements:
    """The statements for one kind of database."""

    def __init__(self, dialect: Dialect) -> None:
        def text(statement: ClauseElement, columns: list[str] | None = None) -> Statement:
            return Statement(statement, columns, dialect)

        def whole(table: Table) -> Statement:
            return text(insert(table), _others(table, ()))

        self.insert_run = whole(runs)
        self.insert_run_values = whole(run_values)
        self.insert_step = whole(step_runs)
        self.insert_item = whole(step_items)
        self.insert_attempt = whole(process_executions)
        self.insert_history = whole(run_history)
        self.insert_letter = whole(dead_letters)
        self.insert_lock_leftover = whole(lock_leftovers)
        self.insert_source = whole(run_sources)
        self.insert_run_label = whole(run_labels)
        self.insert_fire = whole(fires)

        # The schedule has not changed since the decision on it.
        same_schedule = and_(
            schedules.c.id == bindparam("schedule_id"),
            schedules.c.next_due.is_not_distinct_from(bindparam("was_due")),
            schedules.c.occurrences == bindparam("was_occurrences"),
            schedules.c.stored_at == bindparam("was_stored_at"),
            schedules.c.zone == bindparam("was_zone"),
            schedules.c.spec == bindparam("was_spec"),
            schedules.c.cancelled_at.is_(None),
        )
        self.move_schedule = text(update(schedules).where(same_schedule), ["next_due", "alarm", "occurrences"])
        self.known_fires = text(
            select(fires.c.due_at).where(
                fires.c.schedule_id == bindparam("schedule_id"),
                fires.c.due_at >= bindparam("first"),
                fires.c.due_at <= bindparam("last"),
            )
        )

        self.insert_event = whole(events)
        self.insert_event_run = whole(event_runs)
        self.last_event = text(select(func.max(events.c.sequence)))
        self.event = text(select(events).where(events.c.id == bindparam("event_id")))
        self.event_of_key = text(
            select(events).where(events.c.dedupe_key == bindparam("dedupe_key"), events.c.type == bindparam("type"))
        )
        self.event_runs = text(select(event_runs).where(event_runs.c.event_id == bindparam("event_id")))
        self.event_workflows = text(select(event_runs.c.workflow).where(event_runs.c.event_id == bindparam("event_id")))
        self.resolve_event = text(
            update(events).where(events.c.id == bindparam("event_id"), among(events.c.state, [EventState.PENDING])),
            ["state", "reason", "resolved_at"],
        )
        self.answer_with_event = text(update(events).where(events.c.id == bindparam("event_id")), ["requested_at"])
        self.first_listener = text(
            select(func.min(event_triggers.c.workflow)).where(event_triggers.c.type == bindparam("type"))
        )

        same_run = and_(
            runs.c.id == bindparam("run_id"),
            runs.c.sequence == bindparam("was_sequence"),
            runs.c.state == bindparam("was_state"),
            among(runs.c.state, ACTIVE_RUNS),
        )
        # Leaves the state out where it does not change, so that its indexes need no update.
        self.update_run = text(update(runs).where(same_run), _others(runs, {*RUN_IDENTITY, "state"}))
        self.update_run_state = text(update(runs).where(same_run), _others(runs, RUN_IDENTITY))
        self.run_exists = text(select(runs.c.id).where(runs.c.id == bindparam("run_id")))

        self.update_step = text(
            update(step_runs)
            .where(step_runs.c.run_id == bindparam("run_id"))
            .where(step_runs.c.position == bindparam("position"))
            .where(among(step_runs.c.state, OPEN_STEPS)),
            _others(step_runs, STEP_IDENTITY),
        )
        self.update_attempt = text(
            update(process_executions)
            .where(process_executions.c.id == bindparam("id"))
            .where(process_executions.c.token == bindparam("was_token"))
            .where(among(process_executions.c.state, LIVE_ATTEMPTS)),
            _others(process_executions, ATTEMPT_IDENTITY),
        )

        self.active = text(
            select(func.count(), func.min(runs.c.id)).where(
                runs.c.workflow == bindparam("workflow"),
                among(runs.c.state, ACTIVE_RUNS),
                # Runs of a backfill skip no others: those wait for the ones that have begun, and go before the rest.
                not_(among(runs.c.triggered_by, [Trigger.BACKFILL])),
            )
        )
        self.run_number = text(select(runs.c.number).where(runs.c.id == bindparam("id")))
        self.last_position = text(
            select(
                select(func.max(run_history.c.position)).where(run_history.c.position.is_not(None)).scalar_subquery(),
                # The highest position that was deleted.
                select(func.max(deleted_changes.c.last)).scalar_subquery(),
            )
        )
        self.last_number = text(
            select(
                func.max(runs.c.number),
                # The highest number of a deleted run.
                select(run_numbers.c.last).where(run_numbers.c.workflow == bindparam("workflow")).scalar_subquery(),
            ).where(runs.c.workflow == bindparam("workflow"))
        )
