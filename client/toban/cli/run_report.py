"""One run for people: its steps with states and times, and the last lines of what failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from toban.cli.output import Column, fields, paint, table, to_dict
from toban.cli.resources import show_resources
from toban.cli.session import Session
from toban.cli.states import run_name, run_state, run_style, step_note, step_state, step_style
from toban.cli.text import clock, count, last_state, plain, span, state_word
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from toban.sdk import SyncClient

# Of a run in which everything failed, the first ones say enough.
_MOST_TAILS: Final = 3
_TAIL_LINES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The last lines of a step."""

    step: run_pb2.Step
    lines: Sequence[str]


def failed_tails(client: SyncClient, run: run_pb2.Run) -> list[Tail]:
    """The last lines of the steps that failed; nothing for a log that is gone."""
    from toban.sdk import NotFound

    tails = []
    failed = [
        step for step in run.steps if step.state == run_pb2.STEP_STATE_FAILED and step.attempts > 0
    ]
    for step in failed[:_MOST_TAILS]:
        data = bytearray()
        try:
            for message in client.stream_logs(
                run.id, step=step.id, attempt=step.attempts, tail=_TAIL_LINES
            ):
                for record in message.chunk.records:
                    data += record.data
        except NotFound:
            continue
        text = data.decode("utf-8", "replace").removesuffix("\n")
        lines = [plain(last_state(line)) for line in text.split("\n")] if text else []
        tails.append(Tail(step=step, lines=lines[-_TAIL_LINES:]))
    return tails


def report(
    here: Session,
    run: run_pb2.Run,
    tails: Sequence[Tail],
    processes: Sequence[run_pb2.ProcessExecution] = (),
) -> None:
    """Writes the whole picture of a run."""
    now = datetime.now(UTC)
    trigger = state_word(run_pb2.Trigger.Name(run.triggered_by)).removeprefix("trigger ")
    fields(
        here,
        [
            ("run", f"{run_name(run)} (version {run.version})"),
            ("id", run.id),
            ("state", run_state(run)),
            ("error", run.error_message),
            ("started by", f"{trigger}, {run.caller}" if run.caller else trigger),
            ("priority", str(run.priority) if run.priority else ""),
            ("parameters", _params(run)),
            ("created", clock(run.created_at)),
            ("started", clock(run.started_at, absent="")),
            ("finished", clock(run.finished_at, absent="")),
            ("took", span(run.started_at, run.finished_at, now).strip("-")),
            ("cancel asked", clock(run.cancel_requested_at, absent="")),
            ("progress", _progress(run)),
        ],
    )
    print()
    columns: list[Column[run_pb2.Step]] = [
        Column("STEP", lambda step: step.id, lambda _: "bold"),
        Column("STATE", step_state, step_style),
        Column("EXIT", lambda step: str(step.exit_code) if step.HasField("exit_code") else "-"),
        Column("STARTED", lambda step: clock(step.started_at)),
        Column("TOOK", lambda step: span(step.started_at, step.finished_at, now)),
        Column("NOTE", step_note, folds=True),
    ]
    table(here, run.steps, columns)
    show_resources(here, processes)
    for tail in tails:
        _write_tail(here, run, tail)
    if run.state == run_pb2.RUN_STATE_SUCCEEDED and run.failed_steps:
        here.warn(f"{run_name(run)} succeeded, but {count(run.failed_steps, 'step')} failed")


def _write_tail(here: Session, run: run_pb2.Run, tail: Tail) -> None:
    step = tail.step
    print()
    print(paint(here, f"Last lines of {step.id} (attempt {step.attempts}):", run_style(run)))
    for line in tail.lines:
        print(f"  {line}")
    if not tail.lines:
        print("  (it printed nothing)")
    here.note(f"hint: `toban logs {run_name(run)} --step {step.id}` shows all of it")


def _params(run: run_pb2.Run) -> str:
    params = to_dict(run).get("params")
    return json.dumps(params, ensure_ascii=False) if params else ""


def _progress(run: run_pb2.Run) -> str:
    if run.HasField("finished_at"):
        return ""
    steps = f"{run.progress_current} of {count(int(run.progress_total), 'step')}"
    return f"{steps}: {run.progress_message}" if run.progress_message else steps
