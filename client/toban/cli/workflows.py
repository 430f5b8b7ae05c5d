"""`toban workflows`: what is stored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toban.cli.exits import Exit
from toban.cli.failures import Failure
from toban.cli.names import NameArgument, NamesArgument, about_workflow, connect
from toban.cli.output import (
    Column,
    emit_data,
    emit_list,
    emit_one,
    fields,
    flush_bytes,
    take,
    to_dict,
    write_bytes,
)
from toban.cli.session import LimitOption, Output, OutputOption, Session, session, shown
from toban.cli.text import clock

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import workflow_pb2

app = typer.Typer(
    name="workflows",
    help="""Show and manage stored workflows.

    \b
    Examples:
      toban workflows list
      toban workflows show nightly-report
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_workflows(
    ctx: typer.Context,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only those with this label."),
    ] = None,
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List workflows in order of name.

    \b
    Examples:
      toban workflows list
      toban workflows list --label team=data -o name
    """
    here = session(ctx, output)
    labels = _labels(label or [])
    with connect(here, "list workflows") as client:
        found, more = take(
            client.list_workflows(labels=labels, page_size=min(limit + 1, 1000)), limit
        )
    columns: list[Column[workflow_pb2.Workflow]] = [
        Column("NAME", lambda workflow: workflow.name, lambda _: "bold"),
        Column("TITLE", lambda workflow: workflow.title, folds=True),
        Column(
            "ENABLED",
            lambda workflow: "yes" if workflow.enabled else "no",
            lambda workflow: "" if workflow.enabled else "yellow",
        ),
        Column("VERSION", lambda workflow: str(workflow.version)),
        Column("OWNER", lambda workflow: workflow.owner, folds=True),
        Column("UPDATED", lambda workflow: clock(workflow.updated_at), optional=True),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda workflow: str(workflow.name),
        more=more,
        empty="no workflows with these labels"
        if labels
        else "no workflows yet: `toban apply FILE` stores one",
    )


@app.command()
def show(
    ctx: typer.Context,
    name: NameArgument,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Show this version.")
    ] = None,
    source: Annotated[
        bool, typer.Option("--source", help="Only the definition, exactly as it was written.")
    ] = False,
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
        _show_version(here, name, version, source=source)
        return
    what = f"show workflow {shown(name)}"
    with connect(here, what) as client, about_workflow(client, name, what):
        workflow = client.get_workflow(name)
    if source:
        _write_source(workflow.definition)
    else:
        emit_one(here, workflow, name=workflow.name, show=lambda: _show(here, workflow))


@app.command()
def delete(
    ctx: typer.Context,
    names: NamesArgument,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel active runs first and wait for their end.")
    ] = False,
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
                    client.delete_workflow(name)
            except Failure as failure:
                if failure.reason == "RUN_ALREADY_ACTIVE":
                    failure.hint = "--cancel ends its runs first"
                raise
            deleted.append({"name": name, "outcome": "deleted"})
            _tell(here, name, "deleted")
    if here.output in (Output.JSON, Output.YAML):
        emit_data(here, deleted)


@app.command()
def enable(ctx: typer.Context, names: NamesArgument, output: OutputOption = None) -> None:
    """Let these workflows be started by more than people.

    \b
    Example:
      toban workflows enable nightly-report
    """
    _set_enabled(session(ctx, output), names, True)


@app.command()
def disable(ctx: typer.Context, names: NamesArgument, output: OutputOption = None) -> None:
    """Let these workflows be started by people only.

    Runs that were started stay as they are, and `toban run` goes on working. In this release nothing else starts runs.

    \b
    Example:
      toban workflows disable nightly-report
    """
    _set_enabled(session(ctx, output), names, False)


@app.command()
def versions(
    ctx: typer.Context,
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
    here = session(ctx, output)
    what = f"list the versions of {shown(name)}"
    with connect(here, what) as client, about_workflow(client, name, what):
        found, more = take(
            client.list_workflow_versions(name, page_size=min(limit + 1, 1000)), limit
        )
    columns: list[Column[workflow_pb2.WorkflowVersion]] = [
        Column("VERSION", lambda version: str(version.version)),
        Column("CREATED", lambda version: clock(version.created_at)),
        Column("DIGEST", lambda version: version.digest[:12]),
    ]
    emit_list(here, found, columns, name=lambda version: str(version.version), more=more)


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Failure(
                f"cannot list workflows: the label {shown(text)!r} is not KEY=VALUE", Exit.USAGE
            )
        labels[key] = value
    return labels


def _set_enabled(here: Session, names: list[str], enabled: bool) -> None:
    verb = "enable" if enabled else "disable"
    changed: list[workflow_pb2.Workflow] = []
    with connect(here, f"{verb} workflows") as client:
        for name in names:
            with about_workflow(client, name, f"{verb} workflow {shown(name)}"):
                changed.append(client.set_workflow_enabled(name, enabled))
            _tell(here, name, f"{verb}d")
    if here.output in (Output.JSON, Output.YAML):
        emit_data(here, [to_dict(workflow) for workflow in changed])


def _tell(here: Session, name: str, outcome: str) -> None:
    """At once: what was done stays done, whatever happens to the next one."""
    if here.output is Output.TABLE:
        print(f"{outcome} {name}", flush=True)
    elif here.output is Output.NAME:
        print(name, flush=True)


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
        here.note(f"waiting for the end of {name}#{run.number}")
        client.wait_run(run.id)


def _write_source(definition: workflow_pb2.Definition) -> None:
    sys.stdout.flush()
    write_bytes(definition.source.encode())
    flush_bytes()


def _show(here: Session, workflow: workflow_pb2.Workflow) -> None:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(workflow.labels.items()))
    fields(
        here,
        [
            ("name", workflow.name),
            ("title", workflow.title),
            ("description", workflow.description),
            ("labels", labels),
            ("enabled", "yes" if workflow.enabled else "no"),
            ("version", str(workflow.version)),
            ("owner", workflow.owner),
            ("base directory", workflow.definition.base_dir),
            ("created", clock(workflow.created_at)),
            ("updated", clock(workflow.updated_at)),
        ],
    )
    print()
    _write_source(workflow.definition)


def _show_version(here: Session, name: str, number: int, *, source: bool) -> None:
    what = f"show version {number} of {shown(name)}"
    with connect(here, what) as client, about_workflow(client, name, what):
        version = client.get_workflow_version(name, number)
    if source:
        _write_source(version.definition)
        return

    def show() -> None:
        fields(
            here,
            [
                ("workflow", version.workflow),
                ("version", str(version.version)),
                ("digest", version.digest),
                ("base directory", version.definition.base_dir),
                ("created", clock(version.created_at)),
            ],
        )
        print()
        _write_source(version.definition)

    emit_one(here, version, name=f"{name}:{number}", show=show)
