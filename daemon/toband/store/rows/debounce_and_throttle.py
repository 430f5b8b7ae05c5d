"""Bursts of events that start one run together, and the starts that count for a throttle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from toband.domain.emitted_events import Burst, EventRunOutcome, PacedStart
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.store.sql.columns import from_micros, to_micros
from toband.store.sql.event_tables import event_bursts, event_runs, event_throttles
from toband.store.sql.writer import WriteSession

FORGET_AT_ONCE = 500
"""Expired rows of throttles that are removed with each start."""

_OF_BURST = and_(
    event_bursts.c.workflow == bindparam("of_workflow"),
    event_bursts.c.position == bindparam("of_position"),
    event_bursts.c.key == bindparam("of_key"),
)
_BURST = select(event_bursts).where(_OF_BURST)
_REMOVE_BURST = delete(event_bursts).where(
    _OF_BURST, event_bursts.c.event_id == bindparam("of_event"), event_bursts.c.count == bindparam("of_count")
)
_DUE = (
    select(event_bursts)
    .where(event_bursts.c.due_at <= bindparam("now"))
    .order_by(event_bursts.c.due_at, event_bursts.c.workflow, event_bursts.c.position, event_bursts.c.key)
    .limit(bindparam("at_most"))
)
_NEXT = select(func.min(event_bursts.c.due_at))
_LINE = and_(event_runs.c.event_id == bindparam("of_event"), event_runs.c.workflow == bindparam("of_workflow"))
_OF_THROTTLE = and_(
    event_throttles.c.workflow == bindparam("of_workflow"),
    event_throttles.c.position == bindparam("of_position"),
    event_throttles.c.key == bindparam("of_key"),
)
_STARTS = select(event_throttles.c.starts).where(_OF_THROTTLE)
_REMOVE_STARTS = delete(event_throttles).where(_OF_THROTTLE)
_EXPIRED = (
    select(event_throttles.c.workflow, event_throttles.c.position, event_throttles.c.key)
    .where(event_throttles.c.until < bindparam("now"))
    .limit(FORGET_AT_ONCE)
)


# ------------------------------------------------------------------------------------------------ bursts


def join_burst(
    session: WriteSession, event_id: str, by: PacedStart, at: datetime, *, priority: int, scope: str
) -> NotStarted:
    """Adds the event to the burst of its trigger and key; returns why it starts no run yet."""
    key = _key(by)
    found = session.connection.execute(_BURST, key).mappings().first()
    first_at, count = at, 1
    last_at = at + timedelta(seconds=by.pace.longest)
    if found is not None:
        count = found["count"] + 1
        # A clock that was set back does not make it wait longer.
        last_at = min(last_at, found["last_at"])
        later = NotStarted(NotStartedReason.DEBOUNCED, f"event {event_id} came later")
        line = {"of_event": found["event_id"], "of_workflow": by.workflow}
        session.connection.execute(update(event_runs).where(_LINE).values(later_event=event_id, **_why(later)), line)
        session.connection.execute(delete(event_bursts).where(_OF_BURST), key)
    due_at = min(first_at + timedelta(seconds=by.pace.quiet), last_at)
    row = {
        "workflow": by.workflow,
        "position": by.position,
        "key": by.key,
        "event_id": event_id,
        "count": count,
        "due_at": due_at,
        "last_at": last_at,
        "priority": priority,
        "scope": scope,
    }
    session.connection.execute(insert(event_bursts), row)
    return NotStarted(NotStartedReason.DEBOUNCED, f"waits for further events until {due_at:%Y-%m-%d %H:%M:%S %Z}")


def due_bursts(connection: Connection, now: datetime, limit: int) -> Sequence[Burst]:
    return [_burst(row) for row in connection.execute(_DUE, {"now": now, "at_most": limit}).mappings()]


def next_burst(connection: Connection) -> datetime | None:
    return connection.execute(_NEXT).scalar()


def end_burst(session: WriteSession, burst: Burst) -> bool:
    """Removes the burst if no further event has come; whether it did."""
    of = {
        "of_workflow": burst.workflow,
        "of_position": burst.position,
        "of_key": burst.key,
        "of_event": burst.event_id,
        "of_count": burst.count,
    }
    return session.connection.execute(_REMOVE_BURST, of).rowcount == 1


def decide_line(session: WriteSession, burst: Burst, run_id: str, reason: NotStarted | None) -> None:
    """Changes the line of the last event: its run was started, or why not."""
    outcome = EventRunOutcome.SKIPPED if reason is not None else EventRunOutcome.STARTED
    values = {"outcome": outcome, "run_id": run_id, **_why(reason)}
    line = {"of_event": burst.event_id, "of_workflow": burst.workflow}
    session.connection.execute(update(event_runs).where(_LINE).values(values), line)


# ------------------------------------------------------------------------------------------------ throttles


def throttled(session: WriteSession, by: PacedStart, at: datetime) -> NotStarted | None:
    """Why the trigger starts no run now; None if it may."""
    starts = _counted(session, by, at)
    if len(starts) < by.pace.limit:
        return None
    again = from_micros(starts[-by.pace.limit]) + timedelta(seconds=by.pace.per)
    return NotStarted(NotStartedReason.THROTTLED, f"no further run before {again:%Y-%m-%d %H:%M:%S %Z}")


def count_start(session: WriteSession, by: PacedStart, at: datetime) -> None:
    """The trigger has started a run."""
    starts = [*_counted(session, by, at), to_micros(at)]
    session.connection.execute(_REMOVE_STARTS, _key(by))
    row = {
        "workflow": by.workflow,
        "position": by.position,
        "key": by.key,
        "starts": starts[-by.pace.limit :],
        "until": at + timedelta(seconds=by.pace.per),
    }
    session.connection.execute(insert(event_throttles), row)
    for workflow, position, key in session.connection.execute(_EXPIRED, {"now": at}).all():
        of = {"of_workflow": workflow, "of_position": position, "of_key": key}
        session.connection.execute(_REMOVE_STARTS, of)


def _counted(session: WriteSession, by: PacedStart, at: datetime) -> list[int]:
    """The starts in the time before `at`, oldest first; those after it are of a clock that was ahead."""
    found = session.connection.execute(_STARTS, _key(by)).scalar() or []
    now = to_micros(at)
    return [start for start in found if now - by.pace.per * 1_000_000 < start <= now]


def _why(reason: NotStarted | None) -> dict[str, Any]:
    return {"reason": None if reason is None else reason.reason, "detail": "" if reason is None else reason.detail}


def _key(by: PacedStart) -> dict[str, Any]:
    return {"of_workflow": by.workflow, "of_position": by.position, "of_key": by.key}


def _burst(row: Any) -> Burst:
    return Burst(
        workflow=row["workflow"],
        position=row["position"],
        key=row["key"],
        event_id=row["event_id"],
        count=row["count"],
        due_at=row["due_at"],
        priority=row["priority"],
        scope=row["scope"],
    )
