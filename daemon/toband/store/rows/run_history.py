"""The history of a run: the rows that each of its transitions wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    DefaultClause,
    Double,
    Integer,
    Table,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from toband.domain.run_model import INSTANCE_BITS, Run
from toband.ports import HistoryEntry, PositionedChange
from toband.store.sql.attempt_codec import attempt_from
from toband.store.sql.columns import JsonText, Micros, Name, Raw, Values, to_json, to_micros
from toband.store.sql.row_codec import RUN_COLUMNS, RUN_IDENTITY, run_from, step_from
from toband.store.sql.tables import deleted_changes, process_executions, run_history, runs, step_runs

_IDENTITY = select(runs).where(runs.c.id == bindparam("run_id"))
_ENTRIES = (
    select(run_history.c.sequence, run_history.c.at, run_history.c.event, run_history.c.change)
    .where(run_history.c.run_id == bindparam("run_id"))
    .where(run_history.c.sequence > bindparam("after"))
    .order_by(run_history.c.sequence)
    .limit(bindparam("at_most"))
)


_CHANGES = (
    select(
        run_history.c.position,
        run_history.c.sequence,
        run_history.c.at,
        run_history.c.event,
        run_history.c.change,
        runs,
    )
    .select_from(run_history.join(runs, runs.c.id == run_history.c.run_id))
    .where(run_history.c.position.is_not(None), run_history.c.position > bindparam("after"))
    .order_by(run_history.c.position)
    .limit(bindparam("at_most"))
)
_BEFORE = (
    select(run_history.c.sequence, run_history.c.change)
    .where(run_history.c.run_id == bindparam("run_id"))
    .where(or_(run_history.c.position.is_(None), run_history.c.position <= bindparam("up_to")))
    .order_by(run_history.c.sequence.desc())
    .limit(1)
)
_ANY = select(run_history.c.sequence).where(run_history.c.run_id == bindparam("run_id")).limit(1)
_LAST = select(func.max(run_history.c.position)).where(run_history.c.position.is_not(None))
_LAST_DELETED = select(func.max(deleted_changes.c.last))


def creation(run: Run, facts: Raw) -> Raw:
    """The entry of a run that is created, complete except for its position."""
    return {
        "run_id": run.id,
        "sequence": 0,
        "at": to_micros(run.created_at),
        "event": "created",
        "change": change_json(facts, []),
    }


def last_position(connection: Connection) -> int:
    """The position of the last change; 0 if there was none."""
    return max(connection.execute(query).scalar() or 0 for query in (_LAST, _LAST_DELETED))


def keep_last_position(connection: Connection) -> None:
    """Call it before runs are deleted: positions of their changes are not used again."""
    last = last_position(connection)
    if not connection.execute(update(deleted_changes).values(last=last)).rowcount:
        connection.execute(insert(deleted_changes).values(id=1, last=last))


def read_changes(connection: Connection, after: int, limit: int) -> Sequence[PositionedChange]:
    found = []
    for position, sequence, at, event, change, *row in connection.execute(_CHANGES, {"after": after, "at_most": limit}):
        # Steps may be many, and a list of runs shows none.
        run = _run(dict(zip(RUN_COLUMNS, row, strict=True)), change | {"steps": []})
        found.append(PositionedChange(position, HistoryEntry(sequence=sequence, at=at, event=event, run=run)))
    return found


def run_at(connection: Connection, position: int, row: tuple[Any, ...]) -> Run | None:
    """The run of a row as the change at that position or the last one before it left it, without steps.

    None if it was created later.
    """
    values = dict(zip(RUN_COLUMNS, row, strict=True))
    entry = connection.execute(_BEFORE, {"run_id": values["id"], "up_to": position}).first()
    if entry is None:
        # Creations before revision 0019 have no entry.
        created_before = connection.execute(_ANY, {"run_id": values["id"]}).first() is None
        return run_from(values, {}) if created_before else None
    if entry.sequence == values["sequence"]:
        return run_from(values, {})
    return _run(values, entry.change | {"steps": []})


def read_history(connection: Connection, run_id: str, after: int, limit: int) -> Sequence[HistoryEntry]:
    row = connection.execute(_IDENTITY, {"run_id": run_id}).first()
    if row is None:
        return []
    identity = dict(zip(RUN_COLUMNS, row, strict=True))
    entries = connection.execute(_ENTRIES, {"run_id": run_id, "after": after, "at_most": limit})
    return [
        HistoryEntry(sequence=sequence, at=at, event=event, run=_run(identity, change))
        for sequence, at, event, change in entries
    ]


def change_json(facts: Raw, steps: Sequence[tuple[Raw, Raw | None]]) -> str:
    """The rows of a transition, each step with its attempt; without empty values and those known from elsewhere."""
    touched = []
    for step, attempt in steps:
        entry = _STEP.slim(step)
        if step["position"]:
            entry["place"] = step["position"]
        if attempt is not None:
            entry["attempt"] = slim = _ATTEMPT.slim(attempt)
            if attempt["step"] != step["step"]:
                slim["step"] = attempt["step"]
        touched.append(entry)
    return to_json({"run": _RUN.slim(facts), "steps": touched})


def _run(identity: Values, change: Mapping[str, Any]) -> Run:
    """`identity` is the run's current row, for the columns that never change."""
    values = _RUN.full(change["run"])
    values |= {name: identity[name] for name in RUN_IDENTITY}
    steps = {}
    for entry in change["steps"]:
        step = _STEP.full(entry) | {"position": _position(entry)}
        attempt = None
        if "attempt" in entry:
            slim = entry["attempt"]
            known = {
                "run_id": identity["id"],
                "workflow": identity["workflow"],
                "step": slim.get("step", step["step"]),
            }
            attempt = attempt_from(_ATTEMPT.full(slim) | known)
        steps[step["step"]] = step_from(step, attempt)
    return run_from(values, steps)


def _position(entry: Mapping[str, Any]) -> int:
    """Entries from before revision 0003 have the step's index, as `position`."""
    place: int = entry.get("place", entry.get("position", 0) << INSTANCE_BITS)
    return place


class _Kept:
    """The columns of a table that the history stores."""

    def __init__(self, table: Table, without: Iterable[str]) -> None:
        columns = [column for column in table.c if column.name not in without]
        self._empty = [(column.name, _empty(column)) for column in columns]
        self._convert = {column.name: _converter(column.type) for column in columns}

    def slim(self, row: Raw) -> Raw:
        """The row without empty values."""
        return {name: value for name, empty in self._empty if (value := row[name]) != empty}

    def full(self, slim: Raw) -> Raw:
        """The values that the table's column types would return."""
        return {name: self._convert[name](slim.get(name, empty)) for name, empty in self._empty}


def _empty(column: Column[Any]) -> Any:
    """The value that is not written; also that of entries which are older than the column."""
    if column.nullable:
        return None
    if isinstance(column.type, JsonText):
        return "{}"
    if isinstance(column.type, Boolean):
        return False
    if not isinstance(column.type, (Double, Integer, Micros)):
        return ""
    default = column.server_default
    return int(str(default.arg)) if isinstance(default, DefaultClause) else 0


def _converter(kind: object) -> Callable[[Any], Any]:
    if isinstance(kind, (Micros, JsonText, Name)):
        return lambda value: kind.process_result_value(value, None)
    return lambda value: value


_RUN = _Kept(runs, RUN_IDENTITY)
_STEP = _Kept(step_runs, ("run_id", "attempt_id", "position"))
_ATTEMPT = _Kept(process_executions, ("run_id", "workflow", "step"))
