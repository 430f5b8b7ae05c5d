"""Follows a run to its end: live on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toban.cli.error_report import doing
from toban.cli.exits import Exit
from toban.cli.human_text import clock, one_line, span
from toban.cli.render.log_lines import Prefixer
from toban.cli.render.output import emit_data, paint
from toban.cli.render.run_names import NAMED_AT_ONCE
from toban.cli.render.run_text import run_error, run_exit, run_label, run_name, run_state, run_style, shortfall
from toban.cli.session import OutputFormat, Session, complain, is_terminal
from toban.cli.syntax import ExitCommand
from toban.cli.wait.run_views import ChangeLines, JsonLines, PlainOutput, Tracker, View
from toban.message_json.message_data import to_dict
from toban.v1 import run_pb2

if TYPE_CHECKING:
    from toban.sdk import Client, SyncClient


def view_for_follow(here: Session) -> View:
    """The view for `--follow`."""
    match here.output:
        case OutputFormat.JSON | OutputFormat.YAML:
            return JsonLines()
        case OutputFormat.NAME:
            return View()
        case OutputFormat.TABLE if _can_redraw():
            from toban.cli.wait.live_view import LiveView

            return LiveView(here)
        case _:
            return PlainOutput(here)


def view_for_watch(here: Session) -> View:
    """The view for people in `runs watch`."""
    if _can_redraw():
        from toban.cli.wait.live_view import LiveTree

        return LiveTree(here)
    return ChangeLines(here)


def _can_redraw() -> bool:
    return is_terminal() and os.environ.get("TERM", "dumb") != "dumb"


def until_end(here: Session, client: SyncClient, run_id: str, view: View, *, name: str) -> Exit:
    """Shows a run until it has ended, reports the result and returns its exit code. Ctrl-C only detaches."""
    try:
        with doing(f"watch run {name}"):
            with view:
                run = client.run_async(lambda client: _follow(here, client, run_id, view))
            if here.output in (OutputFormat.JSON, OutputFormat.YAML) and not isinstance(view, JsonLines):
                # A change omits large values.
                emit_data(here, to_dict(client.get_run(run_id)))
    except KeyboardInterrupt:
        complain(f"toban: detached; run {name} continues")
        complain(f"hint: `toban runs watch {name}` waits for it, `toban logs -f {name}` shows its output")
        raise ExitCommand(Exit.DETACHED) from None
    except BrokenPipeError:
        # The reader is gone; the run continues, so its result is unknown.
        raise ExitCommand(Exit.DETACHED) from None
    report_end(here, run)
    return run_exit(run)


def report_end(here: Session, run: run_pb2.Run) -> None:
    """Reports how a run ended, with a hint if it did not succeed."""
    if here.output is OutputFormat.TABLE:
        print(_ending(here, run), flush=True)
    if missing := shortfall(run):
        here.warn(f"{run_label(run)} succeeded, but {missing}")
    elif run.state != run_pb2.RUN_STATE_SUCCEEDED:
        here.note(f"hint: `toban runs show {run_name(run)}` shows what happened")


async def watch(client: Client, run_id: str, view: View) -> run_pb2.Run:
    """Passes each change of a run to the view; returns the run as of its last change."""
    tracker = Tracker()
    async with aclosing(client.watch_run(run_id)) as changes:
        async for change in changes:
            moved = tracker.take(change)
            if view.names:
                await _learn_names(client, tracker, change.run.steps)
            view.changed(tracker, change, moved)
    return tracker.run


async def _learn_names(client: Client, tracker: Tracker, steps: Iterable[run_pb2.Step]) -> None:
    """Asks for the names of runs that the steps refer to for the first time."""
    from toban.sdk import Refused, TobanError

    referred = (run_id for step in steps for run_id in (step.child_run, step.source_run))
    unknown = [run_id for run_id in dict.fromkeys(referred) if run_id and run_id not in tracker.names]
    if not unknown:
        return
    names = {run_id: run_id for run_id in unknown}
    try:
        async for run in client.list_runs(ids=unknown[:NAMED_AT_ONCE], page_size=NAMED_AT_ONCE):
            names[run.id] = run_name(run)
    except Refused:
        # A step may list no runs.
        pass
    except TobanError:
        # Asked again with the next change: the stream goes on when the daemon is back.
        return
    tracker.names |= names


async def _follow(here: Session, client: Client, run_id: str, view: View) -> run_pb2.Run:
    try:
        async with asyncio.TaskGroup() as tasks:
            watched = tasks.create_task(watch(client, run_id, view))
            if view.logs:
                tasks.create_task(_copy_logs(here, client, run_id, view))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return watched.result()


async def _copy_logs(here: Session, client: Client, run_id: str, view: View) -> None:
    from toban.sdk import NotFound

    lines = Prefixer(steps=True, timestamps=False, color=here.color, terminal=is_terminal())
    try:
        async with aclosing(client.stream_logs(run_id, follow=True)) as messages:
            async for message in messages:
                if message.HasField("chunk"):
                    view.wrote(lines.feed(message.chunk))
    except NotFound as error:
        here.warn(f"cannot show the output of the run: {error.message}")
    view.wrote(lines.finish())


def _ending(here: Session, run: run_pb2.Run) -> str:
    """The last line: how the run ended."""
    state = paint(here, run_state(run), run_style(run))
    text = f"{run_label(run)} {state}"
    if run.HasField("started_at"):
        text += f" after {span(run.started_at, run.finished_at, datetime.now(UTC))}"
    else:
        text += f" at {clock(run.finished_at)}"
    error = run_error(run)
    return f"{text}: {one_line(error)}" if error else text
