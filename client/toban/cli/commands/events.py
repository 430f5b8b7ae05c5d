"""`toban events`: lists, shows, watches and resolves events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import event_ids, type_names
from toban.cli.args.event_payload import DataOption, read_payload
from toban.cli.args.name_arguments import connect, whole_id
from toban.cli.commands.emit import TypeArgument, note_pending
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import clock, enum_word, one_line
from toban.cli.render.output import (
    Column,
    emit_data,
    emit_line,
    emit_list,
    emit_one,
    fields,
    paint,
    table,
    take,
    time_column,
)
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.v1 import event_pb2

app = Group(
    name="events",
    help="""Show events and the runs that they start.

    \b
    Examples:
      toban events list --type ORDER_PAID
      toban events watch
      toban events resolve ORDER_PAID -d '{"order": 7}'
    """,
)

TypesOption = Annotated[
    list[str] | None,
    Option(
        "--type",
        metavar="TYPE",
        help="Only events of this type; may be repeated.",
        autocompletion=type_names,
    ),
]


@app.command("list")
def list_events(
    ctx: CommandContext,
    types: TypesOption = None,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List events, newest first.

    The daemon stores events for 30 days, at most 100,000. It stores its own events, such as RUN_FAILED, only if a
    workflow listens to them.

    \b
    Examples:
      toban events list
      toban events list --type ORDER_PAID --type ORDER_SENT --limit 10
    """
    from toban.cli.render.event_text import event_outcome, event_style, short_payload, source

    here = session(ctx, output)
    with connect(here, "list events") as client:
        found, more = take(client.list_events(types=types or [], page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[event_pb2.Event]] = [
        Column("ID", lambda event: event.id),
        Column("TYPE", lambda event: event.type, lambda _: "bold"),
        time_column("EMITTED", lambda event: event.emitted_at),
        Column("OUTCOME", event_outcome, event_style, folds=True),
        Column("SOURCE", source, optional=True),
        Column("PAYLOAD", short_payload, optional=True),
    ]
    empty = f"no events of type {' or '.join(map(shown, types))}" if types else "no events"
    emit_list(here, found, columns, name=lambda event: str(event.id), more=more, empty=empty)


@app.command()
def show(
    ctx: CommandContext,
    event: Annotated[
        str,
        Argument(metavar="ID", help="Event id.", show_default=False, autocompletion=event_ids),
    ],
    output: OutputOption = None,
) -> None:
    """Show one event: its payload and its runs.

    \b
    Examples:
      toban events show 0192f3a4-5b6c-7d8e-9f01-23456789abcd
      toban events show 0192f3a4-5b6c-7d8e-9f01-23456789abcd -o json
    """
    from toban.cli.render.event_text import started, why_nothing
    from toban.cli.render.run_names import names_of

    here = session(ctx, output)
    with connect(here, f"show event {shown(event)}") as client:
        found = client.get_event(whole_id(client, "event", event))
        names: dict[str, str] = {}
        why: list[str] = []
        if here.output is OutputFormat.TABLE:
            runs = [run.run_id for run in started(found.event)]
            names = names_of(client, (found.event.source_run, *runs))
            if _unmatched(found.event):
                why = why_nothing(client.resolve_event(event_id=found.event.id))
    match here.output:
        case OutputFormat.TABLE:
            _show(here, found, names, why)
        case OutputFormat.NAME:
            print(found.event.id)
        case _:
            emit_data(here, {**to_dict(found.event), "all_ended": found.all_ended})


@app.command()
def watch(ctx: CommandContext, types: TypesOption = None, output: OutputOption = None) -> None:
    """Show each event when it is resolved, until Ctrl-C.

    Continues without gaps over a restart of the daemon. With -o json each event is an object on its own line.

    \b
    Examples:
      toban events watch
      toban events watch --type ORDER_PAID -o json | jq -r .id
    """
    here = session(ctx, output)
    with connect(here, "watch events") as client:
        for change in client.watch_events(types=types or []):
            if change.HasField("event"):
                _write(here, change.event)
            else:
                here.note("watching events; Ctrl-C stops")


@app.command()
def resolve(
    ctx: CommandContext,
    event_type: TypeArgument = "",
    data: DataOption = "",
    event: Annotated[
        str,
        Option(
            "--event",
            metavar="ID",
            help="Stored event to resolve, instead of TYPE.",
            show_default=False,
            autocompletion=event_ids,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Show which runs an event would start now, without emitting it.

    Lists the workflows that it would start, in order, then those that listen to its type but would not start, with the
    reason. Uses the current definitions and active runs.

    \b
    Examples:
      toban events resolve ORDER_PAID -d '{"order": 7}'
      toban events resolve ORDER_PAID -d @payload.json -o name
      toban events resolve --event 0192f3a4-5b6c-7d8e-9f01-23456789abcd
    """
    here = session(ctx, output)
    _check_one(event_type, data, event)
    what = f"resolve {shown(event_type)}" if event_type else f"resolve event {shown(event)}"
    payload = read_payload(data, what)
    with connect(here, what) as client:
        whole = whole_id(client, "event", event) if event else ""
        found = client.resolve_event(event_type, payload_json=payload, event_id=whole)
    if here.output is OutputFormat.NAME:
        for candidate in found.candidates:
            if candidate.matches:
                print(candidate.workflow)
        return
    emit_one(here, found, name="", show=lambda: _show_candidates(here, event_type, event, found))


def _check_one(event_type: str, data: str, event: str) -> None:
    """Raises Failure unless exactly a type or an event is given."""
    said = ""
    if not event_type and not event:
        said = "TYPE or --event is missing"
    elif event and (event_type or data):
        said = "--event excludes TYPE and -d"
    if said:
        raise Failure(f"cannot resolve an event: {said}", Exit.USAGE)


def _unmatched(event: event_pb2.Event) -> bool:
    """Whether the event matched no workflow, without a stored reason."""
    return event.HasField("resolved_at") and not event.runs and not event.reason


def _show(
    here: Session,
    found: event_pb2.GetEventResponse,
    names: Mapping[str, str],
    why: Sequence[str],
) -> None:
    """Writes one event; `why` are the reasons if it started no runs."""
    from toban.cli.render.event_text import event_state, payload_lines, source, started

    event = found.event
    state = event_state(event)
    running = started(event) and event.HasField("resolved_at")
    fields(
        here,
        [
            ("event", event.type),
            ("id", event.id),
            ("state", f"{state}: {event.reason}" if event.reason else state),
            ("emitted", clock(event.emitted_at)),
            ("by", source(event, names)),
            ("chain", f"after {counted(event.depth, 'run')}" if event.depth else ""),
            ("dedupe key", event.dedupe_key),
            ("resolved", clock(event.resolved_at, absent="")),
            ("all ended", ("yes" if found.all_ended else "no") if running else ""),
        ],
    )
    if event.runs:
        print()
        _show_runs(here, event, names)
    elif event.HasField("resolved_at"):
        here.note(": ".join(["started no runs", *map(one_line, why[:1])]))
        for line in why[1:]:
            here.note(one_line(line))
    if lines := payload_lines(event):
        print()
        print(paint(here, "Payload:", "bold"))
        for line in lines:
            print(line)
    note_pending(here, event)


def _show_runs(here: Session, event: event_pb2.Event, names: Mapping[str, str]) -> None:
    from toban.cli.render.reason_text import not_started
    from toban.cli.render.state_style import state_style

    columns: list[Column[event_pb2.EventRun]] = [
        Column("WORKFLOW", lambda run: run.workflow, lambda _: "bold"),
        Column("PRIORITY", lambda run: str(run.priority), optional=True),
        Column("STATE", _run_word, lambda run: state_style(_run_word(run))),
        Column("RUN", lambda run: names.get(run.run_id, "-")),
        Column("NOTE", not_started, folds=True),
        Column("ID", lambda run: run.run_id or "-", optional=True),
    ]
    if not any(run.reason for run in event.runs):
        del columns[4]
    table(here, event.runs, columns)


def _run_word(run: event_pb2.EventRun) -> str:
    from toban.v1 import run_pb2

    if not run.run_id:
        return "not started"
    if run.run_state == run_pb2.RUN_STATE_UNSPECIFIED:
        return "deleted"
    return enum_word(run_pb2.RunState, run.run_state)


def _write(here: Session, event: event_pb2.Event) -> None:
    """Writes one event at once."""
    from toban.cli.render.event_text import event_outcome, event_style, short_payload

    match here.output:
        case OutputFormat.TABLE:
            outcome = paint(here, one_line(event_outcome(event)), event_style(event))
            kind = paint(here, one_line(event.type), "bold")
            parts = (clock(event.emitted_at), kind, event.id, outcome, short_payload(event))
            print("  ".join(filter(None, parts)), flush=True)
        case OutputFormat.NAME:
            print(event.id, flush=True)
        case _:
            emit_line(to_dict(event))


def _show_candidates(here: Session, event_type: str, event: str, found: event_pb2.ResolveEventResponse) -> None:
    columns: list[Column[event_pb2.EventCandidate]] = [
        Column("WORKFLOW", lambda one: one.workflow, lambda _: "bold"),
        Column(
            "STARTS",
            lambda one: "yes" if one.matches else "no",
            lambda one: "green" if one.matches else "dim",
        ),
        Column("PRIORITY", lambda one: str(one.priority) if one.matches else "-"),
        Column("CONDITION", lambda one: one.condition or "-", folds=True),
        Column("REASON", lambda one: one.reason, folds=True),
    ]
    if any(one.scope for one in found.candidates):
        columns.insert(3, Column("SCOPE", lambda one: one.scope or "-"))
    if found.candidates:
        table(here, found.candidates, columns)
    starting = sum(1 for one in found.candidates if one.matches)
    others = f"{counted(found.others, 'other does', 'others do')} not listen to it"
    now = " with the current definitions" if event else ""
    if not found.candidates:
        about = f"event {shown(event)}" if event else shown(event_type)
        here.note(f"no definition listens to {about}; nothing was emitted")
        return
    here.note(f"would start {counted(starting, 'run')}{now}; {others}; nothing was emitted")
    if found.pending:
        here.note(f"events stay pending for now: {one_line(found.pending)}")
