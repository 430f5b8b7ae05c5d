"""Schedules: those that come with a definition, and those that are bound to a subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    not_,
    or_,
    select,
    text,
    update,
)

from toban.definition.timing.cron import REBOOT
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.schedule_model import ScheduleEntry
from toband.ports import Request, RequestReusedError, WorkflowText
from toband.store.rows.idempotent_calls import recall, remember
from toband.store.sql.columns import from_json, to_json
from toband.store.sql.tables import fires
from toband.store.sql.tables import schedules as table
from toband.store.sql.writer import Session

FORGET_AT_ONCE = 1_000
"""Schedules that are removed in one transaction: others want to write too."""

# Not cancelled, and still to come.
_ACTIVE = and_(table.c.cancelled_at.is_(None), or_(table.c.next_due.is_not(None), table.c.at_start))
# As the indexes have them, word for word: without them SQLite does not take them.
_BOUND = table.c.subject != literal_column("''")
_STARTING = text("schedules.at_start")

_SCHEDULE = select(table).where(table.c.id == bindparam("of_id"))
_OF_WORKFLOW = and_(table.c.workflow == bindparam("of_workflow"), table.c.subject == "")
_FIND_ALL = select(table).where(_OF_WORKFLOW).order_by(table.c.id)
_REMOVE_ALL = delete(table).where(_OF_WORKFLOW)
_EARLIEST = select(func.min(table.c.alarm)).where(table.c.alarm.is_not(None))
_COUNT = select(func.count()).where(table.c.alarm.is_not(None))
_DUE = (
    select(table)
    .where(table.c.alarm.is_not(None), table.c.alarm <= bindparam("now"))
    .order_by(table.c.alarm, table.c.id)
    .limit(bindparam("at_most"))
)
_AHEAD = (
    select(func.count(fires.c.schedule_id.distinct()), func.max(fires.c.due_at))
    .select_from(fires.join(table, table.c.id == fires.c.schedule_id))
    .where(fires.c.due_at > bindparam("now"), table.c.next_due > fires.c.due_at)
)
_AT_START = (
    select(table)
    .where(_STARTING, table.c.cancelled_at.is_(None), table.c.id > bindparam("after"))
    .order_by(table.c.id)
    .limit(bindparam("at_most"))
)
_OF_SUBJECT = and_(_BOUND, table.c.subject == bindparam("of_subject"))
_SAME = (
    select(table).where(_OF_SUBJECT, table.c.dedupe_key == bindparam("of_key"), _ACTIVE).order_by(table.c.id).limit(1)
)
_CANCEL = update(table).where(table.c.id == bindparam("of_id"), _BOUND, _ACTIVE)
_CANCEL_SUBJECT = update(table).where(_OF_SUBJECT, _ACTIVE)
_SINCE = or_(fires.c.due_at >= bindparam("before"), fires.c.at >= bindparam("before"))
_OVER = and_(
    _BOUND,
    or_(
        table.c.cancelled_at < bindparam("before"),
        and_(
            table.c.cancelled_at.is_(None),
            table.c.next_due.is_(None),
            not_(table.c.at_start),
            table.c.stored_at < bindparam("before"),
            # One that was late is kept from when it fired, not from when it should have.
            not_(exists().where(fires.c.schedule_id == table.c.id, _SINCE)),
        ),
    ),
)
_FIND_OVER = select(table.c.id).where(_OVER).limit(FORGET_AT_ONCE)
_FORGET = delete(table).where(table.c.id.in_(bindparam("of_ids", expanding=True)))

# What a definition that says its time in words leaves open.
_MEANT = ("cron", "every", "at")


# ------------------------------------------------------------------------------------------------ of definitions


def replace_all(session: Session, definition: WorkflowText) -> None:
    """In the transaction that stores the definition: its schedules are its own from here on.

    One that says what a stored one says goes on where that one is. Raises ValueError for an entry that is not of the
    workflow.
    """
    name = definition.name
    for entry in definition.schedules:
        if entry.workflow != name or entry.subject:
            raise ValueError(f"cannot store schedule {entry.id} with the workflow {name}")
    stored = _entries(session.connection, _FIND_ALL, of_workflow=name)
    wanted = sorted(_going_on(definition.schedules, stored), key=lambda entry: entry.id)
    if wanted == stored:
        return
    remove_all(session, name)
    if wanted:
        session.connection.execute(insert(table), [_row(entry) for entry in wanted])


def remove_all(session: Session, workflow: str) -> None:
    """Those that came with its definition."""
    session.connection.execute(_REMOVE_ALL, {"of_workflow": workflow})


def _going_on(new: Sequence[ScheduleEntry], stored: Sequence[ScheduleEntry]) -> list[ScheduleEntry]:
    """The new ones, each as far as the stored one that says the same: first the one in its place, then any other."""
    left = {entry.id: entry for entry in stored}
    found: dict[str, ScheduleEntry] = {}
    for entry in new:
        same = left.get(entry.id)
        if same is not None and _says(same) == _says(entry):
            found[entry.id] = left.pop(same.id)
    for entry in new:
        if entry.id not in found:
            same = next((each for each in left.values() if _says(each) == _says(entry)), None)
            if same is not None:
                found[entry.id] = left.pop(same.id)
    return [replace(found[entry.id], id=entry.id, index=entry.index) if entry.id in found else entry for entry in new]


def _says(entry: ScheduleEntry) -> tuple[str, Any]:
    """What a person wrote. What words mean differs each time that they are read: the words themselves count."""
    # As it would come back: JSON knows no tuples.
    spec = from_json(to_json(entry.spec.to_dict()))
    if entry.spec.words:
        for name in _MEANT:
            spec.pop(name, None)
    return entry.zone, spec


# ------------------------------------------------------------------------------------------------ of subjects


def create(entry: ScheduleEntry, request: Request | None) -> Callable[[Session], tuple[ScheduleEntry, bool]]:
    """Raises ValueError for an entry without a subject."""
    if not entry.subject:
        raise ValueError(f"cannot store schedule {entry.id}: it has no subject")
    row = _row(entry)

    def operation(session: Session) -> tuple[ScheduleEntry, bool]:
        session.lock_creation()
        if request is not None and (made := recall(session.connection, request)) is not None:
            answered = _answered(session.connection, made)
            if answered is None:
                raise RequestReusedError(request.id)  # the clock was set back by months
            return answered
        same = _same(session.connection, entry) if entry.dedupe_key else None
        if same is None:
            session.connection.execute(insert(table), row)
        stored, is_new = (entry, True) if same is None else (same, False)
        answer = {"schedule": stored.id, "created": is_new}
        remember(session, request, answer, entry.stored_at)
        return stored, is_new

    return operation


def cancel(schedule_id: str, at: datetime) -> Callable[[Session], ScheduleEntry | None]:
    def operation(session: Session) -> ScheduleEntry | None:
        session.lock_creation()
        values = {"of_id": schedule_id, "cancelled_at": at, "alarm": None}
        session.connection.execute(_CANCEL, values)
        found = read(session.connection, schedule_id)
        return found if found is not None and found.subject else None

    return operation


def cancel_subject(subject: str, at: datetime) -> Callable[[Session], int]:
    def operation(session: Session) -> int:
        session.lock_creation()
        values = {"of_subject": subject, "cancelled_at": at, "alarm": None}
        return session.connection.execute(_CANCEL_SUBJECT, values).rowcount

    return operation


def forget(before: datetime) -> Callable[[Session], int]:
    """Some of those that were over before then; how many. Lines of the ledger stay."""

    def operation(session: Session) -> int:
        session.lock_creation()
        ids = read_over(session.connection, before)
        if ids:
            session.connection.execute(_FORGET, {"of_ids": ids})
        return len(ids)

    return operation


def _same(connection: Connection, entry: ScheduleEntry) -> ScheduleEntry | None:
    found = _entries(connection, _SAME, of_subject=entry.subject, of_key=entry.dedupe_key)
    return found[0] if found else None


# ------------------------------------------------------------------------------------------------ reading


def read(connection: Connection, schedule_id: str) -> ScheduleEntry | None:
    found = _entries(connection, _SCHEDULE, of_id=schedule_id)
    return found[0] if found else None


def read_made(connection: Connection, request: Request) -> tuple[ScheduleEntry, bool] | None:
    made = recall(connection, request)
    return None if made is None else _answered(connection, made)


def _answered(connection: Connection, answer: Any) -> tuple[ScheduleEntry, bool] | None:
    """The schedule that a request was answered with, and whether it made it. Once only the id was remembered."""
    if isinstance(answer, str):
        answer = {"schedule": answer, "created": True}
    known = read(connection, answer["schedule"])
    return None if known is None else (known, answer["created"])


def read_over(connection: Connection, before: datetime) -> Sequence[str]:
    """Some of those of subjects that were over before then."""
    return connection.execute(_FIND_OVER, {"before": before}).scalars().all()


def read_all(
    connection: Connection,
    workflow: str,
    subject: str,
    after: str,
    limit: int,
    active_only: bool,
    of_subjects: bool,
) -> Sequence[ScheduleEntry]:
    query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
    if of_subjects:
        query = query.where(_BOUND)
    if subject:
        query = query.where(_BOUND, table.c.subject == subject)
    if workflow:
        query = query.where(table.c.workflow == workflow)
    if active_only:
        query = query.where(_ACTIVE)
    return _entries(connection, query)


def read_earliest(connection: Connection, after: datetime | None) -> datetime | None:
    query = _EARLIEST if after is None else _EARLIEST.where(table.c.alarm > after)
    return connection.execute(query).scalar()


def count(connection: Connection) -> int:
    """Those that somebody has to look at some time."""
    return int(connection.execute(_COUNT).scalar_one())


def read_due(
    connection: Connection,
    now: datetime,
    since: datetime | None,
    after: tuple[datetime, str] | None,
    limit: int,
) -> Sequence[ScheduleEntry]:
    query = _DUE
    if since is not None:
        query = query.where(table.c.alarm >= since)
    if after is not None:
        alarm, schedule_id = after
        behind = or_(table.c.alarm > alarm, table.c.id > schedule_id)
        query = query.where(table.c.alarm >= alarm, behind)
    return _entries(connection, query, now=now, at_most=limit)


def read_decided_ahead(connection: Connection, now: datetime) -> tuple[int, datetime | None]:
    count, until = connection.execute(_AHEAD, {"now": now}).one()
    return int(count), until


def read_at_start(connection: Connection, after: str, limit: int) -> Sequence[ScheduleEntry]:
    return _entries(connection, _AT_START, after=after, at_most=limit)


# ------------------------------------------------------------------------------------------------ rows


def _row(entry: ScheduleEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "workflow": entry.workflow,
        "position": entry.index,
        "spec": entry.spec.to_dict(),
        "zone": entry.zone,
        "at_start": entry.spec.cron == REBOOT,
        "subject": entry.subject,
        "action": entry.action,
        "dedupe_key": entry.dedupe_key,
        "caller": entry.caller,
        "stored_at": entry.stored_at,
        "next_due": entry.next_due,
        "alarm": entry.alarm if entry.cancelled_at is None else None,
        "occurrences": entry.occurrences,
        "cancelled_at": entry.cancelled_at,
    }


def _entries(connection: Connection, query: Any, **of: object) -> list[ScheduleEntry]:
    return [_entry(row) for row in connection.execute(query, of).mappings()]


def _entry(row: Any) -> ScheduleEntry:
    return ScheduleEntry(
        id=row["id"],
        workflow=row["workflow"],
        index=row["position"],
        spec=Schedule.from_dict(row["spec"]),
        zone=row["zone"],
        stored_at=row["stored_at"],
        next_due=row["next_due"],
        occurrences=row["occurrences"],
        subject=row["subject"],
        action=row["action"],
        dedupe_key=row["dedupe_key"],
        caller=row["caller"],
        cancelled_at=row["cancelled_at"],
    )
