"""`toban schedules`: lists, shows and cancels schedules of subjects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

from toban.cli.args.completers import (
    schedule_ids,
    startable_names,
    subject_names,
)
from toban.cli.args.name_arguments import connect, whole_id
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.human_text import clock, enum_word
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, take, time_column
from toban.cli.render.schedule_preview import local
from toban.cli.render.title_text import label, title_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import schedule_pb2

app = Group(
    name="schedules",
    help="""Show and cancel schedules of subjects.

    `toban schedule` creates them. Schedules of workflows are part of their definitions: see `toban workflows next`.

    \b
    Examples:
      toban schedules list --subject issue-42
      toban schedules cancel --subject issue-42
    """,
)

SubjectOption = Annotated[
    str,
    Option(
        "--subject",
        metavar="SUBJECT",
        help="Subject, such as issue-42.",
        show_default=False,
        autocompletion=subject_names,
    ),
]

TargetOption = Annotated[
    str,
    Option(
        "--workflow",
        "-w",
        metavar="NAME",
        help="Workflow or job to start.",
        show_default=False,
        autocompletion=startable_names,
    ),
]

_COUNTED: Final = 999
_STYLES: Final = {"active": "green", "ended": "dim", "cancelled": "yellow"}


@app.command("list")
def list_schedules(
    ctx: CommandContext,
    subject: SubjectOption = "",
    workflow: TargetOption = "",
    every: Annotated[bool, Option("--all", help="Also ended and cancelled schedules.")] = False,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List active schedules of subjects, oldest first.

    \b
    Examples:
      toban schedules list
      toban schedules list --subject issue-42 --all
    """
    here = session(ctx, output)
    with connect(here, "list schedules") as client:
        found, more = take(
            client.list_schedules(
                subject=subject,
                workflow=workflow,
                include_ended=every,
                page_size=min(limit + 1, 1000),
            ),
            limit,
        )
    titles = title_column(found, lambda one: one.workflow, lambda one: one.workflow_title)
    columns: list[Column[schedule_pb2.Schedule]] = [
        Column("ID", lambda one: one.id),
        Column("SUBJECT", lambda one: one.subject, lambda _: "bold"),
        Column("ACTION", action_word),
        Column("WORKFLOW", lambda one: one.workflow or "-", optional=True),
        *(replace(column, optional=True) for column in titles),
        Column("STATE", _state, lambda one: _STYLES.get(_state(one), "")),
        time_column("NEXT DUE", lambda one: one.next_due),
        Column("OCCURRENCES", _occurrences, optional=True),
        Column("REQUEST", lambda one: one.request, folds=True),
    ]
    kind = "" if every else "active "
    of = f" of {shown(subject)}" if subject else ""
    starting = f" that start {shown(workflow)}" if workflow else ""
    emit_list(
        here,
        found,
        columns,
        name=lambda one: str(one.id),
        more=more,
        empty=f"no {kind}schedules{of}{starting}",
    )


@app.command()
def show(
    ctx: CommandContext,
    schedule: Annotated[
        str,
        Argument(metavar="ID", help="Schedule id.", show_default=False, autocompletion=schedule_ids),
    ],
    output: OutputOption = None,
) -> None:
    """Show one schedule: the request, its meaning and its state.

    \b
    Example:
      toban schedules show 0192f3a4-5b6c-7d8e-9f01-23456789abcd
    """
    here = session(ctx, output)
    with connect(here, f"show schedule {shown(schedule)}") as client:
        found = client.get_schedule(whole_id(client, "schedule", schedule))
    emit_one(here, found, name=found.id, show=lambda: _show(here, found))


@app.command()
def cancel(
    ctx: CommandContext,
    schedules: Annotated[
        list[str] | None,
        Argument(
            metavar="ID",
            help="Schedule ids.",
            show_default=False,
            autocompletion=schedule_ids,
        ),
    ] = None,
    subject: SubjectOption = "",
    output: OutputOption = None,
) -> None:
    """Cancel schedules by id, or all schedules of a subject.

    They are not due any more. Cancelling twice is harmless.

    \b
    Examples:
      toban schedules cancel 0192f3a4-5b6c-7d8e-9f01-23456789abcd
      toban schedules cancel --subject issue-42
    """
    here = session(ctx, output)
    if bool(schedules) == bool(subject):
        raise Failure(
            "cannot cancel schedules: give either their ids or --subject",
            Exit.USAGE,
            hint="`toban schedules list` shows both",
        )
    if subject:
        _cancel_subject(here, subject)
    else:
        _cancel_each(here, schedules or [])


def _cancel_subject(here: Session, subject: str) -> None:
    with connect(here, f"cancel the schedules of {shown(subject)}") as client:
        cancelled = client.cancel_by_subject(subject)
    match here.output:
        case OutputFormat.TABLE:
            print(f"cancelled {counted(cancelled, 'schedule')} of {shown(subject)}")
        case OutputFormat.NAME:
            print(subject)
        case _:
            emit_data(here, {"subject": subject, "cancelled": cancelled})


def _cancel_each(here: Session, schedules: Sequence[str]) -> None:
    done: list[schedule_pb2.Schedule] = []
    with connect(here, "cancel schedules") as client:
        for one in schedules:
            with doing(f"cancel schedule {shown(one)}"):
                done.append(client.cancel_schedule(whole_id(client, "schedule", one)))
            # At once: it stays cancelled even if the next one fails.
            if here.output is OutputFormat.TABLE:
                ended = _state(done[-1]) != "cancelled"
                print(f"{done[-1].id} has already ended" if ended else f"cancelled {done[-1].id}", flush=True)
            elif here.output is OutputFormat.NAME:
                print(done[-1].id, flush=True)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(one) for one in done])


def _show(here: Session, found: schedule_pb2.Schedule) -> None:
    params = to_dict(found).get("params")
    cancelled = clock(found.cancelled_at, absent="")
    fields(
        here,
        [
            ("schedule", found.id),
            ("subject", found.subject),
            ("action", action_word(found)),
            ("workflow", label(found.workflow, found.workflow_title)),
            ("parameters", _json(params) if params else ""),
            ("request", found.request),
            ("understood", found.understood),
            ("state", _state(found)),
            (
                "next due",
                local(found.next_due, found.timezone) if found.HasField("next_due") else "",
            ),
            ("occurrences", _occurrences(found)),
            ("dedupe key", found.dedupe_key),
            ("time zone", found.timezone),
            ("created", f"{clock(found.created_at)} by {found.caller or 'unknown'}"),
            ("cancelled", cancelled),
        ],
    )


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _state(one: schedule_pb2.Schedule) -> str:
    from toban.v1 import schedule_pb2

    return enum_word(schedule_pb2.ScheduleState, one.state)


def note_left(here: Session, client: SyncClient, workflow: str) -> None:
    """Notes active schedules that name a deleted workflow or job: they will start no runs."""
    from toban.sdk import TobanError

    try:
        left, more = take(client.list_schedules(workflow=workflow, page_size=_COUNTED), _COUNTED)
    except TobanError:
        return  # the deletion itself is done
    if left:
        many = "more than " if more else ""
        name = "name" if len(left) > 1 else "names"
        here.note(
            f"{many}{counted(len(left), 'active schedule')} still {name} {shown(workflow)} and will start no runs: "
            f"`toban schedules list --workflow {shown(workflow)}` lists them, `toban schedules cancel ID` cancels them"
        )


def action_word(one: schedule_pb2.Schedule | schedule_pb2.InterpretTimeResponse) -> str:
    """The action as on the command line."""
    from toban.v1 import schedule_pb2

    return enum_word(schedule_pb2.ScheduleAction, one.action).replace(" ", "_")


def _occurrences(one: schedule_pb2.Schedule) -> str:
    most = f" of {one.max_occurrences}" if one.max_occurrences else ""
    return f"{one.occurrences}{most}"
