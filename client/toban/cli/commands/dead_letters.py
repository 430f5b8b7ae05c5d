"""`toban dead-letters`: lists, requeues and discards steps whose retries are exhausted."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import dead_letter_ids, workflow_names
from toban.cli.args.name_arguments import check_known, connect, whole_id
from toban.cli.error_report import Failure, doing
from toban.cli.human_text import clock, enum_word
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.cli.wait.run_start import (
    FollowOption,
    RequestIdOption,
    WaitOption,
    check_waiting,
    started,
)
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toban.v1 import dead_letter_pb2

app = Group(
    name="dead-letters",
    help="""Handle steps whose retries are exhausted.

    The daemon writes a dead letter when a step with `on_failure: retry` has failed and is not retried again.

    \b
    Examples:
      toban dead-letters list
      toban dead-letters requeue 0192f3a4-5b6c-7d8e-9f01-23456789abcd --follow
    """,
)

LetterArgument = Annotated[
    str,
    Argument(
        metavar="ID",
        help="Dead letter id.",
        show_default=False,
        autocompletion=dead_letter_ids,
    ),
]

LettersArgument = Annotated[
    list[str],
    Argument(
        metavar="ID",
        help="Dead letter ids.",
        show_default=False,
        autocompletion=dead_letter_ids,
    ),
]


class LetterState(Enum):
    """States of dead letters on the command line."""

    OPEN = "open"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


@app.command("list")
def list_letters(
    ctx: CommandContext,
    workflow: Annotated[
        str,
        Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="Only dead letters of this workflow.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = "",
    state: Annotated[
        list[LetterState] | None,
        Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only dead letters in this state: open, requeued or discarded; may be repeated.",
        ),
    ] = None,
    every: Annotated[bool, Option("--all", help="Also requeued and discarded ones.")] = False,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List open dead letters, newest first.

    \b
    Examples:
      toban dead-letters list
      toban dead-letters list --workflow nightly-report --all
    """
    from toban.cli.render.run_names import names_of
    from toban.cli.render.title_text import label
    from toban.v1 import dead_letter_pb2

    here = session(ctx, output)
    wanted = state or ([] if every else [LetterState.OPEN])
    states = [dead_letter_pb2.DeadLetterState.Value(f"DEAD_LETTER_STATE_{one.name}") for one in wanted]
    what = f"list dead letters of {shown(workflow)}" if workflow else "list dead letters"
    names: Mapping[str, str] = {}
    with connect(here, what) as client:
        if workflow:
            check_known(client, workflow, what)
        found, more = take(
            client.list_dead_letters(workflow=workflow, states=states, page_size=min(limit + 1, 1000)),
            limit,
        )
        if here.output is OutputFormat.TABLE:
            names = names_of(client, (letter.run_id for letter in found))
    columns: list[Column[dead_letter_pb2.DeadLetter]] = [
        Column("ID", lambda letter: letter.id),
        Column("RUN", lambda letter: _run(letter, names), lambda _: "bold"),
        Column("STEP", lambda letter: label(letter.step, letter.step_title), lambda _: "bold"),
        Column("STATE", letter_state, lambda letter: _STYLES.get(letter_state(letter), "")),
        Column("ATTEMPTS", lambda letter: str(letter.attempts), optional=True),
        time_column("CREATED", lambda letter: letter.created_at, optional=True),
        Column("ERROR", lambda letter: letter.error_message, folds=True),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda letter: str(letter.id),
        more=more,
        empty="no dead letters" if every or state else "no open dead letters",
    )


@app.command()
def show(ctx: CommandContext, letter: LetterArgument, output: OutputOption = None) -> None:
    """Show one dead letter: the step, the error and its state.

    \b
    Example:
      toban dead-letters show 0192f3a4-5b6c-7d8e-9f01-23456789abcd
    """
    from toban.cli.render.run_names import names_of
    from toban.cli.render.run_text import run_name

    here = session(ctx, output)
    with connect(here, f"show dead letter {shown(letter)}") as client:
        found = client.get_dead_letter(whole_id(client, "dead letter", letter))
        names = names_of(client, (found.run_id, found.requeued_as), run_name)
    emit_one(here, found, name=found.id, show=lambda: _show(here, found, names))


@app.command()
def requeue(
    ctx: CommandContext,
    letter: LetterArgument,
    wait: WaitOption = False,
    follow: FollowOption = False,
    request_id: RequestIdOption = "",
    output: OutputOption = None,
) -> None:
    """Requeue a dead letter: retry its run from the failed step on.

    This starts a new run; succeeded steps keep their results. Exit codes are those of `toban run`.

    \b
    Examples:
      toban dead-letters requeue 0192f3a4-5b6c-7d8e-9f01-23456789abcd
      toban dead-letters requeue 0192f3a4-5b6c-7d8e-9f01-23456789abcd --follow
    """
    here = session(ctx, output)
    check_waiting(wait, follow)
    what = f"requeue dead letter {shown(letter)}"
    with connect(here, what) as client:
        try:
            with doing(what):
                begun = client.requeue_dead_letter(
                    whole_id(client, "dead letter", letter), request_id=request_id or None
                )
        except Failure as failure:
            if failure.reason == "DEAD_LETTER_CLOSED":
                failure.hint = f"`toban dead-letters show {shown(letter)}` shows its state"
            raise
        started(here, client, begun, wait=wait, follow=follow)


@app.command()
def discard(ctx: CommandContext, letters: LettersArgument, output: OutputOption = None) -> None:
    """Discard dead letters that need no action.

    \b
    Examples:
      toban dead-letters discard 0192f3a4-5b6c-7d8e-9f01-23456789abcd
      toban dead-letters discard $(toban dead-letters list -w nightly -o name)
    """
    here = session(ctx, output)
    discarded: list[dead_letter_pb2.DeadLetter] = []
    with connect(here, "discard dead letters") as client:
        for letter in letters:
            with doing(f"discard dead letter {shown(letter)}"):
                discarded.append(client.discard_dead_letter(whole_id(client, "dead letter", letter)))
            # At once: it stays discarded even if the next one fails.
            if here.output is OutputFormat.TABLE:
                print(f"discarded {discarded[-1].id}", flush=True)
            elif here.output is OutputFormat.NAME:
                print(discarded[-1].id, flush=True)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(one) for one in discarded])


def letter_state(letter: dead_letter_pb2.DeadLetter) -> str:
    """The state of a dead letter."""
    from toban.v1 import dead_letter_pb2

    return enum_word(dead_letter_pb2.DeadLetterState, letter.state)


def _run(letter: dead_letter_pb2.DeadLetter, names: Mapping[str, str]) -> str:
    """The name of its run, or of the workflow if the caller may list no runs."""
    from toban.cli.render.title_text import label

    return names.get(letter.run_id) or label(letter.workflow, letter.workflow_title)


_STYLES = {"open": "red", "requeued": "green", "discarded": "dim"}


def _show(here: Session, letter: dead_letter_pb2.DeadLetter, names: Mapping[str, str]) -> None:
    from toban.cli.render.step_text import typed
    from toban.cli.render.title_text import label
    from toban.v1 import run_pb2

    resolved = clock(letter.resolved_at, absent="")
    by = f" by {letter.resolved_by}" if resolved and letter.resolved_by else ""
    run = names.get(letter.run_id, letter.run_id)
    fields(
        here,
        [
            ("dead letter", letter.id),
            ("state", letter_state(letter)),
            ("run", f"{run} ({letter.run_id})" if run != letter.run_id else run),
            ("title", letter.workflow_title),
            ("step", label(letter.step, letter.step_title)),
            ("error", letter.error_message),
            ("class", run_pb2.ErrorClass.Name(letter.error_class).removeprefix("ERROR_CLASS_")),
            ("attempts", str(letter.attempts)),
            ("created", clock(letter.created_at)),
            (letter_state(letter), f"{resolved}{by}"),
            ("requeued as", names.get(letter.requeued_as, letter.requeued_as)),
        ],
    )
    here.note(f"hint: `toban logs {run} --step {typed(letter.step)}` shows its output")
    if letter.state == _open():
        here.note(f"hint: `toban dead-letters requeue {letter.id}` retries it")


def _open() -> dead_letter_pb2.DeadLetterState.ValueType:
    from toban.v1 import dead_letter_pb2

    return dead_letter_pb2.DEAD_LETTER_STATE_OPEN
