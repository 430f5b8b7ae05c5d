"""Dead letters: reads them, and closes each once. A run's transition writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from toband.domain.identity import Visible
from toband.domain.run_model import DeadLetter, DeadLetterState, Run, run_name
from toband.ports import DeadLetterClosedError, RunGoneError
from toband.store.sql.keyset_paging import newest
from toband.store.sql.open_database import OpenDatabase, reading, writing
from toband.store.sql.row_codec import LETTER_COLUMNS, letter_from
from toband.store.sql.tables import dead_letters as table
from toband.store.sql.tables import runs
from toband.store.sql.visible_rows import is_visible
from toband.store.sql.writer import WriteSession

_LETTER = select(table).where(table.c.id == bindparam("letter_id"))
_CLOSE = update(table).where(table.c.id == bindparam("letter_id"), table.c.state == DeadLetterState.OPEN)


class SqlDeadLetters(OpenDatabase):
    """`toband.ports.DeadLetterStore`."""

    @reading
    def list_dead_letters(
        self,
        connection: Connection,
        *,
        workflow: str = "",
        states: Sequence[DeadLetterState] = (),
        before: str = "",
        limit: int = 100,
        visible: Visible = None,
    ) -> Sequence[DeadLetter]:
        condition = None if visible is None else is_visible(connection, table.c.workflow, visible)
        return [_letter(row) for row in newest(connection, table, workflow, states, before, limit, condition=condition)]

    @reading
    def get_dead_letter(self, connection: Connection, letter_id: str) -> DeadLetter | None:
        return _find(connection, letter_id)

    @writing
    def discard_dead_letter(
        self, session: WriteSession, letter_id: str, *, at: datetime, by: str
    ) -> tuple[DeadLetter, bool] | None:
        closed = _close(session, letter_id, DeadLetterState.DISCARDED, at, by)
        letter = _find(session.connection, letter_id)
        if closed:
            session.audit()
        return None if letter is None else (letter, closed)


def _run_name(connection: Connection, letter: DeadLetter) -> str:
    """The name of the run that it was requeued as; empty if there is none, or it was deleted."""
    query = select(runs.c.workflow, runs.c.number).where(runs.c.id == letter.requeued_as)
    found = connection.execute(query).first()
    return run_name(*found) if found is not None else ""


def requeue(session: WriteSession, letter_id: str, run: Run, by: str) -> None:
    """Closes the letter in the transaction that creates its run. Raises DeadLetterClosedError, RunGoneError."""
    if _close(session, letter_id, DeadLetterState.REQUEUED, run.created_at, by, run.id):
        return
    letter = _find(session.connection, letter_id)
    if letter is None:
        # It was deleted with its run.
        raise RunGoneError(run.retry_of)
    raise DeadLetterClosedError(letter, _run_name(session.connection, letter))


def _find(connection: Connection, letter_id: str) -> DeadLetter | None:
    row = connection.execute(_LETTER, {"letter_id": letter_id}).first()
    return None if row is None else _letter(row)


def _close(
    session: WriteSession,
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
