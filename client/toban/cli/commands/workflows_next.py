"""`toban workflows next`: when a workflow is due next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.name_arguments import NameArgument, about_workflow, connect, stored
from toban.cli.args.time_options import time_option
from toban.cli.human_text import one_line
from toban.cli.render.output import Column, emit_list
from toban.cli.render.title_text import differs, label
from toban.cli.session import OutputFormat, OutputOption, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.quantity_text import duration_text

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import job_pb2, workflow_pb2

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def next_due(
    ctx: CommandContext,
    name: NameArgument,
    count: Annotated[int, Option("-n", "--count", min=1, max=100, metavar="N", help="Number of due times.")] = 10,
    start: Annotated[
        str,
        Option("--from", metavar="TIME", help="Show due times after this (default: now).", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Show when a workflow is due next.

    Times are local times in the time zone of each schedule; clock changes and blackout windows are marked. @reboot has
    no known due times. TIME is a time such as 2026-03-29T00:00:00+01:00, or 18:00 for today. `toban why --ledger` shows
    past due times.

    \b
    Examples:
      toban workflows next nightly-report
      toban workflows next nightly-report -n 3 --from 2026-10-24T00:00:00+02:00
      toban workflows next nightly-report -o json
    """
    here = session(ctx, output)
    what = f"show when {shown(name)} is due"
    after = time_option(start, "--from", what)
    with connect(here, what) as client, about_workflow(client, name, what):
        found = client.preview_schedule(name, count=count, start=after)
        # Only people need the reason.
        asked = not found and here.output is OutputFormat.TABLE
        sentences = client.explain_schedule(name).sentences if asked else ()
        known = stored(client, name) if found and here.output is OutputFormat.TABLE else None
        held = tuple(_held_back(client, known)) if known is not None else ()
    columns: list[Column[workflow_pb2.DueTime]] = [
        Column("DAY", _day),
        Column("DUE", lambda due: due.local, lambda _: "bold"),
        Column("ZONE", lambda due: due.timezone),
    ]
    if len({due.schedule_index for due in found}) > 1:
        columns.append(Column("SCHEDULE", lambda due: str(due.schedule_index)))
    if any(due.scope for due in found):
        columns.append(Column("SCOPE", lambda due: due.scope or "-"))
    if any(_jitter(due) for due in found):
        columns.append(Column("STARTS", _start))
    if any(_note(due) for due in found):
        columns.append(Column("NOTE", _note, lambda _: "yellow", folds=True))
    if known is not None and differs(name, known.title):
        here.note(one_line(label(name, known.title)))
    empty = f"{shown(name)} has no known due time"
    emit_list(here, found, columns, name=lambda due: str(due.local), empty=empty)
    for sentence in (*sentences, *held):
        here.note(one_line(sentence))


def _held_back(client: SyncClient, known: workflow_pb2.Workflow | job_pb2.Job) -> Iterator[str]:
    """Reasons why no run will start at these times, as of now."""
    from toban.v1 import job_pb2

    if not known.enabled:
        noun = "jobs" if isinstance(known, job_pb2.Job) else "workflows"
        yield f"{shown(known.name)} is disabled: no run starts until `toban {noun} enable {known.name}`"
    if client.get_info().draining:
        yield "the daemon is draining: no run starts until `toban system resume`"


def _day(due: workflow_pb2.DueTime) -> str:
    return _DAYS[datetime.fromisoformat(due.local).weekday()]


def _jitter(due: workflow_pb2.DueTime) -> timedelta:
    return due.start_at.ToDatetime() - due.due_at.ToDatetime()


def _start(due: workflow_pb2.DueTime) -> str:
    later = _jitter(due)
    return f"{duration_text(later)} later" if later else "on time"


def _note(due: workflow_pb2.DueTime) -> str:
    from toban.v1 import workflow_pb2

    notes = {
        workflow_pb2.CLOCK_CHANGE_SHIFTED: "shifted: the clocks skip its time",
        workflow_pb2.CLOCK_CHANGE_REPEATED: "repeated: the clocks show this time twice",
    }
    parts = [notes.get(due.change, ""), f"not started: {due.blackout}" if due.blackout else ""]
    return "; ".join(part for part in parts if part)
