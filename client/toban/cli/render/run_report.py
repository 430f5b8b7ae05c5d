"""The report of one run: its fields, its steps, and the last lines of failed steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from toban.cli.human_text import clock, cut, enum_word, labels_text, span
from toban.cli.render.log_lines import line_of
from toban.cli.render.log_tail import LastLines
from toban.cli.render.output import Column, fields, paint, table
from toban.cli.render.resource_text import sampled, show_resources
from toban.cli.render.run_names import mentioned, names_of
from toban.cli.render.run_text import (
    progress_text,
    run_error,
    run_event,
    run_name,
    run_state,
    run_style,
    scope_text,
    shortfall,
)
from toban.cli.render.step_table import Row, step_rows
from toban.cli.render.step_text import CHECK, needs_approval, step_label, summary_text, typed
from toban.cli.render.title_text import differs, label, title_column
from toban.cli.session import Session, is_terminal
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted, size_text
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from toban.sdk import SyncClient

# How many failed steps get their last lines shown.
_MOST_TAILS: Final = 3
_MOST_MISSED: Final = 3
_TAIL_LINES: Final = 10
_TREE_COLUMNS: Final = 120
"""Columns of a tree that is not written to a terminal."""
_MOST_PARAMS: Final = 1000

_RETRYABLE: Final = (
    run_pb2.RUN_STATE_FAILED,
    run_pb2.RUN_STATE_TIMED_OUT,
    run_pb2.RUN_STATE_CANCELLED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last lines of a step, or of its completion check."""

    name: str
    title: str
    attempt: int
    lines: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A run and all data of its report. `names` are names of other runs by id."""

    run: run_pb2.Run
    tails: Sequence[Tail]
    processes: Sequence[run_pb2.ProcessExecution]
    names: Mapping[str, str]


def gather(client: SyncClient, run: run_pb2.Run) -> Picture:
    """Fetches the data of the report. Raises TobanError."""
    return Picture(
        run=run,
        tails=failed_tails(client, run),
        processes=sampled(client, run),
        names=names_of(client, mentioned(run)),
    )


def failed_tails(client: SyncClient, run: run_pb2.Run) -> list[Tail]:
    """The last lines of failed steps; deleted logs are left out."""
    from toban.sdk import NotFound

    tails = []
    failed = [
        step
        for step in run.steps
        if step.state in (run_pb2.STEP_STATE_FAILED, run_pb2.STEP_STATE_INCOMPLETE)
        if step.attempts > 0 and _prints(step)
    ]
    for step in failed[:_MOST_TAILS]:
        name, attempt = _last_process(step)
        last = LastLines(_TAIL_LINES)
        try:
            for message in client.stream_logs(run.id, step=name, attempt=attempt, tail=_TAIL_LINES):
                for record in message.chunk.records:
                    last.feed(line_of(record, color=False))
        except NotFound:
            continue
        tails.append(Tail(name=name, title=step.title, attempt=attempt, lines=last.shown()))
    return tails


def _prints(step: run_pb2.Step) -> bool:
    """Whether the step has output of its own: not with instances or a child run, no approval and no wait."""
    silent = step.job_type in (run_pb2.JOB_TYPE_APPROVAL, run_pb2.JOB_TYPE_WAIT)
    return not (step.instances or step.child_run or step.source_run or silent)


def _last_process(step: run_pb2.Step) -> tuple[str, int]:
    """The process whose output explains the failure: the check, if the step itself succeeded."""
    if step.checks and step.HasField("exit_code") and step.exit_code == 0:
        return step.id + CHECK, step.checks
    return step.id, step.attempts


def report(here: Session, picture: Picture, *, all_steps: bool = False, as_tree: bool = False) -> None:
    """Writes the report of a run, with its steps as a tree or as a table."""
    now = datetime.now(UTC)
    run, names = picture.run, picture.names
    trigger = enum_word(run_pb2.Trigger, run.triggered_by)
    fields(
        here,
        [
            ("run", f"{run_name(run)} (version {run.version})"),
            ("title", run.workflow_title if differs(run.workflow, run.workflow_title) else ""),
            ("id", run.id),
            ("state", run_state(run)),
            ("error", run_error(run)),
            ("started by", ", ".join(dict.fromkeys(filter(None, (trigger, run.caller))))),
            ("event", _event(run)),
            ("schedule", _schedule(run)),
            ("missed", _missed(run)),
            ("scope", scope_text(run)),
            ("retry of", names.get(run.retry_of, run.retry_of)),
            ("child of", _parent(run, names)),
            ("results of", names.get(run.from_run, run.from_run)),
            ("priority", str(run.priority) if run.priority else ""),
            ("labels", labels_text(run.labels)),
            ("parameters", _params(run)),
            ("created", clock(run.created_at)),
            ("started", clock(run.started_at, absent="")),
            ("finished", clock(run.finished_at, absent="")),
            ("took", span(run.started_at, run.finished_at, now).strip("-")),
            ("pinned", _pin(run)),
            ("paused", clock(run.paused_at, absent="")),
            ("cancel requested", clock(run.cancel_requested_at, absent="")),
            ("progress", _progress(run)),
            ("steps", summary_text(run.summary) if run.HasField("finished_at") else ""),
            ("artifacts", _artifacts(run)),
        ],
    )
    print()
    rows = step_rows(run.steps, now=now, every=all_steps, names=names)
    if as_tree:
        _write_tree(here, picture, now, all_steps=all_steps)
    else:
        _write_table(here, rows, now)
    show_resources(here, picture.processes)
    for tail in picture.tails:
        _write_tail(here, run, tail)
    _hint_next(here, run, hidden=any(row.step is None for row in rows))


def _write_tree(here: Session, picture: Picture, now: datetime, *, all_steps: bool) -> None:
    from toban.cli.render.step_tree import signs, tree_lines

    columns = here.console().width if is_terminal() else _TREE_COLUMNS
    run = picture.run
    lines = tree_lines(run, run.steps, signs(), columns=columns, now=now, every=all_steps, names=picture.names)
    for line in lines:
        print("".join(paint(here, text, style) for text, style in line))


def _write_table(here: Session, rows: Sequence[Row], now: datetime) -> None:
    columns: list[Column[Row]] = [
        Column("STEP", lambda row: row.label, lambda row: "bold" if row.step is not None else "dim"),
        *title_column(rows, lambda row: row.name, lambda row: row.title),
        Column("STATE", lambda row: row.state, lambda row: row.style),
        Column("EXIT", lambda row: row.exit_code),
        Column("STARTED", lambda row: row.started, optional=True, at=lambda row: row.started_at),
        Column("TOOK", lambda row: row.took(now)),
        Column("NOTE", lambda row: row.note, folds=True),
    ]
    table(here, rows, columns)


def _hint_next(here: Session, run: run_pb2.Run, *, hidden: bool) -> None:
    missing = shortfall(run)
    if missing:
        here.warn(f"{run_name(run)} succeeded, but {missing}")
    if hidden:
        here.note("hint: --all-steps shows every instance")
    for step in run.steps:
        if needs_approval(step):
            command = f"toban runs approve {run_name(run)} {typed(step.id)}"
            here.note(f"hint: `{command}` approves {step_label(step)}")
    if run.HasField("paused_at") and not run.HasField("finished_at"):
        here.note(f"hint: `toban runs resume {run_name(run)}` resumes it")
    elif run.state in _RETRYABLE or missing:
        here.note(f"hint: `toban runs retry {run_name(run)}` runs the steps again that did not succeed")


def _write_tail(here: Session, run: run_pb2.Run, tail: Tail) -> None:
    print()
    print(paint(here, f"Last lines of {label(tail.name, tail.title)} (attempt {tail.attempt}):", run_style(run)))
    for line in tail.lines:
        print(f"  {line}")
    if not tail.lines:
        print("  (no output)")
    here.note(f"hint: `toban logs {run_name(run)} --step {typed(tail.name)}` shows the whole log")


def _parent(run: run_pb2.Run, names: Mapping[str, str]) -> str:
    if not run.parent_run:
        return ""
    return f"{names.get(run.parent_run, run.parent_run)}, step {run.parent_step}"


def _event(run: run_pb2.Run) -> str:
    if not run.depth:
        return run_event(run)
    return f"{run_event(run)}, after {counted(run.depth, 'run')} in its chain"


def _schedule(run: run_pb2.Run) -> str:
    if not run.HasField("scheduled_at"):
        return run.schedule_id
    return f"{run.schedule_id}, due {clock(run.scheduled_at)}"


def _pin(run: run_pb2.Run) -> str:
    if not run.HasField("pin"):
        return ""
    return ": ".join(filter(None, (f"{clock(run.pin.at)} by {run.pin.by}", run.pin.note)))


def _missed(run: run_pb2.Run) -> str:
    """The missed due times that the run also covers."""
    if len(run.missed) <= _MOST_MISSED:
        return ", ".join(clock(at) for at in run.missed)
    return f"{counted(len(run.missed), 'due time')}, from {clock(run.missed[0])} to {clock(run.missed[-1])}"


def _artifacts(run: run_pb2.Run) -> str:
    found = [artifact for step in run.steps for artifact in step.artifacts]
    if not found:
        return ""
    total = sum(artifact.bytes for artifact in found)
    return f"{len(found)}, {size_text(total)}; see `toban runs artifacts {run_name(run)}`"


def _params(run: run_pb2.Run) -> str:
    params = to_dict(run).get("params")
    return cut(json.dumps(params, ensure_ascii=False), most=_MOST_PARAMS) if params else ""


def _progress(run: run_pb2.Run) -> str:
    if run.HasField("finished_at"):
        return progress_text(run)
    steps = f"{run.steps_ended} of {counted(int(run.steps_total), 'step')}"
    return f"{steps}: {reported}" if (reported := progress_text(run)) else steps
