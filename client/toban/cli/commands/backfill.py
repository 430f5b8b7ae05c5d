"""`toban backfill`: starts runs for due times of the past."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.completers import scope_names
from toban.cli.args.name_arguments import NameArgument, about_workflow, connect
from toban.cli.args.param_options import parse_pairs
from toban.cli.args.time_options import time_option
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import one_line, zoned
from toban.cli.render.output import Column, emit_data, table
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toban.v1 import workflow_pb2

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHOWN_AT_ENDS: Final = 10


def backfill(
    ctx: CommandContext,
    name: NameArgument,
    start: Annotated[str, Option("--from", metavar="TIME", help="First due time; a date means its beginning.")],
    end: Annotated[str, Option("--to", metavar="TIME", help="Last due time; a date means its end.")],
    schedule: Annotated[
        int | None,
        Option(
            "--schedule", min=0, metavar="N", help="Only the schedule with this number, from 0.", show_default=False
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        Option("-p", "--param", metavar="KEY=VALUE", help="Parameter of the runs; may be repeated."),
    ] = None,
    scope: Annotated[
        str,
        Option(
            "--scope",
            metavar="SCOPE",
            help="Run only the steps of this scope.",
            show_default=False,
            autocompletion=scope_names,
        ),
    ] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Only show which runs would be started.")] = False,
    again: Annotated[bool, Option("--again", help="Also for due times that have a run.")] = False,
    most: Annotated[
        int, Option("--max", min=1, max=1000, metavar="N", help="Refuse if there are more due times.")
    ] = 1000,
    request_id: Annotated[
        str,
        Option(
            "--request-id",
            metavar="ID",
            help="Idempotency key: repeating the call with it starts nothing twice, also with --again.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Start a run for each due time of the past, oldest first.

    Use it for a new schedule, and for times that were missed or skipped. A due time that has a run is left out, so the
    command may be repeated. The runs wait in the queue of the workflow behind all its other runs, and have
    run.scheduled_at. Blackouts do not apply. TIME is a date, a time such as 2026-02-01T03:00:00+09:00, or 2h for two
    hours ago; without a zone it is local time.

    \b
    Examples:
      toban backfill nightly-report --from 2026-01-01 --to 2026-01-31 --dry-run
      toban backfill nightly-report --from 2026-01-01 --to 2026-01-31
      toban backfill nightly-report --from 7d --to 1h --schedule 0 -p mode=full
    """
    here = session(ctx, output)
    what = f"backfill {shown(name)}"
    first, last = time_option(start, "--from", what), time_option(end, "--to", what)
    assert first is not None
    assert last is not None
    if _DAY.fullmatch(end):
        last = _end_of_day(last)
    if last < first:
        raise Failure(f"cannot {what}: --to must not be before --from", Exit.USAGE)
    pairs = parse_pairs(param or [])
    with connect(here, what) as client, about_workflow(client, name, what):
        found = client.backfill_schedule(
            name,
            first,
            last,
            schedule_index=schedule,
            scope=scope,
            params=pairs,
            validate_only=dry_run,
            again=again,
            limit=most,
            request_id=request_id or None,
        )
        names = {}
        if here.output is OutputFormat.TABLE:
            if not found:
                here.note(f"{shown(name)} has no due time from {zoned(first)} to {zoned(last)}; nothing was started")
                for sentence in client.explain_schedule(name).sentences[:1]:
                    here.note(one_line(sentence))
                return
            from toban.cli.render.run_names import names_of
            from toban.cli.render.run_text import run_name

            names = names_of(client, (each.run_id for each in _at_ends(found)), run_name)
    _show(here, name, found, names, dry_run)


def _at_ends(found: Sequence[workflow_pb2.BackfilledTime]) -> Sequence[workflow_pb2.BackfilledTime]:
    """Those that are shown."""
    if len(found) <= 2 * _SHOWN_AT_ENDS:
        return found
    return [*found[:_SHOWN_AT_ENDS], *found[-_SHOWN_AT_ENDS:]]


def _end_of_day(begin: datetime) -> datetime:
    # By the clock: a day with a clock change is not 24 hours long.
    following = datetime.combine(begin.date() + timedelta(days=1), begin.time().replace(hour=0, minute=0))
    return following.astimezone() - timedelta(microseconds=1)


def _show(
    here: Session, name: str, found: Sequence[workflow_pb2.BackfilledTime], names: Mapping[str, str], dry_run: bool
) -> None:
    from toban.v1 import workflow_pb2

    started = [each for each in found if each.outcome == workflow_pb2.BACKFILL_OUTCOME_STARTED]
    match here.output:
        case OutputFormat.NAME:
            for each in started:
                print(each.local if dry_run else each.run_id)
            return
        case OutputFormat.TABLE:
            _write(here, name, found, started, names, dry_run)
        case _:
            emit_data(here, [to_dict(each) for each in found])


def _write(
    here: Session,
    name: str,
    found: Sequence[workflow_pb2.BackfilledTime],
    started: Sequence[workflow_pb2.BackfilledTime],
    names: Mapping[str, str],
    dry_run: bool,
) -> None:
    columns: list[Column[workflow_pb2.BackfilledTime]] = [
        Column("DUE", lambda each: each.local, lambda _: "bold"),
        Column("ZONE", lambda each: each.timezone, optional=True),
        Column("SCHEDULE", lambda each: str(each.schedule_index), optional=True),
        Column("STARTED", lambda each: _started(each, dry_run)),
        Column("RUN", lambda each: names.get(each.run_id, each.run_id) or "-"),
    ]
    shown_ones = _at_ends(found)
    table(here, shown_ones, columns)
    if left_out := len(found) - len(shown_ones):
        here.note(f"{counted(left_out, 'due time')} in between not shown: -o json shows all")
    would = "would start" if dry_run else "started"
    parts = [f"{would} {counted(len(started), 'run')} of {shown(name)}"]
    if started:
        parts.append(f"the first for {started[0].local}, the last for {started[-1].local}")
    if have := len(found) - len(started):
        parts.append(f"{counted(have, 'due time has', 'due times have')} a run already")
    if dry_run:
        parts.append("nothing was started")
    here.note(one_line("; ".join(parts)))


def _started(each: workflow_pb2.BackfilledTime, dry_run: bool) -> str:
    from toban.v1 import workflow_pb2

    if each.outcome != workflow_pb2.BACKFILL_OUTCOME_STARTED:
        return "has a run"
    return "would be" if dry_run else "now"
