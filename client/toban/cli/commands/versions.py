"""Versions of workflows and jobs: `versions`, `diff`, `restore` and `show --version`."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

from toban.cli.args.name_arguments import about_job, about_workflow, connect
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.human_text import clock
from toban.cli.render.diff_text import unified, write_diff
from toban.cli.render.output import (
    Column,
    emit_data,
    emit_list,
    emit_one,
    fields,
    take,
    time_column,
    write_file,
)
from toban.cli.session import OutputFormat, Session, complain, shown
from toban.cli.syntax import Argument, Option

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import workflow_pb2

FirstArgument = Annotated[
    int | None,
    Argument(
        metavar="A",
        min=1,
        help="Version to compare (default: the one before the newest).",
        show_default=False,
    ),
]

SecondArgument = Annotated[
    int | None,
    Argument(metavar="B", min=1, help="Version to compare with (default: the newest).", show_default=False),
]

ParsedOption = Annotated[
    bool,
    Option("--parsed", help="Compare the parsed definitions, with jobs and defaults merged."),
]

VersionArgument = Annotated[int, Argument(metavar="VERSION", min=1, help="Version number.", show_default=False)]


def list_versions(here: Session, name: str, limit: int, *, job: bool = False) -> None:
    """Lists versions, newest first. Raises Failure."""
    what = f"list the versions of {shown(name)}"
    with connect(here, what) as client, _about(client, name, what, job=job):
        found, more = take(client.list_workflow_versions(name, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[workflow_pb2.WorkflowVersion]] = [
        Column("VERSION", lambda version: str(version.version)),
        time_column("CREATED", lambda version: version.created_at),
        Column("DIGEST", lambda version: version.digest[:12]),
    ]
    emit_list(here, found, columns, name=lambda version: str(version.version), more=more)


def show_version(here: Session, name: str, number: int, *, source: bool, job: bool = False) -> None:
    """Shows one version. Raises Failure."""
    what = f"show version {number} of {shown(name)}"
    with connect(here, what) as client, _about(client, name, what, job=job):
        version = client.get_workflow_version(name, number)
    if source:
        write_source(version.definition)
        return

    def show() -> None:
        fields(
            here,
            [
                ("job" if job else "workflow", version.workflow),
                ("version", str(version.version)),
                ("digest", version.digest),
                ("base directory", version.definition.base_dir),
                ("created", clock(version.created_at)),
            ],
        )
        print()
        show_source(version.definition)

    emit_one(here, version, name=f"{name}:{number}", show=show)


def show_difference(
    here: Session,
    name: str,
    first: int | None,
    second: int | None,
    *,
    parsed: bool,
    job: bool = False,
) -> None:
    """Shows how two versions differ. Raises Failure."""
    what = f"compare versions of {shown(name)}"
    with connect(here, what) as client, _about(client, name, what, job=job):
        if second is None:
            second = next(client.list_workflow_versions(name, page_size=1)).version
        if first is None:
            first = second - 1
        if first < 1:
            raise Failure(
                f"cannot {what}: there is only one version",
                Exit.CONFLICT,
                hint=f"`toban {'jobs' if job else 'workflows'} show {shown(name)}` shows it",
            )
        old = client.get_workflow_version(name, first)
        new = client.get_workflow_version(name, second)
    diff = _difference(old, new, parsed=parsed)
    match here.output:
        case OutputFormat.TABLE:
            write_diff(here, diff)
            if not diff:
                here.note(_no_difference(old, new, parsed=parsed))
        case OutputFormat.NAME:
            print(f"{name}:{first} {name}:{second}")
        case _:
            emit_data(here, {"name": name, "from": first, "to": second, "diff": diff})


def restore_version(here: Session, name: str, version: int, *, job: bool = False, force: bool = False) -> None:
    """Makes an old version the current one, as a new version. Raises Failure."""
    what = f"restore version {version} of {shown(name)}"
    with connect(here, what) as client, _about(client, name, what, job=job):
        answer = client.restore_workflow_version(name, version, force=force)
    for problem in answer.warnings:
        complain(f"{name}:{problem.line}:{problem.column}: warning: {problem.message}")
    now = answer.version

    def show() -> None:
        if answer.changed:
            print(f"{name} restored: version {now.version} has the text of version {version}")
        else:
            print(f"{name} unchanged: version {now.version} has the text of version {version}")

    emit_one(here, now, name=f"{name}:{now.version}", show=show)


def show_source(definition: workflow_pb2.Definition) -> None:
    """Writes a definition with line feeds only."""
    print(definition.source.replace("\r\n", "\n"), end="")


def write_source(definition: workflow_pb2.Definition) -> None:
    """Writes a definition unchanged."""
    write_file(definition.source)


def _about(client: SyncClient, name: str, what: str, *, job: bool) -> AbstractContextManager[None]:
    return about_job(client, name, what) if job else about_workflow(client, name, what)


def _difference(old: workflow_pb2.WorkflowVersion, new: workflow_pb2.WorkflowVersion, *, parsed: bool) -> str:
    before, after = (f"{version.workflow} (version {version.version})" for version in (old, new))
    if parsed:
        return unified(_parsed(old), _parsed(new), before=before, after=after)
    diff = unified(old.definition.source, new.definition.source, before=before, after=after)
    directories = old.definition.base_dir, new.definition.base_dir
    if directories[0] != directories[1]:
        moved = " -> ".join(directory or "(none)" for directory in directories)
        diff = f"base directory: {moved}\n{diff}".rstrip("\n")
    return diff


def _parsed(version: workflow_pb2.WorkflowVersion) -> str:
    parsed = json.loads(version.definition.parsed_json or "{}")
    return json.dumps(parsed, indent=2, ensure_ascii=False, sort_keys=True)


def _no_difference(old: workflow_pb2.WorkflowVersion, new: workflow_pb2.WorkflowVersion, *, parsed: bool) -> str:
    same = f"versions {old.version} and {new.version} are the same"
    if not parsed and _parsed(old) != _parsed(new):
        return f"{same} as text, but a job changed: --parsed shows the difference"
    return same
