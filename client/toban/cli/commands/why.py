"""`toban why`: explains why a workflow did or did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.name_arguments import NameArgument, about_workflow, connect, stored
from toban.cli.args.time_options import time_option
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import enum_word, moment, one_line
from toban.cli.render.output import Column, emit_list, emit_one, take, time_column
from toban.cli.render.title_text import differs, label
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import CommandContext, Option
from toban.quantity_text import duration_text

if TYPE_CHECKING:
    from toban.v1 import workflow_pb2

_STYLES: Final = {"fired": "green", "caught up": "cyan", "skipped": "yellow", "missed": "red"}


def why(
    ctx: CommandContext,
    name: NameArgument,
    at: Annotated[
        str,
        Option("--at", metavar="TIME", help="Explain this time.", show_default=False),
    ] = "",
    ledger: Annotated[
        bool,
        Option("--ledger", help="List the outcome of each due time, latest first."),
    ] = False,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """Explain why a workflow did or did not run.

    TIME is a time such as 2026-02-01T03:00:00+09:00, 03:00 for today, or 2h for two hours ago; without a zone it is
    local time. For a future time the command says whether the workflow is due then. --limit applies to --ledger.

    \b
    Examples:
      toban why nightly-report
      toban why nightly-report --at 03:00
      toban why nightly-report --at 2026-02-01T03:00
      toban why nightly-report --ledger --limit 200
    """
    here = session(ctx, output)
    what = f"explain the runs of {shown(name)}"
    if ledger and at:
        raise Failure(
            f"cannot {what}: --ledger and --at exclude each other",
            Exit.USAGE,
            hint="--at explains one time, --ledger lists all due times",
        )
    if ledger:
        _show_ledger(here, name, limit, what)
        return
    asked = time_option(at, "--at", what)
    with connect(here, what) as client, about_workflow(client, name, what):
        found = client.explain_schedule(name, at=asked)
        known = stored(client, name) if here.output is OutputFormat.TABLE else None
    heading = [label(name, known.title)] if known is not None and differs(name, known.title) else []
    emit_one(here, found, name=name, show=lambda: print(*map(one_line, (*heading, *found.sentences)), sep="\n"))


def _show_ledger(here: Session, name: str, limit: int, what: str) -> None:
    with connect(here, what) as client, about_workflow(client, name, what):
        found, more = take(client.list_fires(workflow=name, page_size=min(limit + 1, 1000)), limit)
        names = {}
        if here.output is OutputFormat.TABLE:
            from toban.cli.render.run_names import names_of
            from toban.cli.render.run_text import run_name

            names = names_of(client, (fire.run_id for fire in found), run_name)
    columns: list[Column[workflow_pb2.Fire]] = [
        time_column("DUE", lambda fire: fire.due_at, lambda _: "bold"),
        Column("OUTCOME", _outcome, lambda fire: _STYLES.get(_outcome(fire), "")),
        Column("LATE", _late),
        Column("REASON", _reason, folds=True),
        Column("SCHEDULE", lambda fire: fire.schedule_id, optional=True),
        Column("RUN", lambda fire: names.get(fire.run_id, fire.run_id) or "-"),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda fire: str(fire.run_id or "-"),
        more=more,
        empty=f"{shown(name)} has not been due yet",
    )


def _outcome(fire: workflow_pb2.Fire) -> str:
    from toban.v1 import workflow_pb2

    return enum_word(workflow_pb2.FireOutcome, fire.outcome)


def _late(fire: workflow_pb2.Fire) -> str:
    """How late the run or the event was; `-` if there was none."""
    from toban.v1 import workflow_pb2

    due, decided = moment(fire.due_at), moment(fire.at)
    came = (workflow_pb2.FIRE_OUTCOME_FIRED, workflow_pb2.FIRE_OUTCOME_CAUGHT_UP)
    if fire.outcome not in came or due is None or decided is None:
        return "-"
    return duration_text(decided - due)


def _reason(fire: workflow_pb2.Fire) -> str:
    from toban.cli.render.reason_text import not_started

    more = f"and {fire.more} earlier due times" if fire.more else ""
    event = f"event {fire.event_id}" if fire.event_id else ""
    return ", ".join(part for part in (not_started(fire), event, more) if part)
