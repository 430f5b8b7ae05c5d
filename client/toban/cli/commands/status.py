"""`toban status`: the daemon, its workflows and the runs that failed lately, on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.completers import workflow_names
from toban.cli.args.labels import LabelOption, parse_labels
from toban.cli.args.name_arguments import connect
from toban.cli.render.message_data import to_dict
from toban.cli.render.output import emit_data, take
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import Argument, CommandContext, Option

if TYPE_CHECKING:
    from toban.cli.render.status_report import Status
    from toban.sdk import SyncClient

_FAILURES: Final = 10


def status(
    ctx: CommandContext,
    name: Annotated[
        str,
        Argument(
            metavar="[TEXT]",
            help="Only workflows and jobs with this text in their name or title.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = "",
    label: LabelOption = None,
    limit: Annotated[int, Option("--limit", min=1, max=1000, metavar="N", help="Show at most N workflows.")] = 50,
    watch: Annotated[bool, Option("--watch", help="Show it again and again, until q or Ctrl-C.")] = False,
    interval: Annotated[
        float, Option("--interval", min=0.2, metavar="SECONDS", help="Time between two pictures of --watch.")
    ] = 2.0,
    output: OutputOption = None,
) -> None:
    """Show the daemon, every workflow, and what failed lately.

    Each workflow has its last run, with its age, how many of its last 20 runs succeeded, its next due time, and its
    running and waiting runs. If there are more workflows than the limit, those that matter most are shown: with active
    runs, with runs that failed in the last day, and by next due time.

    \b
    Examples:
      toban status
      toban status --watch
      toban status nightly --label team=data
      toban status -o json
    """
    from toban.cli.render.status_report import report_status

    here = session(ctx, output)
    labels = parse_labels(label or [], "show the status")
    with connect(here, "show the status") as client:
        if not watch:
            _emit(here, _gather(client, name, labels, limit))
            return
        from toban.cli.wait.screen import repeat

        repeat(lambda: report_status(here, _gather(client, name, labels, limit)), interval)


def _gather(client: SyncClient, name: str, labels: dict[str, str], limit: int) -> Status:
    from toban.cli.render.status_report import Status

    chosen = bool(name or labels)
    info = client.get_info()
    overview = client.get_overview(max_workflows=1 if chosen else limit, max_failures=_FAILURES)
    if chosen:
        del overview.summaries[:]
        size = min(limit + 1, 1000)
        found, more = take(client.list_workflow_summaries(labels=labels, text=name, page_size=size), limit)
        return Status(info=info, overview=overview, summaries=found, chosen=True, more=more)
    summaries = list(overview.summaries)
    more = len(summaries) >= limit and overview.workflow_count > limit
    if not more:
        summaries.sort(key=lambda each: each.name)
    return Status(info=info, overview=overview, summaries=summaries, chosen=False, more=more)


def _emit(here: Session, found: Status) -> None:
    from toban.cli.render.status_report import report_status

    match here.output:
        case OutputFormat.TABLE:
            report_status(here, found)
        case OutputFormat.NAME:
            for each in found.summaries:
                print(each.name)
        case _:
            overview = to_dict(found.overview) | {"summaries": [to_dict(each) for each in found.summaries]}
            emit_data(here, {"daemon": to_dict(found.info)} | overview)
