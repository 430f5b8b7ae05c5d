"""`toban locks`: lists locks with their holders, and frees those of ended attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.name_arguments import connect, run_id
from toban.cli.human_text import clock
from toban.cli.render.output import Column, emit_list, time_column
from toban.cli.session import OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import system_pb2

app = Group(
    name="locks",
    help="""Show which runs and steps hold locks and wait for them.

    \b
    Examples:
      toban locks list
      toban locks release db
    """,
)


@app.command("list")
def list_(ctx: CommandContext, output: OutputOption = None) -> None:
    """List the locks: sizes, holders and waiting runs and steps.

    It shows the locks of the configuration, and those that are held or waited for.

    \b
    Examples:
      toban locks list
      toban locks list -o json
    """
    here = session(ctx, output)
    with connect(here, "list the locks") as client:
        found = client.list_locks()
        names = _left_by_run(client, [each for lock in found for each in lock.leftovers], here)
    columns: list[Column[system_pb2.Lock]] = [
        Column("LOCK", lambda lock: lock.name, lambda _: "bold"),
        Column("SIZE", lambda lock: str(lock.size)),
        Column("HELD BY", lambda lock: _holders(lock, names), folds=True),
        Column("WAITING", _waiting, folds=True),
    ]
    emit_list(here, found, columns, name=lambda lock: str(lock.name), empty="no locks")


def _left_by_run(client: SyncClient, leftovers: Iterable[system_pb2.LockLeftover], here: Session) -> Mapping[str, str]:
    """Names of the runs that left processes behind, for people."""
    if here.output is not OutputFormat.TABLE:
        return {}
    from toban.cli.render.run_names import names_of
    from toban.cli.render.run_text import run_name

    return names_of(client, (each.run_id for each in leftovers), run_name)


def _holders(lock: system_pb2.Lock, names: Mapping[str, str]) -> str:
    from toban.cli.render.reason_text import lock_user

    left = (f"processes left by {_left_by(each, names)} since {clock(each.since)}" for each in lock.leftovers)
    return "; ".join([*map(lock_user, lock.holders), *left])


def _left_by(leftover: system_pb2.LockLeftover, names: Mapping[str, str]) -> str:
    run = names.get(leftover.run_id, leftover.workflow)
    return f"{run} step {leftover.step}" if leftover.step else f"{run}, which cannot be loaded,"


def _waiting(lock: system_pb2.Lock) -> str:
    from toban.cli.render.reason_text import lock_user

    names = "; ".join(map(lock_user, lock.waiting))
    more = lock.waiting_total - len(lock.waiting)
    return f"{names}; and {more} more" if more > 0 else names


@app.command()
def release(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the lock.", show_default=False)],
    run: Annotated[
        str, Option("--run", "-r", metavar="RUN", help="Only what this run left behind.", show_default=False)
    ] = "",
    output: OutputOption = None,
) -> None:
    """Free a lock that only processes of ended attempts keep held.

    Such processes could not be ended, or their supervisor was lost. Make sure first that they are gone. A lock that an
    active run or step holds stays held: cancel that run instead.

    \b
    Examples:
      toban locks release db
      toban locks release db --run nightly-report#12
    """
    here = session(ctx, output)
    with connect(here, f"release lock {shown(name)}") as client:
        released = client.release_lock(name, run_id=run_id(client, run) if run else "")
        names = _left_by_run(client, released, here)
    columns: list[Column[system_pb2.LockLeftover]] = [
        Column("WORKFLOW", lambda each: each.workflow, lambda _: "bold"),
        Column("STEP", lambda each: each.step),
        time_column("SINCE", lambda each: each.since),
        Column("RUN", lambda each: names.get(each.run_id, each.run_id), optional=True),
    ]
    empty = f"no ended attempt keeps {shown(name)} held"
    emit_list(here, released, columns, name=lambda each: str(each.run_id), empty=empty)
    if released:
        here.note(f"released {shown(name)}: {counted(len(released), 'attempt')}")
