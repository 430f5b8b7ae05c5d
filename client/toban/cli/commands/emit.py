"""`toban emit`: emits an event, and reports the runs that it started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import type_names
from toban.cli.args.event_payload import DataOption, read_payload
from toban.cli.args.name_arguments import connect
from toban.cli.human_text import one_line
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, ExitCommand, Option
from toban.cli.wait.run_start import WaitOption
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import event_pb2

TypeArgument = Annotated[
    str,
    Argument(
        metavar="TYPE",
        help="Event type, such as DATA_CHANGED.",
        show_default=False,
        autocompletion=type_names,
    ),
]


def emit(
    ctx: CommandContext,
    event_type: TypeArgument,
    data: DataOption = "",
    dedupe_key: Annotated[
        str,
        Option(
            "--dedupe-key",
            metavar="KEY",
            help="Emit nothing if a stored event of this type has this key.",
            show_default=False,
        ),
    ] = "",
    wait: WaitOption = False,
    request_id: Annotated[
        str,
        Option(
            "--request-id",
            metavar="ID",
            help="Idempotency key: repeating the call with it emits one event.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Emit an event, and show the runs that it started.

    The event starts each workflow that listens to its type with `on` and whose condition is true, once. An event from a
    step also names its run. With --wait the exit code is 0 if all started runs succeeded, 1 if one failed, else 124 if
    one timed out and 130 if one was cancelled. Where the event is one of a burst (`debounce`), the run of the burst
    counts. Ctrl-C only detaches (131).

    A step of a run that an event started should not use --wait: its run has one of the `event_concurrency` slots, and
    the runs that it waits for need slots too. When such runs have all slots, none of them ever ends.

    \b
    Examples:
      toban emit ORDER_PAID -d '{"order": 7}'
      toban emit IMPORT_DONE -d @result.json --dedupe-key 2026-02-01
      produce | toban emit IMPORT_DONE -d @- --wait
      id=$(toban emit ORDER_PAID -o name)
    """
    here = session(ctx, output)
    what = f"emit {shown(event_type)}"
    payload = read_payload(data, what)
    with connect(here, what) as client:
        event, created = client.emit_event(
            event_type, payload_json=payload, dedupe_key=dedupe_key, request_id=request_id or None
        )
        match here.output:
            case OutputFormat.NAME:
                print(event.id, flush=True)
            case OutputFormat.TABLE:
                _report(here, client, event, created=created, wait=wait)
            case OutputFormat.JSON | OutputFormat.YAML:
                if not wait:
                    emit_data(here, {**to_dict(event), "created": created})
        if wait:
            from toban.cli.wait.event_wait import until_ended

            raise ExitCommand(until_ended(here, client, event, created=created))


def _report(
    here: Session,
    client: SyncClient,
    event: event_pb2.Event,
    *,
    created: bool,
    wait: bool,
) -> None:
    """Reports the event; with `wait` as a note, because the result is how its runs end."""
    said = "emitted" if created else "already emitted with this key:"
    lines = [f"{said} {event.type} ({event.id})", *outcome_lines(client, event)]
    if not event.runs and created:
        lines += _why_nothing(client, event)
    for line in lines:
        if wait:
            here.note(one_line(line))
        else:
            print(one_line(line))
    if not wait:
        note_pending(here, event)


def outcome_lines(client: SyncClient, event: event_pb2.Event) -> list[str]:
    """A line for each workflow that the event matched, and one if the event was cut."""
    from toban.cli.render.event_text import not_started_line, started
    from toban.cli.render.run_names import names_of
    from toban.v1 import event_pb2

    if event.state == event_pb2.EVENT_STATE_CUT:
        return [f"cut: {event.reason}"]
    names = names_of(client, (run.run_id for run in started(event)))
    return [
        f"started {names.get(run.run_id, run.workflow)} ({run.run_id})" if run.run_id else not_started_line(run)
        for run in event.runs
    ]


def note_pending(here: Session, event: event_pb2.Event) -> None:
    """Notes why an event is still pending."""
    from toban.v1 import event_pb2

    if event.state == event_pb2.EVENT_STATE_PENDING:
        why = f": {event.reason}" if event.reason else ""
        here.note(f"pending{why}; its runs start later")
        here.note(f"hint: `toban events show {event.id}` shows its state")


def _why_nothing(client: SyncClient, event: event_pb2.Event) -> list[str]:
    from toban.cli.render.event_text import why_nothing
    from toban.sdk import Refused
    from toban.v1 import event_pb2

    if event.state != event_pb2.EVENT_STATE_RESOLVED:
        return []
    if event.reason:
        return [f"started no runs: {event.reason}"]
    try:
        first, *lines = why_nothing(client.resolve_event(event_id=event.id))
    except Refused:
        # A step may emit events, but not see who listens.
        return ["started no runs"]
    return [f"started no runs: {first}", *lines]
