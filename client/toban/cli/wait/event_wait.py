"""Waits until all runs that an event started have ended."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from toban.cli.error_report import doing
from toban.cli.exits import Exit
from toban.cli.render.event_text import event_outcome
from toban.cli.render.output import emit_data
from toban.cli.render.run_text import run_exit
from toban.cli.session import OutputFormat, Session, complain
from toban.cli.syntax import ExitCommand
from toban.cli.wait.run_follower import report_end, watch
from toban.cli.wait.run_views import View
from toban.message_json.message_data import to_dict
from toban.v1 import event_pb2, workflow_pb2

if TYPE_CHECKING:
    from toban.sdk import Client, SyncClient

# The exit code for several runs: the first of these that occurred.
_WORST_FIRST: Final = (
    Exit.INTERNAL,
    Exit.RUN_FAILED,
    Exit.RUN_TIMED_OUT,
    Exit.RUN_CANCELLED,
)
# An event may start many runs; watching one takes a stream.
_WATCHED_AT_ONCE: Final = 16
# Between two looks at an event that waits for more.
_LONGEST_PAUSE: Final = 2.0


def until_ended(here: Session, client: SyncClient, event: event_pb2.Event, *, created: bool) -> Exit:
    """Waits until all runs of an event have ended, and reports how each did. Ctrl-C only detaches."""
    try:
        with doing(f"wait for the runs of event {event.id}"):
            code = client.run_async(lambda client: _ended(here, client, event))
            if here.output in (OutputFormat.JSON, OutputFormat.YAML):
                answer = client.get_event(event.id)
                emit_data(here, {**to_dict(answer.event), "created": created, "all_ended": answer.all_ended})
    except KeyboardInterrupt:
        complain(f"toban: detached; the runs of event {event.id} continue")
        complain(f"hint: `toban events show {event.id}` shows their states")
        raise ExitCommand(Exit.DETACHED) from None
    except BrokenPipeError:
        # The reader is gone; the runs continue, so their results are unknown.
        raise ExitCommand(Exit.DETACHED) from None
    return code


async def _ended(here: Session, client: Client, event: event_pb2.Event) -> Exit:
    event = await _resolved(here, client, event)
    runs = [run_id for line in event.runs if (run_id := await _run_of(client, event.id, line))]
    turn = asyncio.Semaphore(_WATCHED_AT_ONCE)
    codes: set[Exit] = set()

    async def follow(run_id: str) -> None:
        from toban.sdk import NotFound

        try:
            async with turn:
                run = await watch(client, run_id, View())
        except NotFound:
            here.warn(f"run {run_id} was deleted: its result is unknown")
        else:
            report_end(here, run)
            codes.add(run_exit(run))

    try:
        async with asyncio.TaskGroup() as tasks:
            for run_id in runs:
                tasks.create_task(follow(run_id))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return next((code for code in _WORST_FIRST if code in codes), Exit.DONE)


async def _run_of(client: Client, event_id: str, line: event_pb2.EventRun) -> str:
    """The run that the event started there, or that the last event of its burst did; empty if there is none."""
    pause = 0.1
    while line.reason == workflow_pb2.NOT_STARTED_REASON_DEBOUNCED:
        if line.later_event_id:
            event_id = line.later_event_id
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        found = await client.get_event(event_id)
        line = next((each for each in found.event.runs if each.workflow == line.workflow), event_pb2.EventRun())
    return line.run_id


async def _resolved(here: Session, client: Client, event: event_pb2.Event) -> event_pb2.Event:
    if event.state != event_pb2.EVENT_STATE_PENDING:
        return event
    here.note(event_outcome(event))
    changes = client.watch_events(types=[event.type], after_sequence=event.sequence - 1)
    async with aclosing(changes):
        async for change in changes:
            if change.event.id == event.id:
                here.note(event_outcome(change.event))
                return change.event
    return event
