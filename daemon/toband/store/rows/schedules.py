"""Schedules: those of definitions, and those that are bound to a subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
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
    type_coerce,
    update,
)

from toban.definition.timing.cron import REBOOT
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.identity import Visible
from toband.domain.schedule_model import ScheduleEntry
from toband.ports import Request, RequestReusedError, WorkflowText
from toband.store.rows.idempotent_calls import recall, recall_change, remember
from toband.store.sql.columns import from_json, to_json
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.schedule_tables import fires
from toband.store.sql.schedule_tables import schedules as table
from toband.store.sql.visible_rows import only_visible
from toband.store.sql.writer import WriteSession

FORGET_AT_ONCE = 1_000
"""Schedules removed in one transaction; the limit keeps other writers from waiting long."""

# Not cancelled, and due again.
_ACTIVE = and_(table.c.cancelled_at.is_(None), or_(table.c.next_due.is_not(None), table.c.at_start))
# Exactly as the partial indexes spell them, or SQLite does not use these.
_BOUND = table.c.subject != literal_column("''")
_STARTING = text("schedules.at_start")
# The rule is text in the database: it need not be decoded for this.
_WITH_CALENDAR = type_coerce(table.c.spec, Text).like('%"business_day":%')

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
            # The age of a late one counts from when it fired, not from when it was due.
            not_(exists().where(fires.c.schedule_id == table.c.id, _SINCE)),
        ),
    ),
)
_FIND_OVER = select(table.c.id).where(_OVER).limit(FORGET_AT_ONCE)
_FORGET = delete(table).where(table.c.id.in_(bindparam("of_ids", expanding=True)))

# Fields that a schedule in words leaves open.
_MEANT = ("cron", "every", "at", "business_day")


class SqlSchedules(OpenDatabase):
    """`toband.ports.ScheduleStore`."""

    @reading
    def earliest_alarm(self, connection: Connection, *, after: datetime | None = None) -> datetime | None:
        query = _EARLIEST if after is None else _EARLIEST.where(table.c.alarm > after)
        return connection.execute(query).scalar()

    @reading
    def due_schedules(
        self,
        connection: Connection,
        now: datetime,
        *,
        since: datetime | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 200,
    ) -> Sequence[ScheduleEntry]:
        query = _DUE
        if since is not None:
            query = query.where(table.c.alarm >= since)
        if after is not None:
            alarm, schedule_id = after
            behind = or_(table.c.alarm > alarm, table.c.id > schedule_id)
            query = query.where(table.c.alarm >= alarm, behind)
        return _entries(connection, query, now=now, at_most=limit)

    @reading
    def decided_ahead(self, connection: Connection, now: datetime) -> tuple[int, datetime | None]:
        number, until = connection.execute(_AHEAD, {"now": now}).one()
        return int(number), until

    @reading
    def start_schedules(self, connection: Connection, *, after: str = "", limit: int = 200) -> Sequence[ScheduleEntry]:
        return _entries(connection, _AT_START, after=after, at_most=limit)

    @reading
    def list_schedules(
        self,
        connection: Connection,
        *,
        workflow: str = "",
        subject: str = "",
        after: str = "",
        limit: int = 100,
        active_only: bool = True,
        of_subjects: bool = False,
        with_calendar: bool = False,
        visible: Visible = None,
    ) -> Sequence[ScheduleEntry]:
        query = select(table).where(table.c.id > after).order_by(table.c.id).limit(limit)
        if of_subjects:
            query = query.where(_BOUND)
        if with_calendar:
            query = query.where(_WITH_CALENDAR)
        if subject:
            query = query.where(_BOUND, table.c.subject == subject)
        if workflow:
            query = query.where(table.c.workflow == workflow)
        if active_only:
            query = query.where(_ACTIVE)
        return _entries(connection, only_visible(query, connection, table.c.workflow, visible))

    @reading
    def get_schedule(self, connection: Connection, schedule_id: str) -> ScheduleEntry | None:
        return _find(connection, schedule_id)

    async def create_schedule(
        self, entry: ScheduleEntry, *, request: Request | None = None
    ) -> tuple[ScheduleEntry, bool]:
        if not entry.subject:
            raise ValueError(f"cannot store schedule {entry.id}: it has no subject")
        row = _row(entry)

        def operation(session: WriteSession) -> tuple[ScheduleEntry, bool]:
            session.lock_creation()
            if request is not None and (made := recall_change(session, request)) is not None:
                answered = _answered(session.connection, made)
                if answered is None:
                    raise RequestReusedError(request.id)  # the clock was set back by months
                return answered
            same = _same(session.connection, entry) if entry.dedupe_key else None
            if same is None:
                session.connection.execute(insert(table), row)
            stored, is_new = (entry, True) if same is None else (same, False)
            remember(session, request, {"schedule": stored.id, "created": is_new}, entry.stored_at)
            session.audit(f"schedule {stored.id} of {stored.workflow}")
            return stored, is_new

        return await self._write.do(operation)

    async def renew_schedule(self, before: ScheduleEntry, after: ScheduleEntry) -> bool:
        renewal = update(table).where(table.c.id == before.id, table.c.spec == bindparam("was_spec"), *_as_of(before))
        changed = {name: value for name, value in _row(after).items() if name in ("spec", "next_due", "alarm")}

        def operation(session: WriteSession) -> bool:
            found = session.connection.execute(renewal.values(changed), {"was_spec": before.spec.to_dict()})
            return found.rowcount == 1

        return await self._write.do(operation)

    @reading
    def schedule_of_request(self, connection: Connection, request: Request) -> tuple[ScheduleEntry, bool] | None:
        made = recall(connection, request)
        return None if made is None else _answered(connection, made)

    @writing
    def cancel_schedule(self, session: WriteSession, schedule_id: str, *, at: datetime) -> ScheduleEntry | None:
        session.lock_creation()
        session.connection.execute(_CANCEL, {"of_id": schedule_id, "cancelled_at": at, "alarm": None})
        found = _find(session.connection, schedule_id)
        if found is None or not found.subject:
            return None
        session.audit(f"subject {found.subject}")
        return found

    @writing
    def cancel_by_subject(self, session: WriteSession, subject: str, *, at: datetime) -> int:
        session.lock_creation()
        values = {"of_subject": subject, "cancelled_at": at, "alarm": None}
        count = session.connection.execute(_CANCEL_SUBJECT, values).rowcount
        session.audit(f"{count} cancelled")
        return count

    async def forget_schedules(self, before: datetime) -> int:
        gone = 0
        while await self._read(_read_over, before):
            gone += await self._write.do(lambda session: _forget_over(session, before))
        return gone


# ------------------------------------------------------------------------------------------------ of definitions


def replace_all(session: WriteSession, definition: WorkflowText) -> None:
    """Stores the schedules of a definition, in its transaction, and removes those it no longer has.

    A schedule that equals a stored one continues from that one's state. Raises ValueError for an entry of another
    workflow or of a subject.
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


def remove_all(session: WriteSession, workflow: str) -> None:
    """Removes the schedules of its definition; those of subjects stay."""
    session.connection.execute(_REMOVE_ALL, {"of_workflow": workflow})


def _going_on(new: Sequence[ScheduleEntry], stored: Sequence[ScheduleEntry]) -> list[ScheduleEntry]:
    """The new schedules, each with the state of an equal stored one: of the same id if possible, else of any."""
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
    """The schedule as written. The meaning of words depends on when they are read, so the words themselves count."""
    # Through JSON, because the stored one came from there: it has lists for tuples.
    spec = from_json(to_json(entry.spec.to_dict()))
    if entry.spec.words:
        for name in _MEANT:
            spec.pop(name, None)
    # The data of its calendar follow the calendar: see `renew_schedule`.
    calendar = spec.get("calendar", {})
    for name in ("content", "data"):
        calendar.pop(name, None)
    return entry.zone, spec


# ------------------------------------------------------------------------------------------------ of subjects


def _same(connection: Connection, entry: ScheduleEntry) -> ScheduleEntry | None:
    found = _entries(connection, _SAME, of_subject=entry.subject, of_key=entry.dedupe_key)
    return found[0] if found else None


def _answered(connection: Connection, answer: Any) -> tuple[ScheduleEntry, bool] | None:
    """The schedule in the remembered answer, and whether that call created it. Older releases stored the id alone."""
    if isinstance(answer, str):
        answer = {"schedule": answer, "created": True}
    known = _find(connection, answer["schedule"])
    return None if known is None else (known, answer["created"])


def _read_over(connection: Connection, before: datetime) -> Sequence[str]:
    """Ids of schedules of subjects that were over before then; one batch."""
    return connection.execute(_FIND_OVER, {"before": before}).scalars().all()


def _forget_over(session: WriteSession, before: datetime) -> int:
    """Removes one batch and returns its size. Their ledger lines stay."""
    session.lock_creation()
    ids = _read_over(session.connection, before)
    if ids:
        session.connection.execute(_FORGET, {"of_ids": ids})
    return len(ids)


# ------------------------------------------------------------------------------------------------ rows


def count(connection: Connection) -> int:
    """Schedules that have an alarm."""
    return int(connection.execute(_COUNT).scalar_one())


def _find(connection: Connection, schedule_id: str) -> ScheduleEntry | None:
    found = _entries(connection, _SCHEDULE, of_id=schedule_id)
    return found[0] if found else None


def _as_of(entry: ScheduleEntry) -> Sequence[ColumnElement[bool]]:
    """Nothing about its due times was decided since."""
    return (
        table.c.next_due.is_not_distinct_from(entry.next_due),
        table.c.occurrences == entry.occurrences,
        table.c.stored_at == entry.stored_at,
        table.c.cancelled_at.is_(None),
    )


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
