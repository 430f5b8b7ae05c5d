"""`toban workflows`: lists, shows and manages stored workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toban.cli.args.labels import LabelOption, parse_labels
from toban.cli.args.name_arguments import NameArgument, NamesArgument, about_workflow, connect
from toban.cli.commands.schedules import note_left
from toban.cli.commands.versions import (
    FirstArgument,
    ParsedOption,
    SecondArgument,
    VersionArgument,
    list_versions,
    restore_version,
    show_difference,
    show_source,
    show_version,
    write_source,
)
from toban.cli.commands.workflows_next import next_due
from toban.cli.error_report import Failure
from toban.cli.human_text import clock, labels_text
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, report_done, take, time_column
from toban.cli.render.trigger_text import events_of, next_due_of
from toban.cli.session import (
    ForceOption,
    LimitOption,
    OutputFormat,
    OutputOption,
    Session,
    session,
    shown,
)
from toban.cli.syntax import CommandContext, Group, Option
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import workflow_pb2

app = Group(
    name="workflows",
    help="""Show and manage stored workflows.

    \b
    Examples:
      toban workflows list
      toban workflows show nightly-report
      toban workflows next nightly-report
    """,
)


@app.command("list")
def list_workflows(
    ctx: CommandContext,
    label: LabelOption = None,
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List workflows, sorted by name.

    \b
    Examples:
      toban workflows list
      toban workflows list --label team=data -o name
    """
    from toban.cli.render.reason_text import owner

    here = session(ctx, output)
    labels = parse_labels(label or [], "list workflows")
    with connect(here, "list workflows") as client:
        found, more = take(client.list_workflows(labels=labels, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[workflow_pb2.Workflow]] = [
        Column("NAME", lambda workflow: workflow.name, lambda _: "bold"),
        Column("TITLE", lambda workflow: workflow.title, folds=True),
        Column(
            "ENABLED",
            lambda workflow: "yes" if workflow.enabled else "no",
            lambda workflow: "" if workflow.enabled else "yellow",
        ),
        Column("VERSION", lambda workflow: str(workflow.version)),
        Column("OWNER", owner, folds=True),
        time_column("UPDATED", lambda workflow: workflow.updated_at, optional=True),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda workflow: str(workflow.name),
        more=more,
        empty="no workflows with these labels" if labels else "no workflows yet: `toban apply FILE` stores one",
    )


@app.command()
def show(
    ctx: CommandContext,
    name: NameArgument,
    version: Annotated[int | None, Option("--version", min=1, metavar="N", help="Show this version.")] = None,
    source: Annotated[bool, Option("--source", help="Print only the definition, unchanged.")] = False,
    output: OutputOption = None,
) -> None:
    """Show one workflow and its definition.

    \b
    Examples:
      toban workflows show nightly-report
      toban workflows show nightly-report --source > nightly.yaml
      toban workflows show nightly-report --version 2 --source
    """
    here = session(ctx, output)
    if version is not None:
        show_version(here, name, version, source=source)
        return
    what = f"show workflow {shown(name)}"
    with connect(here, what) as client, about_workflow(client, name, what):
        workflow = client.get_workflow(name)
    if source:
        write_source(workflow.definition)
    else:
        emit_one(here, workflow, name=workflow.name, show=lambda: _show(here, workflow))


@app.command()
def delete(
    ctx: CommandContext,
    names: NamesArgument,
    cancel: Annotated[bool, Option("--cancel", help="Cancel active runs first, and wait for them.")] = False,
    force: ForceOption = False,
    output: OutputOption = None,
) -> None:
    """Delete workflows; their runs and logs stay.

    \b
    Examples:
      toban workflows delete nightly-report
      toban workflows delete nightly-report --cancel
    """
    here = session(ctx, output)
    deleted: list[dict[str, str]] = []
    with connect(here, "delete workflows") as client:
        for name in names:
            try:
                with about_workflow(client, name, f"delete workflow {shown(name)}"):
                    if cancel:
                        _cancel_runs(here, client, name)
                    client.delete_workflow(name, force=force)
            except Failure as failure:
                if failure.reason == "RUN_ALREADY_ACTIVE":
                    failure.hint = "--cancel cancels its runs first"
                raise
            deleted.append({"name": name, "outcome": "deleted"})
            report_done(here, name, "deleted")
            note_left(here, client, name)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, deleted)


@app.command()
def enable(ctx: CommandContext, names: NamesArgument, output: OutputOption = None) -> None:
    """Let schedules and events start these workflows.

    \b
    Example:
      toban workflows enable nightly-report
    """
    _set_enabled(session(ctx, output), names, True)


@app.command()
def disable(ctx: CommandContext, names: NamesArgument, output: OutputOption = None) -> None:
    """Stop schedules and events from starting these workflows.

    Active runs and `toban run` are not affected. Due times are skipped, which `toban why` reports.

    \b
    Example:
      toban workflows disable nightly-report
    """
    _set_enabled(session(ctx, output), names, False)


@app.command()
def versions(
    ctx: CommandContext,
    name: NameArgument,
    limit: LimitOption = 50,
    output: OutputOption = None,
) -> None:
    """List the versions of a workflow, newest first.

    \b
    Examples:
      toban workflows versions nightly-report
      toban workflows show nightly-report --version 2
    """
    list_versions(session(ctx, output), name, limit)


@app.command()
def diff(
    ctx: CommandContext,
    name: NameArgument,
    first: FirstArgument = None,
    second: SecondArgument = None,
    parsed: ParsedOption = False,
    output: OutputOption = None,
) -> None:
    """Show how two versions of a workflow differ.

    One version is compared with the newest. A new version may have the same text, if a job that the workflow uses has
    changed: --parsed shows that.

    \b
    Examples:
      toban workflows diff nightly-report
      toban workflows diff nightly-report 2
      toban workflows diff nightly-report 2 5 --parsed
    """
    show_difference(session(ctx, output), name, first, second, parsed=parsed)


@app.command()
def restore(
    ctx: CommandContext,
    name: NameArgument,
    version: VersionArgument,
    force: ForceOption = False,
    output: OutputOption = None,
) -> None:
    """Make an old version of a workflow the current one.

    This stores a new version with the old text, which uses the current jobs.

    \b
    Example:
      toban workflows restore nightly-report 2
    """
    restore_version(session(ctx, output), name, version, force=force)


app.command("next")(next_due)


def _set_enabled(here: Session, names: list[str], enabled: bool) -> None:
    verb = "enable" if enabled else "disable"
    changed: list[workflow_pb2.Workflow] = []
    with connect(here, f"{verb} workflows") as client:
        for name in names:
            with about_workflow(client, name, f"{verb} workflow {shown(name)}"):
                changed.append(client.set_workflow_enabled(name, enabled))
            report_done(here, name, f"{verb}d")
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(workflow) for workflow in changed])


def _cancel_runs(here: Session, client: SyncClient, name: str) -> None:
    from toban.sdk import Conflict
    from toban.v1 import run_pb2

    active = (run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING)
    for run in list(client.list_runs(workflow=name, states=active)):
        try:
            client.cancel_run(run.id, reason="the workflow is being deleted")
        except Conflict as error:
            if error.reason != "RUN_ALREADY_TERMINAL":
                raise
        here.note(f"waiting until {name}#{run.number} has ended")
        client.wait_run(run.id)


def _show(here: Session, workflow: workflow_pb2.Workflow) -> None:
    from toban.cli.render.reason_text import owner

    fields(
        here,
        [
            ("name", workflow.name),
            ("title", workflow.title),
            ("description", workflow.description),
            ("labels", labels_text(workflow.labels)),
            ("enabled", "yes" if workflow.enabled else "no"),
            *(("schedule", schedule) for schedule in workflow.schedules),
            ("next due", next_due_of(workflow)),
            ("started by", events_of(workflow)),
            ("version", str(workflow.version)),
            ("owner", owner(workflow)),
            ("base directory", workflow.definition.base_dir),
            ("created", clock(workflow.created_at)),
            ("updated", clock(workflow.updated_at)),
        ],
    )
    print()
    show_source(workflow.definition)
