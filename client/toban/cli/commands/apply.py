"""`toban apply`: creates or updates what files define."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban.cli.args.file_arguments import Entry, FilesArgument, Loaded, check, invalid, read
from toban.cli.args.names import connect
from toban.cli.commands.schedules import note_left
from toban.cli.error_report import Failure, doing
from toban.cli.exits import Exit
from toban.cli.render.diff_text import unified, write_diff
from toban.cli.render.output import emit_data, paint
from toban.cli.session import ForceOption, Output, OutputOption, Session, complain, session, shown

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import job_pb2, workflow_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What happened, or would happen, to one workflow or job. `also` are workflows that changed with their job."""

    name: str
    kind: str
    outcome: str
    version: int
    warnings: Sequence[str] = ()
    also: Sequence[str] = ()
    diff: str = ""


def apply(
    ctx: typer.Context,
    files: FilesArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete what came from these directories and is gone there."),
    ] = False,
    force: ForceOption = False,
    output: OutputOption = None,
) -> None:
    """Create or update the workflows and jobs that files define.

    Nothing is sent before every file was checked, and nothing is stored if any of them is wrong. Jobs come first;
    when one changes, the workflows that use it get a new version with it.
    --prune needs directories: it deletes the workflows and jobs that were applied from just these directories and
    that no file of theirs defines any more. --dry-run shows which.

    \b
    Examples:
      toban apply nightly.yaml
      toban apply workflows/ --dry-run
      toban apply workflows/ --prune
      generate-workflow | toban apply -
    """
    here = session(ctx, output)
    directories = _directories(files or []) if prune else []
    read_files = read(files or [])
    loaded = check(read_files)
    if not loaded.missing or loaded.errors:
        _report(loaded)
    results: list[Result] = []
    with connect(here, "apply the definitions") as client:
        if prune and not client.address.local:
            raise Failure(
                "cannot prune: the daemon may be on another machine, and knows no directories of this one",
                Exit.USAGE,
            )
        if loaded.missing:
            loaded = check(read_files, _stored_jobs(client, loaded.missing))
            _report(loaded)
        _ask_daemon(client, loaded.entries)
        for entry in sorted(loaded.entries, key=lambda entry: not entry.is_job):
            with doing(f"apply {shown(entry.name)} of {entry.file}"):
                result = _preview(client, entry) if dry_run else _apply(client, entry, force=force)
            results.append(result)
            _tell(here, result, dry_run=dry_run)
        if prune:
            names = {entry.name for entry in loaded.entries}
            for result in _prune(client, directories, names, dry_run=dry_run):
                results.append(result)
                _tell(here, result, dry_run=dry_run)
                if not dry_run:
                    note_left(here, client, result.name)
    if here.output in (Output.JSON, Output.YAML):
        emit_data(here, [_as_data(result, dry_run=dry_run) for result in results])


def _report(loaded: Loaded) -> None:
    """Shows what is wrong. Raises Failure if anything is worse than a warning."""
    for problem in loaded.problems:
        complain(str(problem))
    if loaded.errors:
        raise invalid("apply the definitions", [str(problem) for problem in loaded.errors])


def _stored_jobs(client: SyncClient, names: Iterable[str]) -> dict[str, str]:
    """The sources of the jobs that the daemon has."""
    from toban.sdk import NotFound

    found = {}
    for name in sorted(names):
        try:
            found[name] = client.get_job(name).definition.source
        except NotFound:
            continue
    return found


def _ask_daemon(client: SyncClient, entries: Sequence[Entry]) -> None:
    """The daemon may be newer than this client and know better; it is asked before anything is stored."""
    coming = {entry.name for entry in entries if entry.is_job}
    problems: list[str] = []
    for entry in entries:
        # It cannot judge what uses jobs that it does not have yet, or not yet like this.
        if entry.uses & coming:
            continue
        answer = client.validate_workflow(entry.source, base_dir=_base_dir(client, entry))
        if not answer.valid:
            problems += [_placed(entry, one) for one in answer.problems if not one.warning]
    if problems:
        for problem in problems:
            complain(problem)
        raise invalid("apply the definitions", problems)


def _base_dir(client: SyncClient, entry: Entry) -> str:
    """The file's directory means something to a daemon on this machine only."""
    return entry.directory if client.address.local else ""


def _apply(client: SyncClient, entry: Entry, *, force: bool) -> Result:
    base_dir = _base_dir(client, entry)
    if entry.is_job:
        job = client.apply_job(entry.name, entry.source, base_dir=base_dir, force=force)
        return Result(
            name=entry.name,
            kind="job",
            outcome=job.outcome.value,
            version=job.job.version,
            warnings=[_placed(entry, one) for one in job.warnings],
            also=job.updated_workflows,
        )
    applied = client.apply_workflow(entry.name, entry.source, base_dir=base_dir, force=force)
    return Result(
        name=entry.name,
        kind="workflow",
        outcome=applied.outcome.value,
        version=applied.workflow.version,
        warnings=[_placed(entry, one) for one in applied.warnings],
    )


def _preview(client: SyncClient, entry: Entry) -> Result:
    from toban.sdk import NotFound

    name, kind = entry.name, "job" if entry.is_job else "workflow"
    base_dir = _base_dir(client, entry)
    also: Sequence[str] = ()
    stored: workflow_pb2.Workflow | job_pb2.Job
    try:
        if entry.is_job:
            stored = client.get_job(name)
            also = stored.used_by
        else:
            stored = client.get_workflow(name)
    except NotFound:
        diff = _diff(name, 0, "", entry.source)
        return Result(name=name, kind=kind, outcome="created", version=1, diff=diff)
    old = stored.definition
    if old.source == entry.source and old.base_dir == base_dir:
        return Result(name=name, kind=kind, outcome="unchanged", version=stored.version)
    diff = _diff(name, stored.version, old.source, entry.source)
    if old.base_dir != base_dir:
        diff = f"base directory: {old.base_dir or '(none)'} -> {base_dir or '(none)'}\n{diff}"
    version = stored.version + 1
    return Result(name=name, kind=kind, outcome="updated", version=version, also=also, diff=diff)


def _diff(name: str, version: int, old: str, new: str) -> str:
    before = f"{name} (version {version})" if version else "/dev/null"
    return unified(old, new, before=before, after=f"{name} (version {version + 1})")


def _directories(paths: Sequence[str]) -> list[str]:
    """The directories among the arguments, as the daemon has them. Raises Failure if there is anything else."""
    others = [path for path in paths if path == "-" or not os.path.isdir(path)]
    if others or not paths:
        raise Failure(
            "cannot prune by files: only a directory tells what is gone from it",
            Exit.USAGE,
            hint="give --prune directories only",
        )
    return [os.path.abspath(path) for path in paths]


def _prune(client: SyncClient, directories: Sequence[str], kept: set[str], *, dry_run: bool) -> Iterable[Result]:
    """Deletes, or would, what came from the directories and is not there any more. Workflows first: they use jobs."""
    from toban.v1 import workflow_pb2

    for listed in list(client.list_workflows(page_size=1000)):
        if listed.name in kept or listed.owner_kind != workflow_pb2.OWNER_KIND_API:
            continue
        workflow = client.get_workflow(listed.name)
        if workflow.definition.base_dir in directories:
            if not dry_run:
                with doing(f"delete workflow {listed.name}"):
                    client.delete_workflow(listed.name, etag=workflow.etag)
            yield Result(name=listed.name, kind="workflow", outcome="deleted", version=workflow.version)
    for entry in list(client.list_jobs(page_size=1000)):
        if entry.name in kept or entry.owner_kind != workflow_pb2.OWNER_KIND_API:
            continue
        job = client.get_job(entry.name)
        if job.definition.base_dir in directories:
            if not dry_run:
                with doing(f"delete job {entry.name}"):
                    client.delete_job(entry.name, etag=job.etag)
            yield Result(name=entry.name, kind="job", outcome="deleted", version=job.version)


def _placed(entry: Entry, problem: workflow_pb2.DefinitionProblem) -> str:
    """A problem of the text that was sent, at its place in the file."""
    place = f"{entry.file}:{entry.line + max(problem.line, 1) - 1}:{max(problem.column, 1)}"
    return f"{place}: {problem.path}: {problem.message}" if problem.path else f"{place}: {problem.message}"


_STYLES: Mapping[str, str] = {
    "created": "green",
    "updated": "yellow",
    "unchanged": "dim",
    "deleted": "red",
}


def _tell(here: Session, result: Result, *, dry_run: bool) -> None:
    if here.output is Output.NAME:
        print(result.name)
        return
    if here.output is not Output.TABLE:
        return
    word = paint(here, result.outcome, _STYLES.get(result.outcome, ""))
    if dry_run and result.outcome != "unchanged":
        word = f"would be {word}"
    name = f"job {result.name}" if result.kind == "job" else result.name
    print(f"{name} {word} (version {result.version})")
    if result.also:
        verb = "would get" if dry_run else "got"
        print(f"  {', '.join(result.also)} {verb} a new version with it")
    write_diff(here, result.diff)


def _as_data(result: Result, *, dry_run: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": result.name,
        "kind": result.kind,
        "outcome": result.outcome,
        "version": result.version,
        "warnings": list(result.warnings),
        "updated_workflows": list(result.also),
    }
    return data | {"dry_run": True, "diff": result.diff} if dry_run else data
