"""The tables of definitions, runs, ownership and requests. A test compares all tables with those of the migrations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
    text,
)

from toban.definition import DefinitionKind, ErrorClass
from toband.domain.attempt_model import AttemptState
from toband.domain.run_model import DeadLetterState, EndingCause, RunState, SkipReason, StepState, Trigger
from toband.store.sql.columns import JsonText, Key, Micros, Name, Prose
from toband.store.sql.partial_indexes import partial_index, set_conditions

ACTIVE_RUNS = [state for state in RunState if not state.terminal]
FAILED_RUNS = [RunState.FAILED, RunState.TIMED_OUT]
HAS_FAILED = "state IN ('{}')".format("', '".join(FAILED_RUNS))
OPEN_STEPS = [state for state in StepState if not state.terminal]
BAD_ATTEMPTS = [AttemptState.FAILED, AttemptState.TIMED_OUT, AttemptState.CANCELLED, AttemptState.LOST]
"""States of ended attempts that did not succeed."""
NOT_WELL = "state IN ('{}')".format("', '".join(BAD_ATTEMPTS))
LIVE_ATTEMPTS = [state for state in AttemptState if not state.terminal]

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)
set_conditions(metadata)


def among(column: Column[Any], states: Iterable[StrEnum]) -> ColumnElement[bool]:
    """`column IN (…)` with literal states, for statements that are compiled once."""
    return column.in_([literal_column(f"'{state.value}'") for state in states])


def linked(*names: str, condition: str = "", unique: bool = False) -> Index:
    """A partial index over the rows whose first column is not null, or that meet the condition."""
    return partial_index(None, *names, condition=condition or f"{names[0]} IS NOT NULL", unique=unique)


def known_states(members: type[StrEnum], column: str = "state") -> CheckConstraint:
    names = ", ".join(f"'{member.value}'" for member in members)
    return CheckConstraint(f"{column} IN ({names})", name=column)


workflows = Table(
    "workflows",
    metadata,
    Column("name", Key, primary_key=True),
    Column("title", Prose, nullable=False),
    Column("description", Prose, nullable=False),
    Column("labels", JsonText, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    # Counts changes since the version was added; version and revision make the etag.
    Column("revision", Integer, nullable=False),
    # `api`, or the path of a file.
    Column("owner", Prose, nullable=False),
    Column("owner_removed", Boolean, nullable=False, server_default=false()),
    Column("created_at", Micros, nullable=False),
    Column("updated_at", Micros, nullable=False),
    Column("kind", Name(DefinitionKind), nullable=False, server_default=text("'workflow'")),
    ForeignKeyConstraint(["name", "version"], ["workflow_versions.workflow", "workflow_versions.version"]),
    Index(None, "kind", "name"),
)

# The labels again, for searches.
workflow_labels = Table(
    "workflow_labels",
    metadata,
    Column("workflow", Key, ForeignKey("workflows.name", ondelete="CASCADE"), primary_key=True),
    Column("label", Key, primary_key=True),
    Column("content", Key, nullable=False),
    Index(None, "label", "content", "workflow"),
)

# The jobs that the current version of a workflow uses.
workflow_uses = Table(
    "workflow_uses",
    metadata,
    Column("workflow", Key, ForeignKey("workflows.name", ondelete="CASCADE"), primary_key=True),
    Column("job", Key, primary_key=True),
    Index(None, "job", "workflow"),
)


# The paths that the current version of a workflow watches.
workflow_watches = Table(
    "workflow_watches",
    metadata,
    Column("workflow", Key, ForeignKey("workflows.name", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("path", Prose, nullable=False),
    Column("settle", Double, nullable=False, server_default=text("0")),
)

# The retention rules of workflows whose current version has its own.
workflow_retention = Table(
    "workflow_retention",
    metadata,
    Column("workflow", Key, ForeignKey("workflows.name", ondelete="CASCADE"), primary_key=True),
    Column("rules", JsonText, nullable=False),
)

# Never changed, and kept when the workflow is deleted.
workflow_versions = Table(
    "workflow_versions",
    metadata,
    Column("workflow", Key, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("digest", Key, nullable=False),
    Column("source", Text, nullable=False),
    Column("base_dir", Text, nullable=False),
    Column("parsed", JsonText, nullable=False),
    # From the definition; setting `enabled` by hand does not change it.
    Column("enabled", Boolean, nullable=False),
    Column("created_at", Micros, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Key, primary_key=True),
    Column("workflow", Key, nullable=False),
    Column("version", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("scope", Prose, nullable=False),
    Column("triggered_by", Name(Trigger), nullable=False),
    Column("caller", Prose, nullable=False),
    # Empty if large: then they are in `run_values`, and `params_bytes` is their size.
    Column("params", JsonText, nullable=False),
    Column("params_bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("labels", JsonText, nullable=False, server_default=text("'{}'")),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("created_at", Micros, nullable=False),
    Column("retry_of", Key),
    Column("from_run", Key),
    Column("parent_run", Key),
    Column("parent_step", Key),
    Column("schedule", Key, nullable=False, server_default=text("''")),
    Column("scheduled_at", Micros),
    # In microseconds since the epoch.
    Column("missed", JsonText, nullable=False, server_default=text("'[]'")),
    # The event that started it, as templates see it; without a large payload.
    Column("event", JsonText),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    # Pinned runs are not removed. No transition changes this.
    Column("pinned_at", Micros),
    Column("pinned_by", Prose, nullable=False, server_default=text("''")),
    Column("pin_note", Prose, nullable=False, server_default=text("''")),
    # A transition may change the columns below.
    Column("state", Name(RunState), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("started_at", Micros),
    Column("finished_at", Micros),
    Column("error", Prose, nullable=False),
    Column("failed_steps", Integer, nullable=False),
    Column("incomplete_steps", Integer, nullable=False, server_default=text("0")),
    Column("ended_steps", Integer, nullable=False),
    Column("total_steps", Integer, nullable=False),
    # Steps of the definition by state. Entries of the history from before revision 0010 do not have it.
    Column("step_states", JsonText, nullable=False, server_default=text("'{}'")),
    Column("current_step", Prose, nullable=False),
    # The last progress that a step had reported when it ended: current, total and message.
    Column("progress", JsonText),
    Column("cancel_requested_at", Micros),
    Column("paused_at", Micros),
    Column("ending_cause", Name(EndingCause)),
    Column("ending_at", Micros),
    # Since its `finally` steps run: the state that it will have, when they began, and how they end early.
    Column("finally_part", JsonText),
    Column("launches", Integer, nullable=False),
    Column("timeout", Double),
    known_states(RunState),
    UniqueConstraint("workflow", "number"),
    ForeignKeyConstraint(["workflow", "version"], ["workflow_versions.workflow", "workflow_versions.version"]),
    Index(None, "workflow", "id"),
    Index(None, "workflow", "state", "id"),
    Index(None, "state", "id"),
    linked("parent_run", "id"),
    linked("retry_of", "id"),
    linked("state", "finished_at", "id", condition=HAS_FAILED),
)

# The labels of runs again, for searches; with the workflow, so that runs of one workflow are found as fast.
run_labels = Table(
    "run_labels",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("label", Key, primary_key=True),
    Column("content", Key, nullable=False),
    Column("workflow", Key, nullable=False),
    Index(None, "label", "content", "run_id"),
    Index(None, "workflow", "label", "content", "run_id"),
    sqlite_with_rowid=False,
)

# Large values: every transition rewrites the row of its run, and lists read it.
run_values = Table(
    "run_values",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("params", JsonText),
    Column("event", JsonText),
)

# The runs that a run takes results from. They are not deleted while it is active.
run_sources = Table(
    "run_sources",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("source", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Index(None, "source", "run_id"),
    sqlite_with_rowid=False,
)

step_runs = Table(
    "step_runs",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    # Instances follow their step: see StepRun.position.
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("step", Key, nullable=False),
    Column("state", Name(StepState), nullable=False),
    # For people: why it failed, is retried or was cancelled.
    Column("reason", Prose, nullable=False),
    Column("skip_reason", Name(SkipReason)),
    # The run that its results come from, if not its own.
    Column("source", Key),
    Column("attempts", Integer, nullable=False),
    Column("losses", Integer, nullable=False, server_default=text("0")),
    Column("evaluated", Boolean, nullable=False, server_default=false()),
    Column("iteration", Integer, nullable=False, server_default=text("0")),
    # Of this run, or of the run that the results come from, which may have been deleted.
    Column("attempt_id", Key),
    Column("started_at", Micros),
    Column("finished_at", Micros),
    Column("exit_code", BigInteger),
    Column("error_class", Name(ErrorClass)),
    Column("result", JsonText),
    Column("outputs", JsonText, nullable=False),
    # Fields that few steps use, as JSON: only those that differ from their defaults.
    Column("extra", JsonText, nullable=False, server_default=text("'{}'")),
    known_states(StepState),
    UniqueConstraint("run_id", "step"),
    sqlite_with_rowid=False,
)

# Large items of instances: every change of a step rewrites its row.
step_items = Table(
    "step_items",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("item", JsonText, nullable=False),
)

process_executions = Table(
    "process_executions",
    metadata,
    Column("id", Key, primary_key=True),
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("step", Key, nullable=False),
    Column("number", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("child", Boolean, nullable=False, server_default=false()),
    Column("workflow", Key, nullable=False, server_default=text("''")),
    Column("job", Key, nullable=False, server_default=text("''")),
    Column("iteration", Integer, nullable=False, server_default=text("1")),
    Column("created_at", Micros, nullable=False),
    # A transition may change the columns below.
    Column("token", Key, nullable=False),
    Column("state", Name(AttemptState), nullable=False),
    Column("command", Prose, nullable=False),
    Column("boot_id", Prose, nullable=False),
    Column("pid", BigInteger),
    Column("exit_code", BigInteger),
    Column("signal", BigInteger),
    Column("error_class", Name(ErrorClass)),
    Column("error", Prose, nullable=False),
    Column("ending", JsonText),
    Column("started_at", Micros),
    Column("finished_at", Micros),
    Column("user_time", Double, nullable=False),
    Column("system_time", Double, nullable=False),
    Column("max_rss_bytes", BigInteger, nullable=False),
    Column("stdout_bytes", BigInteger, nullable=False),
    Column("stderr_bytes", BigInteger, nullable=False),
    Column("dropped_bytes", BigInteger, nullable=False, server_default=text("0")),
    known_states(AttemptState),
    UniqueConstraint("run_id", "ordinal"),
    Index(None, "run_id", "id"),
    Index(None, "step", "id"),
    Index(None, "workflow", "id"),
    linked("job", "id", condition="job <> ''"),
    # Most attempts are COMPLETED: those that are not would be found too late.
    linked("state", "id", condition=NOT_WELL),
    linked("workflow", "state", "id", condition=NOT_WELL),
    linked("job", "state", "id", condition=f"job <> '' AND {NOT_WELL}"),
    sqlite_with_rowid=False,
)

# The resource use of an attempt over time, if it lived long enough to be sampled.
process_usage = Table(
    "process_usage",
    metadata,
    Column("attempt_id", Key, ForeignKey("process_executions.id", ondelete="CASCADE"), primary_key=True),
    Column("usage", JsonText, nullable=False),
)

# The size of the directory of an ended run.
run_sizes = Table(
    "run_sizes",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    # The size of its logs alone.
    Column("log_bytes", BigInteger, nullable=False),
)

# Locks that stay held after an attempt, because its processes may still live. They outlast the run.
lock_leftovers = Table(
    "lock_leftovers",
    metadata,
    Column("lock", Key, primary_key=True),
    Column("attempt_id", Key, primary_key=True),
    # The run or step that took the lock.
    Column("user_run", Key, nullable=False),
    Column("user_step", Key, nullable=False),
    Column("run_id", Key, nullable=False),
    Column("workflow", Key, nullable=False),
    Column("step", Key, nullable=False),
    Column("since", Micros, nullable=False),
    Column("boot_id", Key, nullable=False),
    Column("pids", JsonText, nullable=False),
)

# Steps whose retries are exhausted.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", Key, primary_key=True),
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("workflow", Key, nullable=False),
    Column("step", Key, nullable=False),
    Column("attempt_id", Key, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Prose, nullable=False),
    Column("error_class", Name(ErrorClass), nullable=False),
    Column("created_at", Micros, nullable=False),
    # Closing it changes the columns below.
    Column("state", Name(DeadLetterState), nullable=False),
    Column("resolved_at", Micros),
    Column("resolved_by", Prose, nullable=False),
    Column("requeued_as", Key, nullable=False),
    known_states(DeadLetterState),
    Index(None, "run_id"),
    Index(None, "workflow", "id"),
    Index(None, "workflow", "state", "id"),
    Index(None, "state", "id"),
)

# One row per transition, with the columns of the run, its steps and attempts that it wrote; sequence 0 is the creation.
run_history = Table(
    "run_history",
    metadata,
    Column("run_id", Key, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Micros, nullable=False),
    Column("event", Prose, nullable=False),
    Column("change", JsonText, nullable=False),
    # In the order of all changes of all runs, which is that of their commits. NULL for those from before revision 0019.
    Column("position", BigInteger),
    linked("position"),
)

# The highest position of a change that was deleted with its run: positions are never reused. At most one row.
deleted_changes = Table(
    "deleted_changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="single"),
)


# The daemon that owns the database: at most one row.
ownership = Table(
    "ownership",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    # Incremented by every claim, and compared by every transaction of the owner.
    Column("epoch", BigInteger, nullable=False),
    Column("installation", Key, nullable=False),
    Column("machine", Key, nullable=False),
    Column("host", Prose, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("state_dir", Prose, nullable=False),
    Column("since", Micros, nullable=False),
    # Set by a clean stop.
    Column("released_at", Micros),
    CheckConstraint("id = 1", name="single"),
)

# Attempts that were live when another installation claimed the database: their files are elsewhere.
abandoned_attempts = Table(
    "abandoned_attempts",
    metadata,
    Column("attempt_id", Key, ForeignKey("process_executions.id", ondelete="CASCADE"), primary_key=True),
    Column("token", Key, primary_key=True),
)

# The highest number of a deleted run, by workflow: numbers are never reused.
run_numbers = Table(
    "run_numbers",
    metadata,
    Column("workflow", Key, primary_key=True),
    Column("last", BigInteger, nullable=False),
)

requests = Table(
    "requests",
    metadata,
    Column("caller", Key, primary_key=True),
    Column("rpc", Key, primary_key=True),
    Column("request_id", Key, primary_key=True),
    Column("digest", Key, nullable=False),
    Column("answer", JsonText, nullable=False),
    Column("created_at", Micros, nullable=False),
    Index(None, "created_at"),
)
