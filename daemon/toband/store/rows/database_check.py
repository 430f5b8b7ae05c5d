"""Checks of the database: for damage, and whether it takes writes."""

from __future__ import annotations

from sqlalchemy import Connection, Table, exc, func, select, text

from toban.definition import DefinitionKind
from toband.ports import Inspection
from toband.store.rows import definition_rows
from toband.store.sql import schema_revision
from toband.store.sql.database import Database
from toband.store.sql.errors import reason
from toband.store.sql.event_tables import events
from toband.store.sql.schedule_tables import schedules
from toband.store.sql.tables import dead_letters, runs
from toband.store.sql.writer import WriteSession

_MOST = 20
"""The most problems that are reported."""
_TOUCH = text(f"UPDATE {schema_revision.VERSION_TABLE} SET version_num = version_num")  # noqa: S608 - a constant


def touch(session: WriteSession) -> None:
    """Writes a value that is there already; the commit is like any other."""
    session.connection.execute(_TOUCH)


def inspect(connection: Connection, database: Database) -> Inspection:
    sqlite = database.kind == "sqlite"
    try:
        problems = _sqlite_problems(connection) if sqlite else []
        at = schema_revision.revision(connection) or ""
        facts = [] if problems else [_server(connection, sqlite), *_counts(connection)]
    except exc.DatabaseError as error:
        if isinstance(error, exc.OperationalError):
            raise  # busy or unreachable, which is no damage
        # The damage is so bad that the check itself fails.
        problems, at, facts = [reason(error)], "", []
    return Inspection(
        problems=problems,
        facts=facts,
        schema=at,
        expected_schema=schema_revision.HEAD,
        ahead_bytes=database.ahead_bytes(),
    )


def _sqlite_problems(connection: Connection) -> list[str]:
    checked = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})").scalars()
    found = [str(line) for line in checked if line != "ok"]
    if found:
        return found  # further checks of a damaged file are meaningless
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        found.append(f"row {row} of {table} refers to a row of {parent} that is not there")
        if len(found) == _MOST:
            break
    return found


def _server(connection: Connection, sqlite: bool) -> str:
    if sqlite:
        return f"SQLite {connection.exec_driver_sql('SELECT sqlite_version()').scalar_one()}"
    return f"PostgreSQL {connection.exec_driver_sql('SHOW server_version').scalar_one()}"


def _counts(connection: Connection) -> list[str]:
    by_kind = definition_rows.count(connection)
    numbers = {
        "workflow": by_kind.get(DefinitionKind.WORKFLOW, 0),
        "run": _rows(connection, runs),
        "job": by_kind.get(DefinitionKind.JOB, 0),
        "schedule": _rows(connection, schedules),
        "event": _rows(connection, events),
        "dead letter": _rows(connection, dead_letters),
    }
    return [
        f"{number} {noun if number == 1 else noun + 's'}"
        for noun, number in numbers.items()
        # Most databases lack the others.
        if number or noun in ("workflow", "run")
    ]


def _rows(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()
