"""DEFINITION_CHANGED events and audit records for changes of definitions, stored in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import uuid_utils

from toban.definition import DEFINITION_CHANGED
from toban.limits import MAX_TITLE_CHARS
from toband.domain.definition_diff import definition_diff
from toband.domain.emitted_events import Cause, Emitted, EventSource
from toband.store.rows import event_rows
from toband.store.rows.event_deduplication import append_events
from toband.store.sql.statements import Statements
from toband.store.sql.writer import WriteSession


class Action(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    ENABLED = "enabled"
    DISABLED = "disabled"


class DefinitionChanges:
    """Collects the changes of one operation; `store` writes their events if a workflow listens to them.

    Create it before the first change, because it reads the listeners then: the first workflow that listens gets no
    event about itself.
    """

    def __init__(self, sql: Statements, session: WriteSession, at: datetime, cause: Cause | None = None) -> None:
        """`cause` is the step that makes the change, if a step does."""
        self._sql = sql
        self._session = session
        self._at = at
        self._cause = cause
        ((listener,),) = session.fetch(sql.first_listener, {"type": DEFINITION_CHANGED})
        self._listened = listener is not None
        self._events: list[event_rows.NewEvent] = []

    def add(self, action: Action, stored: Mapping[str, Any], *, old: str = "", new: str = "") -> None:
        """`stored` are the columns of the definition as they are now; of a deleted one, as they were.

        `old` and `new` are the texts before and after the change; empty if it has none.
        """
        if self._session.audits:
            self._session.audit(_described(action, stored, old, new), stored["name"])
        if not self._listened:
            return
        event = Emitted(
            id=str(uuid_utils.uuid7()),
            type=DEFINITION_CHANGED,
            payload={
                "entity": stored["kind"].value,
                "action": action.value,
                "data": {
                    "name": stored["name"],
                    "title": stored["title"][:MAX_TITLE_CHARS],
                    "version": stored["version"],
                    "owner": stored["owner"],
                },
            },
            at=self._at,
            source=EventSource.DAEMON,
        )
        if self._cause is not None:
            event = replace(
                event,
                source_run=self._cause.run_id,
                source_step=self._cause.step,
                depth=self._cause.depth + 1,
            )
        self._events.append(event_rows.encode(event))

    def store(self) -> None:
        if self._events:
            append_events(self._sql, self._session, self._events)


def _described(action: Action, stored: Mapping[str, Any], old: str, new: str) -> str:
    summary = f"{action.value} {stored['kind'].value} {stored['name']}, version {stored['version']}"
    difference = definition_diff(old, new)
    return f"{summary}\n{difference}" if difference else summary
