"""Reports a run that a command started, and waits for it with `--wait` or `--follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import one_line
from toban.cli.render.output import emit_one
from toban.cli.session import OutputFormat, Session
from toban.cli.syntax import ExitCommand, Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

WaitOption = Annotated[bool, Option("--wait", "-W", help="Wait for the run; the exit code is its result.")]

FollowOption = Annotated[bool, Option("--follow", "-f", help="Show steps and output until the run has ended.")]

RequestIdOption = Annotated[
    str,
    Option(
        "--request-id",
        metavar="ID",
        help="Idempotency key: repeating the call with it starts one run.",
        show_default=False,
    ),
]


def check_waiting(wait: bool, follow: bool) -> None:
    """Raises Failure if both are set."""
    if wait and follow:
        raise Failure("cannot use --wait with --follow: choose one", Exit.USAGE)


def scope_remark(run: run_pb2.Run) -> str:
    """Says that a run without a selection uses the scope `full` of its definition."""
    return f"with the steps of its scope {run.definition_scope}" if run.definition_scope else ""


def started(here: Session, client: SyncClient, run: run_pb2.Run, *, wait: bool, follow: bool, remark: str = "") -> None:
    """Reports a started run. With `wait` or `follow` the command exits with the run's result."""
    short = f"{run.workflow}#{run.number}"
    told = f"started {short} ({run.id})"
    if run.workflow_title not in ("", run.workflow):
        told = f"{told}: {one_line(run.workflow_title)}"
    if remark:
        told = f"{told} {remark}"
    if not (wait or follow):
        emit_one(here, run, name=run.id, show=lambda: print(told))
        return
    from toban.cli.wait.run_follower import until_end, view_for_follow
    from toban.cli.wait.run_views import View

    if here.output is OutputFormat.NAME:
        print(run.id, flush=True)
    else:
        here.note(told)
    view = view_for_follow(here) if follow else View()
    raise ExitCommand(until_end(here, client, run.id, view, name=short))
