"""The tables of events: what listens to them, bursts and throttles, and the runs that each started."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    UniqueConstraint,
    text,
)

from toband.domain.emitted_events import EventRunOutcome, EventSource, EventState
from toband.domain.not_started import NotStartedReason
from toband.store.sql.columns import JsonText, Key, Micros, Name, Prose
from toband.store.sql.tables import known_states, linked, metadata

# The events that the current version of a workflow listens to: one row per entry of `on` and type.
event_triggers = Table(
    "event_triggers",
    metadata,
    Column("workflow", Key, ForeignKey("workflows.name", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("type", Key, primary_key=True),
    Column("condition", Prose, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("scope", Key, nullable=False, server_default=text("''")),
    Column("pace", JsonText, nullable=False, server_default=text("'{}'")),
    Index(None, "type", "workflow", "position"),
)


# Events that start one run together, once no further one comes: by workflow, entry of `on`, and key.
event_bursts = Table(
    "event_bursts",
    metadata,
    Column("workflow", Key, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("key", Key, primary_key=True),
    # The last event, and the number of all.
    Column("event_id", Key, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("due_at", Micros, nullable=False),
    # The run starts then at the latest.
    Column("last_at", Micros, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("scope", Key, nullable=False),
    Index(None, "due_at"),
    Index(None, "event_id"),
)


# When throttled triggers started runs, in microseconds since the epoch; the row means nothing after `until`.
event_throttles = Table(
    "event_throttles",
    metadata,
    Column("workflow", Key, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("key", Key, primary_key=True),
    Column("starts", JsonText, nullable=False),
    Column("until", Micros, nullable=False),
    Index(None, "until"),
)


# Emitted events by `sequence`; PENDING until it is decided which workflows each starts.
events = Table(
    "events",
    metadata,
    Column("id", Key, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("type", Key, nullable=False),
    Column("payload", JsonText, nullable=False),
    Column("emitted_at", Micros, nullable=False),
    Column("source", Name(EventSource), nullable=False),
    Column("caller", Prose, nullable=False),
    Column("source_run", Key, nullable=False),
    Column("source_step", Key, nullable=False),
    Column("depth", Integer, nullable=False),
    # NULL: none.
    Column("dedupe_key", Key),
    Column("workflow", Key, nullable=False),
    Column("params", JsonText, nullable=False),
    Column("schedule", Key, nullable=False),
    Column("scheduled_at", Micros),
    # When a request was last answered with it: it is kept while the request is remembered.
    Column("requested_at", Micros),
    # Resolving it changes the columns below.
    Column("state", Name(EventState), nullable=False),
    Column("reason", Prose, nullable=False),
    Column("resolved_at", Micros),
    known_states(EventState),
    UniqueConstraint("sequence"),
    linked("sequence", condition="state = 'PENDING'"),
    Index(None, "type", "sequence"),
    Index(None, "emitted_at"),
    linked("dedupe_key", "type", unique=True),
    linked("source_run", "sequence", condition="source_run <> ''"),
)


# The workflows that an event matched, each with its run or the reason why there is none.
event_runs = Table(
    "event_runs",
    metadata,
    Column("event_id", Key, ForeignKey("events.id", ondelete="CASCADE"), primary_key=True),
    Column("workflow", Key, primary_key=True),
    Column("priority", Integer, nullable=False),
    Column("outcome", Name(EventRunOutcome), nullable=False),
    Column("reason", Name(NotStartedReason)),
    Column("detail", Prose, nullable=False),
    # It may have been deleted.
    Column("run_id", Key, nullable=False),
    # The next event of the same burst.
    Column("later_event", Key),
    known_states(EventRunOutcome, "outcome"),
    sqlite_with_rowid=False,
)
