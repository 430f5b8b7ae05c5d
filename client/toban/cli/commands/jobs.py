"""`toban jobs`: lists, shows, runs and manages stored jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from toban.cli.args.labels import LabelOption, parse_labels
from toban.cli.args.name_arguments import JobArgument, JobsArgument, about_job, connect
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
from toban.cli.wait.run_start import (
    FollowOption,
    RequestIdOption,
    WaitOption,
    check_waiting,
    started,
)
from toban.message_json.message_data import to_dict

if TYPE_CHECKING:
    from toban.v1 import job_pb2

app = Group(
    name="jobs",
    help="""Show, run and manage stored jobs.

    A job is a step that workflows use by name and that can run alone. `toban apply` stores jobs.

    \b
    Examples:
      toban jobs list
      toban jobs run upload-to-archive --follow
    """,
)


@app.command("list")
def list_jobs(
    ctx: CommandContext,
    label: LabelOption = None,
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List jobs, sorted by id.

    \b
    Examples:
      toban jobs list
      toban jobs list --label team=data -o name
    """
    from toban.cli.render.reason_text import owner

    here = session(ctx, output)
    labels = parse_labels(label or [], "list jobs")
    with connect(here, "list jobs") as client:
        found, more = take(client.list_jobs(labels=labels, page_size=min(limit + 1, 1000)), limit)
    columns: list[Column[job_pb2.Job]] = [
        Column("JOB", lambda job: job.name, lambda _: "bold"),
        Column("TITLE", lambda job: job.title, folds=True),
        Column(
            "ENABLED",
            lambda job: "yes" if job.enabled else "no",
            lambda job: "" if job.enabled else "yellow",
        ),
        Column("VERSION", lambda job: str(job.version)),
        Column("OWNER", owner, folds=True),
        time_column("UPDATED", lambda job: job.updated_at, optional=True),
    ]
    emit_list(
        here,
        found,
        columns,
        name=lambda job: str(job.name),
        more=more,
        empty="no jobs with these labels"
        if labels
        else "no jobs yet: `toban apply FILE` stores those of a `jobs:` document",
    )


@app.command()
def show(
    ctx: CommandContext,
    job: JobArgument,
    version: Annotated[int | None, Option("--version", min=1, metavar="N", help="Show this version.")] = None,
    source: Annotated[bool, Option("--source", help="Print only the definition, unchanged.")] = False,
    output: OutputOption = None,
) -> None:
    """Show one job, its definition and the workflows that use it.

    \b
    Examples:
      toban jobs show upload-to-archive
      toban jobs show upload-to-archive --source > upload.yaml
    """
    here = session(ctx, output)
    if version is not None:
        show_version(here, job, version, source=source, job=True)
        return
    what = f"show job {shown(job)}"
    with connect(here, what) as client, about_job(client, job, what):
        found = client.get_job(job)
    if source:
        write_source(found.definition)
    else:
        emit_one(here, found, name=found.name, show=lambda: _show(here, found))


@app.command()
def run(
    ctx: CommandContext,
    job: JobArgument,
    wait: WaitOption = False,
    follow: FollowOption = False,
    request_id: RequestIdOption = "",
    output: OutputOption = None,
) -> None:
    """Run one job alone.

    Other commands treat its runs like runs of a workflow of that name. Exit codes are those of `toban run`.

    \b
    Examples:
      toban jobs run upload-to-archive
      toban jobs run upload-to-archive --follow
    """
    here = session(ctx, output)
    check_waiting(wait, follow)
    from toban.v1 import run_pb2

    what = f"run job {shown(job)}"
    with connect(here, what) as client:
        with about_job(client, job, what):
            begun = client.run_job(job, triggered_by=run_pb2.TRIGGER_MANUAL, request_id=request_id or None)
        started(here, client, begun, wait=wait, follow=follow)


@app.command()
def delete(
    ctx: CommandContext,
    jobs: JobsArgument,
    force: ForceOption = False,
    output: OutputOption = None,
) -> None:
    """Delete jobs that no workflow uses; their runs stay.

    \b
    Example:
      toban jobs delete upload-to-archive
    """
    here = session(ctx, output)
    deleted: list[dict[str, str]] = []
    with connect(here, "delete jobs") as client:
        for job in jobs:
            try:
                with about_job(client, job, f"delete job {shown(job)}"):
                    client.delete_job(job, force=force)
            except Failure as failure:
                failure.hint = failure.hint or _DELETE_HINTS.get(failure.reason, "")
                raise
            deleted.append({"name": job, "outcome": "deleted"})
            report_done(here, job, "deleted")
            note_left(here, client, job)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, deleted)


@app.command()
def enable(ctx: CommandContext, jobs: JobsArgument, output: OutputOption = None) -> None:
    """Let schedules and events start these jobs.

    \b
    Example:
      toban jobs enable upload-to-archive
    """
    _set_enabled(session(ctx, output), jobs, True)


@app.command()
def disable(ctx: CommandContext, jobs: JobsArgument, output: OutputOption = None) -> None:
    """Stop schedules and events from starting these jobs.

    Active runs, `toban jobs run` and workflows that use the jobs are not affected. Due times are skipped, which
    `toban why` reports.

    \b
    Example:
      toban jobs disable upload-to-archive
    """
    _set_enabled(session(ctx, output), jobs, False)


_DELETE_HINTS = {
    "JOB_IN_USE": "change or delete those workflows first",
    "RUN_ALREADY_ACTIVE": "`toban runs cancel` cancels its run first",
}


@app.command()
def versions(ctx: CommandContext, job: JobArgument, limit: LimitOption = 50, output: OutputOption = None) -> None:
    """List the versions of a job, newest first.

    \b
    Examples:
      toban jobs versions upload-to-archive
      toban jobs show upload-to-archive --version 2
    """
    list_versions(session(ctx, output), job, limit, job=True)


@app.command()
def diff(
    ctx: CommandContext,
    job: JobArgument,
    first: FirstArgument = None,
    second: SecondArgument = None,
    parsed: ParsedOption = False,
    output: OutputOption = None,
) -> None:
    """Show how two versions of a job differ.

    \b
    Examples:
      toban jobs diff upload-to-archive
      toban jobs diff upload-to-archive 2 5
    """
    show_difference(session(ctx, output), job, first, second, parsed=parsed, job=True)


@app.command()
def restore(
    ctx: CommandContext,
    job: JobArgument,
    version: VersionArgument,
    force: ForceOption = False,
    output: OutputOption = None,
) -> None:
    """Make an old version of a job the current one.

    This stores a new version with the old text, and a new version of each workflow that uses the job.

    \b
    Example:
      toban jobs restore upload-to-archive 2
    """
    restore_version(session(ctx, output), job, version, job=True, force=force)


def _set_enabled(here: Session, jobs: list[str], enabled: bool) -> None:
    verb = "enable" if enabled else "disable"
    changed: list[job_pb2.Job] = []
    with connect(here, f"{verb} jobs") as client:
        for job in jobs:
            with about_job(client, job, f"{verb} job {shown(job)}"):
                changed.append(client.set_job_enabled(job, enabled))
            report_done(here, job, f"{verb}d")
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [to_dict(job) for job in changed])


def _show(here: Session, job: job_pb2.Job) -> None:
    from toban.cli.render.reason_text import owner

    fields(
        here,
        [
            ("job", job.name),
            ("title", job.title),
            ("description", job.description),
            ("labels", labels_text(job.labels)),
            ("enabled", "yes" if job.enabled else "no"),
            *(("schedule", schedule) for schedule in job.schedules),
            ("next due", next_due_of(job)),
            ("started by", events_of(job)),
            ("version", str(job.version)),
            ("owner", owner(job)),
            ("used by", ", ".join(job.used_by)),
            ("base directory", job.definition.base_dir),
            ("created", clock(job.created_at)),
            ("updated", clock(job.updated_at)),
        ],
    )
    print()
    show_source(job.definition)
