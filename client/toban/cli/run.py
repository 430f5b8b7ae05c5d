"""`toban run`: starts a run, and waits for it if asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toban.cli.exits import Exit
from toban.cli.failures import Failure
from toban.cli.names import NameArgument, about_workflow, connect
from toban.cli.output import emit_one
from toban.cli.params import parse_pairs, read_file
from toban.cli.session import Output, OutputOption, session, shown

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2


def run(
    ctx: typer.Context,
    name: NameArgument,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="KEY=VALUE", help="A parameter; may be repeated."),
    ] = None,
    params_file: Annotated[
        str,
        typer.Option(
            "--params-file",
            metavar="FILE",
            help="Parameters in YAML or JSON; - is standard input. -p wins over it.",
            show_default=False,
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the end and exit by the result.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show steps and output until the end.")
    ] = False,
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id",
            metavar="ID",
            help="Makes a repeat harmless: the same id starts one run.",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Start a run of a workflow.

    Parameters get the types that the workflow declares: lists and mappings are written as JSON.
    With --wait or --follow the exit code is 0 if the run succeeded, 1 if it failed, 124 if it timed out and
    130 if it was cancelled. Ctrl-C then only detaches (131): the run goes on.

    \b
    Examples:
      toban run nightly-report
      toban run nightly-report -p day=monday -p 'regions=["eu", "us"]' --follow
      toban run nightly-report --params-file params.yaml --wait -o json
      id=$(toban run nightly-report -o name)
    """
    here = session(ctx, output)
    if wait and follow:
        raise Failure("cannot both --wait and --follow: choose one", Exit.USAGE)
    pairs = parse_pairs(param or [])
    values = read_file(params_file) if params_file else {}
    what = f"start a run of {shown(name)}"
    with connect(here, what) as client, about_workflow(client, name, what):
        started = _start(client, name, values | pairs, request_id)
        here = here.at(client.address)
    if wait or follow:
        from toban.cli.follow import until_end, view_for_follow
        from toban.cli.views import View

        short = f"{name}#{started.number}"
        if here.output is Output.NAME:
            print(started.id, flush=True)
        else:
            here.note(f"started {short} ({started.id})")
        view = view_for_follow(here) if follow else View()
        raise typer.Exit(until_end(here, started.id, view, name=short))
    emit_one(
        here,
        started,
        name=started.id,
        show=lambda: print(f"started {name}#{started.number} ({started.id})"),
    )


def _start(
    client: SyncClient, name: str, values: dict[str, object], request_id: str
) -> run_pb2.Run:
    from toban.v1 import run_pb2

    return client.start_run(
        name, values, triggered_by=run_pb2.TRIGGER_MANUAL, request_id=request_id or None
    )
