"""`toban processes`: lists processes of all runs, and shows one with the end of its output."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.completers import job_names, run_names, step_names, workflow_names
from toban.cli.args.name_arguments import check_known, connect, run_id, whole_id
from toban.cli.args.time_options import time_option
from toban.cli.human_text import span
from toban.cli.render.output import Column, emit_list, emit_one, take, time_column
from toban.cli.session import LimitOption, OutputFormat, OutputOption, Session, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import run_pb2

app = Group(
    name="processes",
    help="""Show the processes that were started for runs.

    \b
    Examples:
      toban processes list --workflow nightly-report --state failed
      toban processes show 0192f3a4-5b6c-7d8e-9f01-23456789abcd
    """,
)


class ProcessStateOption(Enum):
    """States of processes on the command line."""

    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    LOST = "lost"


@app.command("list")
def list_processes(
    ctx: CommandContext,
    run: Annotated[
        str,
        Option(
            "--run",
            "-r",
            metavar="RUN",
            help="Only processes of this run.",
            show_default=False,
            autocompletion=run_names,
        ),
    ] = "",
    workflow: Annotated[
        str,
        Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="Only processes of this workflow.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = "",
    job: Annotated[
        str,
        Option(
            "--job",
            "-j",
            metavar="JOB",
            help="Only processes of this stored job.",
            show_default=False,
            autocompletion=job_names,
        ),
    ] = "",
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
    state: Annotated[
        list[ProcessStateOption] | None,
        Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only processes in this state: starting, running, completed, failed, timed-out, cancelled or lost; "
            "may be repeated.",
        ),
    ] = None,
    since: Annotated[
        str,
        Option(
            "--since",
            metavar="TIME",
            help="Only processes launched since then: 5m, 1h30m or a date and time.",
            show_default=False,
        ),
    ] = "",
    until: Annotated[
        str,
        Option("--until", metavar="TIME", help="Only processes launched before then.", show_default=False),
    ] = "",
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List processes, newest first.

    All options together select; `toban logs --process ID` shows the output of one process.

    \b
    Examples:
      toban processes list --state failed --since 1h
      toban processes list --job backup --limit 10
      toban processes list --run nightly-report#12 --step build.check -o json
    """
    from toban.v1 import run_pb2

    here = session(ctx, output)
    what = "list processes"
    after, before = time_option(since, "--since", what), time_option(until, "--until", what)
    with connect(here, what) as client:
        if workflow:
            check_known(client, workflow, f"{what} of {shown(workflow)}")
        found = client.list_process_executions(
            run_id=run_id(client, run) if run else "",
            step=step,
            workflow=workflow,
            job=job,
            states=[run_pb2.ProcessState.Value(f"PROCESS_STATE_{one.name}") for one in state or []],
            launched_after=after,
            launched_before=before,
            page_size=min(limit + 1, 1000),
        )
        show_list(here, client, found, limit)


@app.command()
def show(
    ctx: CommandContext,
    process: Annotated[str, Argument(metavar="ID", help="Process id.", show_default=False)],
    output: OutputOption = None,
) -> None:
    """Show one process: its command, end and last output.

    \b
    Examples:
      toban processes show 0192f3a4-5b6c-7d8e-9f01-23456789abcd
      toban processes show $(toban processes list --limit 1 -o name) -o json
    """
    from toban.cli.render.process_report import report
    from toban.cli.render.run_names import names_of

    here = session(ctx, output)
    with connect(here, f"show process {shown(process)}") as client:
        found = client.get_process_execution(whole_id(client, "process", process))
        emit_one(
            here,
            found,
            name=found.id,
            show=lambda: report(here, found, names_of(client, [found.run_id, found.child_run])),
        )


def show_list(
    here: Session,
    client: SyncClient,
    processes: Iterable[run_pb2.ProcessExecution],
    limit: int,
    *,
    of_run: bool = False,
) -> None:
    """Writes a list of processes: `of_run`, all of one run."""
    from toban.cli.render.process_text import (
        attempt_text,
        exit_text,
        output_text,
        process_note,
        process_state,
        process_style,
    )
    from toban.cli.render.resource_text import cpu, memory
    from toban.cli.render.title_text import title_column

    found, more = take(processes, limit)
    now = datetime.now(UTC)
    columns: list[Column[run_pb2.ProcessExecution]] = [
        Column("STEP", lambda process: process.step, lambda _: "bold"),
        *title_column(found, lambda process: process.step, lambda process: process.step_title),
        Column("ATTEMPT", attempt_text),
        Column("STATE", process_state, process_style),
        Column("EXIT", exit_text),
        Column("PID", lambda process: str(process.pid or "-"), optional=True),
        time_column("STARTED", lambda process: process.started_at),
        Column("TOOK", lambda process: span(process.started_at, process.finished_at, now)),
        Column("CPU", cpu, optional=True),
        Column("MEMORY", memory, optional=True),
        Column("OUTPUT", output_text, optional=True),
        Column("NOTE", process_note, folds=True),
        Column("ID", lambda process: process.id, optional=True),
    ]
    if not of_run:
        names = {}
        if here.output is OutputFormat.TABLE:
            from toban.cli.render.run_names import names_of
            from toban.cli.render.run_text import run_name

            names = names_of(client, (process.run_id for process in found), run_name)
        columns.insert(0, Column("RUN", lambda process: names.get(process.run_id, process.workflow), lambda _: "bold"))
    emit_list(here, found, columns, name=lambda process: str(process.id), more=more, empty="no processes")
