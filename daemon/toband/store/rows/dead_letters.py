"""Dead letters: read, and closed once. They are written with the transitions that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from toband.domain.run_model import DeadLetter, DeadLetterState, Run
from toband.ports import DeadLetterClosedError, RunGoneError
from toband.store.sql.keyset_paging import newest
from toband.store.sql.row_codec import LETTER_COLUMNS, letter_from
from toband.store.sql.tables import dead_letters as table
from toband.store.sql.writer import Session

_LETTER = select(table).where(table.c.id == bindparam("letter_id"))
_CLOSE = update(table).where(table.c.id == bindparam("letter_id"), table.c.state == DeadLetterState.OPEN)


def read(connection: Connection, letter_id: str) -> DeadLetter | None:
    row = connection.execute(_LETTER, {"letter_id": letter_id}).first()
    return None if row is None else _letter(row)


def read_all(
    connection: Connection,
    workflow: str,
    states: Sequence[DeadLetterState],
    before: str,
    limit: int,
) -> Sequence[DeadLetter]:
    return [_letter(row) for row in newest(connection, table, workflow, states, before, limit)]


def discard(letter_id: str, at: datetime, by: str) -> Callable[[Session], tuple[DeadLetter, bool] | None]:
    def operation(session: Session) -> tuple[DeadLetter, bool] | None:
        closed = _close(session, letter_id, DeadLetterState.DISCARDED, at, by)
        letter = read(session.connection, letter_id)
        return None if letter is None else (letter, closed)

    return operation


def requeue(session: Session, letter_id: str, run: Run, by: str) -> None:
    """In the transaction that creates the run. Raises DeadLetterClosedError, RunGoneError."""
    if _close(session, letter_id, DeadLetterState.REQUEUED, run.created_at, by, run.id):
        return
    letter = read(session.connection, letter_id)
    if letter is None:
        # It went with the run that it was of.
        raise RunGoneError(run.retry_of)
    raise DeadLetterClosedError(letter)


def _close(
    session: Session,
    letter_id: str,
    state: DeadLetterState,
    at: datetime,
    by: str,
    requeued_as: str = "",
) -> bool:
    """False if it is not open."""
    values = {
        "letter_id": letter_id,
        "state": state,
        "resolved_at": at,
        "resolved_by": by,
        "requeued_as": requeued_as,
    }
    return session.connection.execute(_CLOSE, values).rowcount == 1


def _letter(row: Any) -> DeadLetter:
    return letter_from(dict(zip(LETTER_COLUMNS, row, strict=True)))
