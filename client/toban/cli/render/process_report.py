"""The report of one process: its fields, and the last lines of its output."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from toban.cli.human_text import clock, span
from toban.cli.render.log_tail import LastLines
from toban.cli.render.output import fields, paint
from toban.cli.render.process_text import attempt_text, exit_text, output_text, process_note, process_state
from toban.cli.render.resource_text import cpu, memory
from toban.cli.render.title_text import label
from toban.cli.session import Session
from toban.v1 import run_pb2

_LINES: Final = 20


def report(here: Session, process: run_pb2.ProcessExecution, names: Mapping[str, str]) -> None:
    """Writes all about one process; `names` are those of runs by id."""
    now = datetime.now(UTC)
    fields(
        here,
        [
            ("run", names.get(process.run_id, process.run_id)),
            ("step", label(process.step, process.step_title)),
            ("attempt", attempt_text(process)),
            ("job", process.job),
            ("id", process.id),
            ("state", process_state(process)),
            ("command", process.command),
            ("exit", exit_text(process).strip("-")),
            ("note", process_note(process)),
            ("pid", str(process.pid or "")),
            ("launched", clock(process.launched_at, absent="")),
            ("started", clock(process.started_at, absent="")),
            ("finished", clock(process.finished_at, absent="")),
            ("took", span(process.started_at, process.finished_at, now).strip("-")),
            ("cpu", cpu(process).strip("-")),
            ("memory", memory(process).strip("-")),
            ("output", output_text(process)),
            ("child run", names.get(process.child_run, process.child_run)),
        ],
    )
    cut = [
        _write_end(here, "standard output", process.stdout, truncated=process.stdout_truncated),
        _write_end(here, "standard error", process.stderr, truncated=process.stderr_truncated),
    ]
    if any(cut):
        here.note(f"hint: `toban logs --process {process.id}` shows the whole output")


def _write_end(here: Session, stream: str, text: str, *, truncated: bool) -> bool:
    """Returns whether the stream has more lines than those written."""
    if not text:
        return False
    last = LastLines(_LINES)
    last.feed(text.encode())
    truncated = truncated or text.removesuffix("\n").count("\n") >= _LINES
    print()
    print(paint(here, f"{'Last lines of' if truncated else 'All of'} {stream}:", "bold"))
    for line in last.shown():
        print(f"  {line}")
    return truncated
