"""`toban runs`: lists, shows and watches runs. runs_control, runs_retry and runs_artifacts have the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import step_names
from toban.cli.args.labels import LabelOption, parse_labels
from toban.cli.args.name_arguments import RunArgument, check_known, connect, run_id
from toban.cli.args.param_options import parse_pairs
from toban.cli.args.run_filter import (
    ACTIVE,
    FAILED,
    FailedFilter,
    SinceFilter,
    StateFilter,
    UntilFilter,
    WorkflowFilter,
)
from toban.cli.args.time_options import time_option
from toban.cli.commands import runs_artifacts, runs_control, runs_retry
from toban.cli.human_text import labels_text, span
from toban.cli.render.output import Column, emit_list, emit_one, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, is_terminal, session, shown
from toban.cli.syntax import CommandContext, ExitCommand, Group, Option

if TYPE_CHECKING:
    from toban.v1 import run_pb2

app = Group(
    name="runs",
    help="""Show and control runs.

    \b
    Examples:
      toban runs list --state failed
      toban runs show nightly-report
    """,
)


@app.command("list")
def list_runs(
    ctx: CommandContext,
    workflow: WorkflowFilter = "",
    state: StateFilter = None,
    active: Annotated[bool, Option("--active", help="Only runs that have not ended, with their steps.")] = False,
    failed: FailedFilter = False,
    since: SinceFilter = "",
    until: UntilFilter = "",
    label: LabelOption = None,
    param: Annotated[
        list[str] | None,
        Option("--param", "-p", metavar="KEY=VALUE", help="Only runs with this parameter; may be repeated."),
    ] = None,
    text: Annotated[
        str,
        Option(
            "--text",
            metavar="TEXT",
            help="Only runs with this text in their name, error, labels or parameters.",
            show_default=False,
        ),
    ] = "",
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List runs, newest first.

    --text and --param examine the runs one by one, newest first; the other options use indexes.

    \b
    Examples:
      toban runs list
      toban runs list --workflow nightly-report --state failed --limit 10
      toban runs list --failed --since 1d
      toban runs list --state running -o name
      toban runs list --label ticket=OPS-17 --param day=monday
      toban runs list --text 'no space left' --limit 5
    """
    from toban.cli.render.run_text import run_event, run_name, run_state, run_style
    from toban.cli.render.title_text import title_column
    from toban.v1 import run_pb2

    here = session(ctx, output)
    wanted = [*(state or []), *(FAILED if failed else ()), *(ACTIVE if active else ())]
    states = [run_pb2.RunState.Value(f"RUN_STATE_{one.name}") for one in wanted]
    what = f"list runs of {shown(workflow)}" if workflow else "list runs"
    after, before = time_option(since, "--since", what), time_option(until, "--until", what)
    with connect(here, what) as client:
        found, more = take(
            client.list_runs(
                workflow=workflow,
                states=states,
                labels=parse_labels(label or [], what),
                params=parse_pairs(param or []),
                text=text,
                created_after=after,
                created_before=before,
                page_size=min(limit + 1, 1000),
            ),
            limit,
        )
        if workflow and not found:
            check_known(client, workflow, what)
    now = datetime.now(UTC)
    columns: list[Column[run_pb2.Run]] = [
        Column("RUN", run_name, lambda _: "bold"),
        *title_column(found, lambda run: run.workflow, lambda run: run.workflow_title),
        Column("STATE", run_state, run_style, folds=True),
        Column("STEPS", lambda run: f"{run.steps_ended}/{run.steps_total}"),
        time_column("CREATED", lambda run: run.created_at),
        Column("TOOK", lambda run: span(run.started_at, run.finished_at, now)),
        Column("ID", lambda run: run.id, optional=True),
    ]
    if active:
        columns.insert(-3, Column("STEP", lambda run: run.current_step or "-", folds=True))
    if any(run.HasField("scheduled_at") for run in found):
        columns.insert(-1, time_column("DUE", lambda run: run.scheduled_at, optional=True))
    if any(run.event_type for run in found):
        columns.insert(-1, Column("EVENT", run_event, optional=True))
    if any(run.labels for run in found):
        columns.insert(-1, Column("LABELS", lambda run: labels_text(run.labels), folds=True, optional=True))
    if any(run.HasField("pin") for run in found):
        columns.insert(-1, time_column("PINNED", lambda run: run.pin.at, optional=True))
    empty = "no active runs" if active else "no runs"
    emit_list(here, found, columns, name=lambda run: str(run.id), more=more, empty=empty)


@app.command()
def show(
    ctx: CommandContext,
    run: RunArgument,
    all_steps: Annotated[
        bool,
        Option("--all-steps", help="Show every step and every instance of it, even many."),
    ] = False,
    tree: Annotated[
        bool | None,
        Option("--tree/--no-tree", help="Show the steps as a tree or as a table (default: a tree on a terminal)."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show one run: its steps, resource use and failures.

    On a terminal the steps are a tree: branches are indented below the step where they begin, and bars show when each
    step ran. The last log lines of failed steps follow. Instances of a for_each step are listed below it; of many
    instances, only failed and running ones, and a count of the others.

    \b
    Examples:
      toban runs show nightly-report
      toban runs show nightly-report#12 --all-steps
      toban runs show nightly-report --no-tree
      toban runs show 0192f3a4-5b6c-7d8e-9f01-23456789abcd -o json
    """
    from toban.cli.render.run_report import gather, report

    here = session(ctx, output)
    as_tree = is_terminal() if tree is None else tree
    with connect(here, f"show run {shown(run)}") as client:
        found = client.get_run(run_id(client, run))
        emit_one(
            here,
            found,
            name=found.id,
            show=lambda: report(here, gather(client, found), all_steps=all_steps, as_tree=as_tree),
        )


@app.command()
def watch(ctx: CommandContext, run: RunArgument, output: OutputOption = None) -> None:
    """Show each change of a run until it has ended.

    On a terminal the tree of `toban runs show` is rewritten in place. Exit codes are those of `toban run --wait`. With
    -o json each change is an object on its own line.

    \b
    Examples:
      toban runs watch nightly-report
      toban runs watch nightly-report -o json | jq .run.state
    """
    from toban.cli.render.run_text import run_name
    from toban.cli.wait.run_follower import until_end, view_for_watch
    from toban.cli.wait.run_views import JsonLines, View

    here = session(ctx, output)
    with connect(here, f"watch run {shown(run)}") as client:
        found = client.get_run(run_id(client, run))
        match here.output:
            case OutputFormat.TABLE:
                view: View = view_for_watch(here)
            case OutputFormat.NAME:
                print(found.id, flush=True)
                view = View()
            case _:
                view = JsonLines()
        raise ExitCommand(until_end(here, client, found.id, view, name=run_name(found)))


@app.command()
def processes(
    ctx: CommandContext,
    run: RunArgument,
    step: Annotated[
        str,
        Option(
            "--step",
            "-S",
            metavar="STEP",
            help="Only processes of this step, instance or check.",
            show_default=False,
            autocompletion=step_names,
        ),
    ] = "",
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List the processes of a run, newest first.

    \b
    Examples:
      toban runs processes nightly-report
      toban runs processes nightly-report#12 --step fetch -o json
      toban runs processes nightly-report --step build.check
    """
    from toban.cli.commands.processes import show_list

    here = session(ctx, output)
    with connect(here, f"list the processes of {shown(run)}") as client:
        found = client.list_process_executions(run_id=run_id(client, run), step=step, page_size=min(limit + 1, 1000))
        show_list(here, client, found, limit, of_run=True)


app.command()(runs_control.cancel)
app.command()(runs_retry.retry)
app.command()(runs_control.pause)
app.command()(runs_control.resume)
app.command()(runs_control.approve)
app.command()(runs_artifacts.artifacts)
app.command()(runs_control.pin)
app.command()(runs_control.unpin)
app.command()(runs_control.delete)
