"""The tables of schedules, and of the ledger of their due times."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    Table,
    Text,
    text,
)

from toband.domain.not_started import NotStartedReason
from toband.domain.schedule_model import FireOutcome
from toband.store.sql.columns import JsonText, Key, Micros, Name, Prose
from toband.store.sql.tables import known_states, linked, metadata

# Schedules of definitions, `<workflow>/<position>`, are removed with them; those of subjects stay.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Key, primary_key=True),
    Column("workflow", Key, nullable=False),
    Column("position", Integer, nullable=False),
    Column("spec", JsonText, nullable=False),
    Column("zone", Text, nullable=False),
    # Due at every start of the daemon.
    Column("at_start", Boolean, nullable=False),
    Column("subject", Key, nullable=False),
    Column("action", Key, nullable=False),
    Column("dedupe_key", Key, nullable=False),
    Column("caller", Prose, nullable=False),
    Column("stored_at", Micros, nullable=False),
    # Firing and cancelling change the columns below.
    Column("next_due", Micros),
    # The due time with jitter; NULL if cancelled.
    Column("alarm", Micros),
    Column("occurrences", BigInteger, nullable=False),
    Column("cancelled_at", Micros),
    Index(None, "workflow", "id"),
    linked("alarm", "id"),
    linked("subject", "id", condition="subject <> ''"),
    linked("id", condition="at_start"),
)


# The fire ledger: one line per due time, never changed. Lines stay when the schedule is removed.
fires = Table(
    "fires",
    metadata,
    Column("schedule_id", Key, primary_key=True),
    Column("due_at", Micros, primary_key=True, autoincrement=False),
    Column("workflow", Key, nullable=False),
    Column("outcome", Name(FireOutcome), nullable=False),
    Column("at", Micros, nullable=False),
    Column("reason", Name(NotStartedReason)),
    # For people, about the reason.
    Column("detail", Prose, nullable=False),
    Column("run_id", Key, nullable=False),
    Column("event_id", Key, nullable=False, server_default=text("''")),
    Column("more", BigInteger, nullable=False),
    known_states(FireOutcome, "outcome"),
    Index(None, "workflow", "due_at", "schedule_id"),
    Index(None, "due_at", "schedule_id"),
    sqlite_with_rowid=False,
)
