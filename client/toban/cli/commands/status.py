"""`toban status`: the daemon, its workflows and the runs that failed lately, on one screen."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from toban.cli.args.completers import workflow_names
from toban.cli.args.labels import LabelOption, parse_labels
from toban.cli.args.name_arguments import connect
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import Argument, CommandContext, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.cli.render.status_report import Status
    from toban.cli.wait.status_feed import StatusReader
    from toban.sdk import Client, SyncClient

_FAILURES: Final = 10
# Seconds after which ages and waiting times are drawn again.
_AGES: Final = 1.0
# Seconds that a daemon may take to answer without a remark.
_SILENCE: Final = 2.0


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
    watch: Annotated[
        bool, Option("--watch", help="Show it again when a run changes, until q or Ctrl-C.", show_default=False)
    ] = False,
    interval: Annotated[
        float,
        Option("--interval", min=0.2, metavar="SECONDS", help="With --watch: read everything but runs this often."),
    ] = 5.0,
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
    here = session(ctx, output)
    labels = parse_labels(label or [], "show the status")
    read = partial(_gather, name=name, labels=labels, limit=limit)
    with connect(here, "show the status") as client:
        first = client.run_async(read)
        if watch:
            _watch(here, client, read, first, interval)
        else:
            _emit(here, first)


def _watch(here: Session, client: SyncClient, read: StatusReader, first: Status, interval: float) -> None:
    from toban.cli.render.output import emit_line, paint
    from toban.cli.wait.screen import repeat, repeat_lines
    from toban.cli.wait.status_feed import StatusFeed

    feed = StatusFeed(read, first, interval)

    def draw() -> None:
        if (silence := feed.unanswered_for()) > _SILENCE:
            print(paint(here, f"no answer from the daemon for {silence:.0f} s, trying again", "yellow"))
        _emit(here, feed.latest())

    feed.start(client)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        repeat_lines(lambda: emit_line(_data(feed.latest())), interval, feed.news)
    elif here.output is OutputFormat.NAME:
        repeat_lines(draw, interval, feed.news)
    else:
        repeat(draw, _AGES, feed.news)


async def _gather(client: Client, name: str, labels: dict[str, str], limit: int) -> Status:
    from toban.cli.render.status_report import Status

    chosen = bool(name or labels)
    info = await client.get_info()
    overview = await client.get_overview(max_workflows=1 if chosen else limit, max_failures=_FAILURES)
    if chosen:
        del overview.summaries[:]
        size = min(limit + 1, 1000)
        found = []
        async with aclosing(client.list_workflow_summaries(labels=labels, text=name, page_size=size)) as summaries:
            async for each in summaries:
                found.append(each)
                if len(found) > limit:
                    break
        return Status(info=info, overview=overview, summaries=found[:limit], chosen=True, more=len(found) > limit)
    summaries_of_all = list(overview.summaries)
    more = len(summaries_of_all) >= limit and overview.workflow_count > limit
    if not more:
        summaries_of_all.sort(key=lambda each: each.name)
    return Status(info=info, overview=overview, summaries=summaries_of_all, chosen=False, more=more)


def _emit(here: Session, found: Status) -> None:
    match here.output:
        case OutputFormat.TABLE:
            from toban.cli.render.status_report import report_status

            report_status(here, found)
        case OutputFormat.NAME:
            for each in found.summaries:
                print(each.name)
        case _:
            emit_data(here, _data(found))


def _data(found: Status) -> dict[str, Any]:
    overview = to_dict(found.overview) | {"summaries": [to_dict(each) for each in found.summaries]}
    return {"daemon": to_dict(found.info)} | overview
