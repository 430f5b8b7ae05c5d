"""Waits for the end of all runs that an event started."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import typer

from toban.cli.error_report import doing
from toban.cli.exits import Exit
from toban.cli.render.event_words import came_of_it, started
from toban.cli.render.output import emit_data, to_dict
from toban.cli.render.state_words import run_exit
from toban.cli.session import Output, Session, complain
from toban.cli.wait.run_follower import tell_end
from toban.v1 import event_pb2

if TYPE_CHECKING:
    from toban.sdk import Client
    from toban.v1 import run_pb2

# Of several runs that did not succeed, this is how the command ends.
_WORST_FIRST: Final = (
    Exit.INTERNAL,
    Exit.RUN_FAILED,
    Exit.RUN_TIMED_OUT,
    Exit.RUN_CANCELLED,
)
# An event may start many runs; each watched one is a stream.
_WATCHED_AT_ONCE: Final = 16


def until_ended(here: Session, event: event_pb2.Event, *, created: bool) -> Exit:
    """Waits for the end of all of its runs and tells how each ended. Ctrl-C only detaches."""
    try:
        with doing(f"wait for the runs of event {event.id}"):
            code, answer = asyncio.run(_ended(here, event))
    except KeyboardInterrupt:
        complain(f"toban: detached; what event {event.id} started goes on")
        complain(f"hint: `toban events show {event.id}` shows how it does")
        raise typer.Exit(Exit.DETACHED) from None
    except BrokenPipeError:
        # Nobody reads any more: the runs go on, and their results are not known.
        raise typer.Exit(Exit.DETACHED) from None
    if here.output in (Output.JSON, Output.YAML):
        told = {"created": created, "all_ended": answer.all_ended}
        emit_data(here, {**to_dict(answer.event), **told})
    return code


async def _ended(here: Session, event: event_pb2.Event) -> tuple[Exit, event_pb2.GetEventResponse]:
    async with here.async_client() as client:
        event = await _resolved(here, client, event)
        turn = asyncio.Semaphore(_WATCHED_AT_ONCE)
        codes: set[Exit] = set()

        async def watch(run_id: str) -> None:
            async with turn:
                run = await _end_of(client, run_id)
            if run is None:
                here.warn(f"run {run_id} is not kept any more: how it ended is not known")
            else:
                tell_end(here, run)
                codes.add(run_exit(run))

        try:
            async with asyncio.TaskGroup() as tasks:
                for each in started(event):
                    tasks.create_task(watch(each.run_id))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        answer = await client.get_event(event.id)
    return next((code for code in _WORST_FIRST if code in codes), Exit.DONE), answer


async def _resolved(here: Session, client: Client, event: event_pb2.Event) -> event_pb2.Event:
    if event.state != event_pb2.EVENT_STATE_PENDING:
        return event
    here.note(came_of_it(event))
    changes = client.watch_events(types=[event.type], after_sequence=event.sequence - 1)
    async with aclosing(changes):
        async for change in changes:
            if change.event.id == event.id:
                here.note(came_of_it(change.event))
                return change.event
    return event


async def _end_of(client: Client, run_id: str) -> run_pb2.Run | None:
    from toban.sdk import NotFound

    try:
        return await client.wait_run(run_id)
    except NotFound:
        return None
