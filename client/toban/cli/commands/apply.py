"""`toban apply`: creates or updates the definitions in files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from toban.cli.args.file_arguments import CheckedFiles, FileDefinition, FilesArgument, InputFile, check, invalid, read
from toban.cli.args.name_arguments import connect
from toban.cli.commands.schedules import note_left
from toban.cli.error_report import Failure, doing, explain
from toban.cli.exits import Exit
from toban.cli.render.diff_text import unified, write_diff
from toban.cli.render.output import emit_data, paint
from toban.cli.session import ForceOption, OutputFormat, OutputOption, Session, complain, session, shown
from toban.cli.syntax import CommandContext, Option

if TYPE_CHECKING:
    from toban.sdk import DefinitionSource, SyncClient
    from toban.v1 import workflow_pb2

_ACTION: Final = "apply the definitions"
_TOO_LARGE: Final = ("TOO_LARGE", "TOO_MANY_DEFINITIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The effect on one workflow or job. `also` are workflows that got a new version with their job."""

    name: str
    kind: str
    outcome: str
    version: int
    warnings: Sequence[str] = ()
    also: Sequence[str] = ()
    diff: str = ""


def apply(
    ctx: CommandContext,
    files: FilesArgument = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would change.")] = False,
    prune: Annotated[
        bool,
        Option("--prune", help="Delete definitions that came from these directories and are gone there."),
    ] = False,
    force: ForceOption = False,
    base_dir: Annotated[
        str,
        Option(
            "--base-dir",
            metavar="DIR",
            help="Where relative paths start on the daemon's machine (default: the directory of each file).",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Create or update the workflows and jobs in files.

    All of them are stored together, or none if one is invalid. They may use each other's jobs in any order; when a
    job changes, the workflows that use it get a new version.
    --prune needs directories: it deletes the workflows and jobs that were applied from exactly these directories and
    that no file in them defines any more. --dry-run shows which.
    Relative paths in a definition start at its directory. A daemon that may be on another machine, and a definition
    from standard input, get no directory unless --base-dir names one: relative paths then start at the empty directory
    of each run.
    A Python file is run by this command, with its Python, to find the workflows that it defines.

    \b
    Examples:
      toban apply nightly.yaml
      toban apply workflows/ --dry-run
      toban apply workflows/ --prune
      toban apply nightly.py
      generate-workflow | toban apply - --base-dir /srv/work
    """
    here = session(ctx, output)
    directories = _directories(files or []) if prune else []
    if prune and base_dir:
        raise Failure("cannot use --prune with --base-dir: prune goes by the directories of files", Exit.USAGE)
    checked = check(read(files or []))
    if checked.errors:
        raise _invalid(map(str, checked.problems), len(checked.errors))
    results: list[ApplyResult] = []
    with connect(here, _ACTION) as client:
        if prune and not client.address.local:
            raise Failure(
                "cannot prune: the daemon may be on another machine, where these directories mean nothing",
                Exit.USAGE,
            )
        directories_of = _directories_of(client, checked.files, base_dir)
        for result in _apply(client, checked, directories_of, dry_run=dry_run, force=force):
            results.append(result)
            _tell(here, result, dry_run=dry_run)
        if not all(directories_of.values()):
            here.note("no base directory: relative paths start at the empty directory of each run; --base-dir sets one")
        if prune:
            names = {each.name for each in checked.definitions}
            for result in _prune(client, directories, names, dry_run=dry_run):
                results.append(result)
                _tell(here, result, dry_run=dry_run)
                if not dry_run:
                    note_left(here, client, result.name)
    if here.output in (OutputFormat.JSON, OutputFormat.YAML):
        emit_data(here, [_as_data(result, dry_run=dry_run) for result in results])


def _directories_of(client: SyncClient, files: Sequence[InputFile], base_dir: str) -> Mapping[str, str]:
    """The base directory of each file, by its name; empty for none. Raises Failure."""
    # A directory of this machine means something to a daemon on this machine only.
    local = client.address.local
    if base_dir:
        if not local and not base_dir.startswith("/") and not os.path.isabs(base_dir):
            raise Failure(
                f"cannot use --base-dir {shown(base_dir)}: the daemon may be on another machine",
                Exit.USAGE,
                hint="give the absolute path on that machine",
            )
        return dict.fromkeys((file.name for file in files), os.path.abspath(base_dir) if local else base_dir)
    return {file.name: file.directory if local else "" for file in files}


def _apply(
    client: SyncClient, checked: CheckedFiles, directories_of: Mapping[str, str], *, dry_run: bool, force: bool
) -> Iterable[ApplyResult]:
    """Jobs first. Raises Failure."""
    from toban.sdk import DefinitionText
    from toban.sdk.errors import problem_text
    from toban.v1 import workflow_pb2

    texts: list[DefinitionSource] = [
        file.workflow
        if file.workflow is not None and directories_of[file.name] == file.directory
        else DefinitionText(source=file.data.decode(), base_dir=directories_of[file.name], file=file.name)
        for file in checked.files
    ]
    answer = _call(client, texts, dry_run=dry_run, force=force)
    problems = [problem for applied in answer.definitions for problem in applied.problems]
    if not answer.valid:
        errors = sum(not problem.warning for problem in problems) + answer.problems_left_out
        raise _invalid(map(problem_text, problems), errors)
    for problem in problems:
        complain(problem_text(problem))
    given = {each.name: each for each in checked.definitions}
    for applied in sorted(answer.definitions, key=lambda each: each.kind != workflow_pb2.DEFINITION_KIND_JOB):
        yield ApplyResult(
            name=applied.name,
            kind=_word(workflow_pb2.DefinitionKind.Name(applied.kind)),
            outcome=_word(workflow_pb2.ApplyOutcome.Name(applied.outcome)),
            version=applied.version,
            warnings=list(map(problem_text, applied.problems)),
            also=applied.updated_workflows,
            diff=_difference(client, applied, given[applied.name], directories_of) if dry_run else "",
        )


def _call(
    client: SyncClient, texts: Sequence[DefinitionSource], *, dry_run: bool, force: bool
) -> workflow_pb2.ApplyDefinitionsResponse:
    """An answer that is not `valid` has all problems. Raises Failure."""
    from toban.sdk import InvalidArgument, InvalidDefinition

    with doing(_ACTION):
        try:
            return client.apply_definitions(texts, validate_only=dry_run, force=force)
        except InvalidDefinition:
            # An error has room for a few problems only.
            answer = client.apply_definitions(texts, validate_only=True, force=force)
            if answer.valid:
                raise
            return answer
        except InvalidArgument as error:
            failure = explain(error, _ACTION)
            if error.reason in _TOO_LARGE:
                failure.hint = (
                    "apply fewer files at a time, or let the daemon read them: see `definitions` in its configuration"
                )
            raise failure from error


def _difference(
    client: SyncClient,
    applied: workflow_pb2.AppliedDefinition,
    given: FileDefinition,
    directories_of: Mapping[str, str],
) -> str:
    """The difference to the stored definition; empty if there is none."""
    from toban.v1 import workflow_pb2

    name, version = applied.name, applied.version
    if applied.outcome == workflow_pb2.APPLY_OUTCOME_CREATED:
        return unified("", given.source, before="/dev/null", after=f"{name} (version {version})")
    if applied.outcome != workflow_pb2.APPLY_OUTCOME_UPDATED:
        return ""
    stored = client.get_job(name) if given.is_job else client.get_workflow(name)
    old, base_dir = stored.definition, directories_of[given.file]
    before, after = f"{name} (version {stored.version})", f"{name} (version {version})"
    diff = unified(old.source, given.source, before=before, after=after)
    if old.base_dir != base_dir:
        return f"base directory: {old.base_dir or '(none)'} -> {base_dir or '(none)'}\n{diff}"
    return diff


def _invalid(problems: Iterable[str], errors: int) -> Failure:
    """Shows the problems."""
    for problem in problems:
        complain(problem)
    return invalid(_ACTION, errors)


def _word(name: str) -> str:
    """The last word of an enum's value, such as `created`."""
    return name.rpartition("_")[2].lower()


def _directories(paths: Sequence[str]) -> list[str]:
    """The arguments that are directories, absolute. Raises Failure if another one is no Python file."""
    directories = [os.path.abspath(path) for path in paths if path != "-" and os.path.isdir(path)]
    # A directory does not include its Python files, but their workflows came from it.
    files = [path for path in paths if path.endswith(".py")]
    if not directories or len(directories) + len(files) != len(paths):
        raise Failure(
            "cannot prune by files: only a directory shows which definitions are gone",
            Exit.USAGE,
            hint="give --prune directories, and Python files, only",
        )
    return directories


def _prune(client: SyncClient, directories: Sequence[str], kept: set[str], *, dry_run: bool) -> Iterable[ApplyResult]:
    """Deletes definitions that came from the directories and are gone there. Workflows first: they use jobs."""
    from toban.v1 import workflow_pb2

    for listed in list(client.list_workflows(page_size=1000)):
        if listed.name in kept or listed.owner_kind != workflow_pb2.OWNER_KIND_API:
            continue
        workflow = client.get_workflow(listed.name)
        if workflow.definition.base_dir in directories:
            if not dry_run:
                with doing(f"delete workflow {listed.name}"):
                    client.delete_workflow(listed.name, etag=workflow.etag)
            yield ApplyResult(name=listed.name, kind="workflow", outcome="deleted", version=workflow.version)
    for entry in list(client.list_jobs(page_size=1000)):
        if entry.name in kept or entry.owner_kind != workflow_pb2.OWNER_KIND_API:
            continue
        job = client.get_job(entry.name)
        if job.definition.base_dir in directories:
            if not dry_run:
                with doing(f"delete job {entry.name}"):
                    client.delete_job(entry.name, etag=job.etag)
            yield ApplyResult(name=entry.name, kind="job", outcome="deleted", version=job.version)


_STYLES: Mapping[str, str] = {
    "created": "green",
    "updated": "yellow",
    "unchanged": "dim",
    "deleted": "red",
}


def _tell(here: Session, result: ApplyResult, *, dry_run: bool) -> None:
    if here.output is OutputFormat.NAME:
        print(result.name)
        return
    if here.output is not OutputFormat.TABLE:
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


def _as_data(result: ApplyResult, *, dry_run: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": result.name,
        "kind": result.kind,
        "outcome": result.outcome,
        "version": result.version,
        "warnings": list(result.warnings),
        "updated_workflows": list(result.also),
    }
    return data | {"dry_run": True, "diff": result.diff} if dry_run else data
