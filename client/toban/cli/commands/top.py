"""`toban top`: running steps by their use of CPU and memory, with slots and queues, again and again."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.name_arguments import connect
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import CommandContext, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.cli.render.top_report import Load
    from toban.sdk import SyncClient

# Running processes that are compared.
_MOST: Final = 1000


def top(
    ctx: CommandContext,
    once: Annotated[bool, Option("--once", help="Show it once and exit, also on a terminal.")] = False,
    interval: Annotated[
        float, Option("--interval", min=0.2, metavar="SECONDS", help="Time between two pictures.")
    ] = 2.0,
    limit: Annotated[int, Option("--limit", min=1, max=1000, metavar="N", help="Show at most N steps.")] = 30,
    output: OutputOption = None,
) -> None:
    """Show the live use of CPU and memory, by steps and the daemon.

    The daemon measures itself and every running step about once a second. Ends with q or Ctrl-C. Other formats than the
    table show one picture.

    \b
    Examples:
      toban top
      toban top --interval 5
      toban top --once -o json
    """
    from toban.cli.render.top_report import report_load

    here = session(ctx, output)
    with connect(here, "show the load") as client:
        if once or here.output is not OutputFormat.TABLE:
            _emit(here, _gather(client), limit)
            return
        from toban.cli.wait.screen import repeat

        repeat(lambda: report_load(here, _gather(client), limit), interval)


def _gather(client: SyncClient) -> Load:
    from toban.cli.render.top_report import Load, cores, resident
    from toban.v1 import run_pb2

    running = islice(
        client.list_process_executions(states=[run_pb2.PROCESS_STATE_RUNNING], page_size=_MOST),
        _MOST,
    )
    return Load(
        info=client.get_info(),
        overview=client.get_overview(max_workflows=1, max_failures=1),
        processes=sorted(running, key=lambda each: (-cores(each), -resident(each), each.id)),
    )


def _emit(here: Session, load: Load, limit: int) -> None:
    from toban.cli.render.top_report import report_load

    match here.output:
        case OutputFormat.TABLE:
            report_load(here, load, limit)
        case OutputFormat.NAME:
            for each in load.processes[:limit]:
                print(each.id)
        case _:
            totals = {"running_runs": load.overview.running, "waiting_runs": load.overview.waiting}
            processes = [to_dict(each) for each in load.processes[:limit]]
            emit_data(here, {"daemon": to_dict(load.info)} | totals | {"process_executions": processes})
