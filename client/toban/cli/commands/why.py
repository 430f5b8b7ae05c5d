"""When workflows are due, and why they did or did not run: `toban workflows next` and `toban why`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toban.cli.args.names import NameArgument, about_workflow, connect
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import clock, moment, one_line, parse_at
from toban.cli.render.output import Column, emit_list, emit_one, take
from toban.cli.session import LimitOption, Output, OutputOption, Session, session, shown
from toban.quantity_text import duration_text

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import job_pb2, workflow_pb2

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_STYLES: Final = {"fired": "green", "caught up": "cyan", "skipped": "yellow", "missed": "red"}


def next_due(
    ctx: typer.Context,
    name: NameArgument,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100, metavar="N", help="How many times.")] = 10,
    start: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="After this time instead of now.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Show when a workflow is due next.

    Times are those of the clocks in the time zone of each schedule; changes of these clocks and blackout windows are
    marked. @reboot has no times that are known. TIME is a time such as 2026-03-29T00:00:00+01:00, or 18:00 for today;
    what is decided already is not shown, see `toban why --ledger`.

    \b
    Examples:
      toban workflows next nightly-report
      toban workflows next nightly-report -n 3 --from 2026-10-24T00:00:00+02:00
      toban workflows next nightly-report -o json
    """
    here = session(ctx, output)
    what = f"show when {shown(name)} is due"
    after = _time(start, "--from", what) if start else None
    with connect(here, what) as client, about_workflow(client, name, what):
        found = client.preview_schedule(name, count=count, start=after)
        # Why there is none is for people.
        asked = not found and here.output is Output.TABLE
        sentences = client.explain_schedule(name).sentences if asked else ()
        held = tuple(_held_back(client, name)) if found and here.output is Output.TABLE else ()
    columns: list[Column[workflow_pb2.DueTime]] = [
        Column("DAY", _day),
        Column("DUE", lambda due: due.local, lambda _: "bold"),
        Column("ZONE", lambda due: due.timezone),
    ]
    if len({due.schedule_index for due in found}) > 1:
        columns.append(Column("SCHEDULE", lambda due: str(due.schedule_index)))
    if any(_jitter(due) for due in found):
        columns.append(Column("STARTS", _start))
    if any(_note(due) for due in found):
        columns.append(Column("NOTE", _note, lambda _: "yellow", folds=True))
    empty = f"{shown(name)} is due at no time that is known"
    emit_list(here, found, columns, name=lambda due: str(due.local), empty=empty)
    for sentence in (*sentences, *held):
        here.note(one_line(sentence))


def why(
    ctx: typer.Context,
    name: NameArgument,
    at: Annotated[
        str,
        typer.Option("--at", metavar="TIME", help="The time that is asked about.", show_default=False),
    ] = "",
    ledger: Annotated[
        bool,
        typer.Option("--ledger", help="What became of each due time, the latest first."),
    ] = False,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """Say why a workflow did or did not run.

    TIME is a time such as 2026-02-01T03:00:00+09:00, 03:00 for today, or 2h for so long ago; without a zone it is that
    of this machine's clock. It may be to come: whether the workflow is due then. --limit counts the lines of --ledger.

    \b
    Examples:
      toban why nightly-report
      toban why nightly-report --at 03:00
      toban why nightly-report --at 2026-02-01T03:00
      toban why nightly-report --ledger --limit 200
    """
    here = session(ctx, output)
    what = f"say why {shown(name)} did or did not run"
    if ledger and at:
        raise Failure(
            f"cannot {what}: --ledger and --at exclude each other",
            Exit.USAGE,
            hint="--at asks about one time, --ledger lists all that are known",
        )
    if ledger:
        _show_ledger(here, name, limit, what)
        return
    asked = _time(at, "--at", what) if at else None
    with connect(here, what) as client, about_workflow(client, name, what):
        found = client.explain_schedule(name, at=asked)
    emit_one(here, found, name=name, show=lambda: _tell(found))


def next_due_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """When its schedules are due next; empty if it has none."""
    if not definition.schedules:
        return ""
    return clock(definition.next_due, absent="no time that is known") + _held(definition)


def events_of(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    """The types of events that start it; empty if none does."""
    if not definition.event_types:
        return ""
    return f"{', '.join(definition.event_types)}{_held(definition)}"


def _held(definition: workflow_pb2.Workflow | job_pb2.Job) -> str:
    return "" if definition.enabled else "; not started while it is disabled"


def _held_back(client: SyncClient, name: str) -> Iterator[str]:
    """Why nothing starts at these times, as things are now."""
    from toban.sdk import NotFound

    try:
        enabled, noun = client.get_workflow(name).enabled, "workflows"
    except NotFound:
        enabled, noun = client.get_job(name).enabled, "jobs"
    if not enabled:
        yield f"{shown(name)} is disabled: nothing starts then, until `toban {noun} enable {name}`"
    if client.get_info().draining:
        yield "the daemon is draining: nothing starts then, until `toban system resume`"


def _tell(found: workflow_pb2.ExplainScheduleResponse) -> None:
    for sentence in found.sentences:
        print(one_line(sentence))


def _show_ledger(here: Session, name: str, limit: int, what: str) -> None:
    with connect(here, what) as client, about_workflow(client, name, what):
        found, more = take(client.list_fires(workflow=name, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[workflow_pb2.Fire]] = [
        Column("DUE", lambda fire: clock(fire.due_at), lambda _: "bold"),
        Column("OUTCOME", _outcome, lambda fire: _STYLES.get(_outcome(fire), "")),
        Column("LATE", _late),
        Column("REASON", _reason, folds=True),
        Column("SCHEDULE", lambda fire: fire.schedule_id, optional=True),
        Column("RUN", lambda fire: fire.run_id or "-"),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda fire: str(fire.run_id or "-"),
        more=more,
        empty=f"{shown(name)} has not been due yet",
    )


def _day(due: workflow_pb2.DueTime) -> str:
    return _DAYS[datetime.fromisoformat(due.local).weekday()]


def _jitter(due: workflow_pb2.DueTime) -> timedelta:
    return due.start_at.ToDatetime() - due.due_at.ToDatetime()


def _start(due: workflow_pb2.DueTime) -> str:
    later = _jitter(due)
    return f"{duration_text(later)} later" if later else "at once"


def _note(due: workflow_pb2.DueTime) -> str:
    from toban.v1 import workflow_pb2

    notes = {
        workflow_pb2.CLOCK_CHANGE_SHIFTED: "shifted: the clocks pass over its time",
        workflow_pb2.CLOCK_CHANGE_REPEATED: "repeated: the clocks show this time twice",
    }
    parts = [notes.get(due.change, ""), f"not started: {due.blackout}" if due.blackout else ""]
    return "; ".join(part for part in parts if part)


def _outcome(fire: workflow_pb2.Fire) -> str:
    """A word; of an outcome that this client does not know yet, its number."""
    from toban.v1 import workflow_pb2

    known = workflow_pb2.FireOutcome.DESCRIPTOR.values_by_number
    name = known[fire.outcome].name if fire.outcome in known else str(fire.outcome)
    return name.removeprefix("FIRE_OUTCOME_").lower().replace("_", " ")


def _late(fire: workflow_pb2.Fire) -> str:
    """By how much its run, or its event, came later; of what did not come, nothing."""
    from toban.v1 import workflow_pb2

    due, decided = moment(fire.due_at), moment(fire.at)
    came = (workflow_pb2.FIRE_OUTCOME_FIRED, workflow_pb2.FIRE_OUTCOME_CAUGHT_UP)
    if fire.outcome not in came or due is None or decided is None:
        return "-"
    return duration_text(decided - due)


def _reason(fire: workflow_pb2.Fire) -> str:
    more = f"and {fire.more} due times before it" if fire.more else ""
    return ", ".join(part for part in (fire.reason, more) if part)


def _time(text: str, option: str, what: str) -> datetime:
    try:
        return parse_at(text, datetime.now(UTC))
    except ValueError as error:
        raise Failure(f"cannot {what}: {option}: {error}", Exit.USAGE) from error
