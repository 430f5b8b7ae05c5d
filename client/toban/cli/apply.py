"""`toban apply`: creates or updates what files define."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban.cli.failures import doing
from toban.cli.files import Entry, FilesArgument, invalid, load
from toban.cli.names import connect
from toban.cli.output import emit_data, paint
from toban.cli.session import Output, OutputOption, Session, complain, session, shown

if TYPE_CHECKING:
    from toban.sdk import SyncClient
    from toban.v1 import workflow_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What happened, or would happen, to one workflow."""

    name: str
    outcome: str
    version: int
    warnings: Sequence[str] = ()
    diff: str = ""


def apply(
    ctx: typer.Context,
    files: FilesArgument = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Create or update the workflows that files define.

    Nothing is sent before every file was checked, and nothing is stored if any of them is wrong.

    \b
    Examples:
      toban apply nightly.yaml
      toban apply workflows/ --dry-run
      generate-workflow | toban apply -
    """
    here = session(ctx, output)
    loaded = load(files or [])
    for problem in loaded.problems:
        complain(str(problem))
    if loaded.errors:
        raise invalid("apply the definitions", [str(problem) for problem in loaded.errors])
    results: list[Result] = []
    with connect(here, "apply the definitions") as client:
        _ask_daemon(client, loaded.entries)
        for entry in loaded.entries:
            name = entry.workflow.name
            with doing(f"apply {shown(name)} of {entry.file}"):
                result = _preview(client, entry) if dry_run else _apply(client, entry)
            results.append(result)
            _tell(here, result, dry_run=dry_run)
    if here.output in (Output.JSON, Output.YAML):
        emit_data(here, [_as_data(result, dry_run=dry_run) for result in results])


def _ask_daemon(client: SyncClient, entries: Iterable[Entry]) -> None:
    """The daemon may be newer than this client and know better; it is asked before anything is stored."""
    problems: list[str] = []
    for entry in entries:
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


def _apply(client: SyncClient, entry: Entry) -> Result:
    applied = client.apply_workflow(
        entry.workflow.name, entry.source, base_dir=_base_dir(client, entry)
    )
    return Result(
        name=entry.workflow.name,
        outcome=applied.outcome.value,
        version=applied.workflow.version,
        warnings=[_placed(entry, one) for one in applied.warnings],
    )


def _preview(client: SyncClient, entry: Entry) -> Result:
    from toban.sdk import NotFound

    name = entry.workflow.name
    base_dir = _base_dir(client, entry)
    try:
        stored = client.get_workflow(name)
    except NotFound:
        diff = _diff(name, 0, "", entry.source)
        return Result(name=name, outcome="created", version=1, diff=diff)
    old = stored.definition
    if old.source == entry.source and old.base_dir == base_dir:
        return Result(name=name, outcome="unchanged", version=stored.version)
    diff = _diff(name, stored.version, old.source, entry.source)
    if old.base_dir != base_dir:
        diff = f"base directory: {old.base_dir or '(none)'} -> {base_dir or '(none)'}\n{diff}"
    return Result(name=name, outcome="updated", version=stored.version + 1, diff=diff)


def _diff(name: str, version: int, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(),
        new.splitlines(),
        fromfile=f"{name} (version {version})" if version else "/dev/null",
        tofile=f"{name} (version {version + 1})",
        lineterm="",
    )
    return "\n".join(lines)


def _placed(entry: Entry, problem: workflow_pb2.DefinitionProblem) -> str:
    """A problem of the text that was sent, at its place in the file."""
    place = f"{entry.file}:{entry.line + max(problem.line, 1) - 1}:{max(problem.column, 1)}"
    return (
        f"{place}: {problem.path}: {problem.message}"
        if problem.path
        else f"{place}: {problem.message}"
    )


_STYLES = {"created": "green", "updated": "yellow", "unchanged": "dim"}


def _tell(here: Session, result: Result, *, dry_run: bool) -> None:
    if here.output is Output.NAME:
        print(result.name)
        return
    if here.output is not Output.TABLE:
        return
    word = paint(here, result.outcome, _STYLES.get(result.outcome, ""))
    if dry_run and result.outcome != "unchanged":
        word = f"would be {word}"
    print(f"{result.name} {word} (version {result.version})")
    for line in result.diff.splitlines():
        style = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
        print(paint(here, line, style))


def _as_data(result: Result, *, dry_run: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": result.name,
        "outcome": result.outcome,
        "version": result.version,
        "warnings": list(result.warnings),
    }
    return data | {"dry_run": True, "diff": result.diff} if dry_run else data
