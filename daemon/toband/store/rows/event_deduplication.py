"""Appends events to the sequence. One with the type and dedupe key of a stored event is that event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toband.domain.emitted_events import Emitted
from toband.store.rows.event_rows import NewEvent, first_event
from toband.store.sql.columns import Raw
from toband.store.sql.statements import Statements
from toband.store.sql.writer import WriteSession


def append_events(sql: Statements, session: WriteSession, new: Sequence[NewEvent]) -> list[tuple[Emitted, bool]]:
    """Each event with its sequence, and whether it is new; if not, the stored event with its dedupe key.

    Call it last in a transaction: until that ends, no other transaction can append.
    """
    session.lock_creation()
    last: int = session.fetch(sql.last_event, {})[0][0] or 0
    answers: list[tuple[Emitted, bool]] = []
    rows: list[Raw] = []
    keys: dict[tuple[str, str], Emitted] = {}
    for event, row in new:
        key = event.type, event.dedupe_key
        if event.dedupe_key:
            known = keys.get(key) or first_event(sql, session, session.fetch(sql.event_of_key, row))
            if known is not None:
                answers.append((known, False))
                continue
        last += 1
        rows.append(row | {"sequence": last})
        stored = keys[key] = replace(event, sequence=last)
        answers.append((stored, True))
    if rows:
        session.run_many(sql.insert_event, rows)
    return answers
