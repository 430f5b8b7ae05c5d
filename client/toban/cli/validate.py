"""`toban validate`: checks definitions without a daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from toban.cli.files import FilesArgument, invalid, load
from toban.cli.output import emit_data
from toban.cli.session import Output, OutputOption, session


def validate(
    ctx: typer.Context,
    files: FilesArgument = None,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON Schema of the format and do nothing else."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Check definitions offline and show every problem.

    \b
    Examples:
      toban validate nightly.yaml
      toban validate workflows/ -o json
      toban validate --schema > toban.schema.json
    """
    here = session(ctx, output)
    if schema:
        from toban.definition import json_schema

        emit_data(here, json_schema())
        return
    loaded = load(files or [])
    match here.output:
        case Output.TABLE:
            for problem in loaded.problems:
                print(problem)
            if not loaded.errors:
                for entry in loaded.entries:
                    print(f"{entry.file}: {entry.workflow.name} is valid")
        case Output.NAME:
            for entry in loaded.entries:
                print(entry.workflow.name)
        case _:
            emit_data(
                here,
                [
                    {
                        "file": problem.file,
                        "line": problem.line,
                        "column": problem.column,
                        "path": problem.path,
                        "message": problem.message,
                        "warning": problem.warning,
                    }
                    for problem in loaded.problems
                ],
            )
    if loaded.errors:
        raise invalid("accept the definitions", [str(problem) for problem in loaded.errors])
