"""`toban init`: writes a first workflow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import Annotated

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, session, shown
from toban.cli.syntax import Argument, CommandContext, Option


class Kind(Enum):
    """Kinds of first workflows."""

    SHELL = "shell"
    PYTHON = "python"
    SCHEDULE = "schedule"


def init(
    ctx: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the workflow.")] = "first",
    directory: Annotated[
        str, Option("--dir", metavar="DIR", help="Directory for the files; created if missing.")
    ] = ".",
    kind: Annotated[Kind, Option("--kind", metavar="KIND", help="shell, python or schedule.")] = Kind.SHELL,
    output: OutputOption = None,
) -> None:
    """Write a first workflow, with comments.

    It can be applied and run as it is. Existing files are never overwritten.

    \b
    Examples:
      toban init
      toban init nightly-report --kind schedule
      toban init import-orders --kind python --dir workflows
    """
    here = session(ctx, output)
    from toban.cli.render.starter_files import starter_files

    files = starter_files(kind.value, name)
    if problem := _problem(files, name):
        raise Failure(f"cannot use the name {shown(name)}: {problem}", Exit.USAGE)
    paths = {os.path.normpath(os.path.join(directory, file)): text for file, text in files.items()}
    for path in paths:
        if os.path.lexists(path):
            hint = "choose another NAME or --dir"
            raise Failure(f"cannot write {shown(path)}: it exists already", Exit.CONFLICT, hint=hint)
    try:
        os.makedirs(directory, exist_ok=True)
        for path, text in paths.items():
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise Failure(f"cannot write {shown(str(error.filename))}: {error.strerror}", Exit.USAGE) from None
    match here.output:
        case OutputFormat.TABLE:
            for path in paths:
                print(f"wrote {shown(path)}")
            for line in _next_steps(next(iter(paths)), name, kind):
                here.note(line)
        case OutputFormat.NAME:
            for path in paths:
                print(path)
        case _:
            emit_data(here, {"name": name, "files": list(paths)})


def _problem(files: Mapping[str, str], name: str) -> str:
    """Why the name cannot be used; empty if it can."""
    from toban.definition import parse

    if "/" in name or "\\" in name:
        return "it is also the name of a file, so it has no slash"
    problems = parse(files[f"{name}.yaml"].encode()).problems
    return problems[0].message if problems else ""


def _next_steps(definition: str, name: str, kind: Kind) -> list[str]:
    import shlex

    lines = [
        "next:",
        f"  toban apply {shlex.quote(definition)}",
        f"  toban run {name} --follow",
    ]
    if kind is Kind.SCHEDULE:
        lines.append(f"  toban workflows next {name}")
    return lines
