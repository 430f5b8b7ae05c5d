"""`toban validate`: checks definitions without a daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from toban.cli.args.file_arguments import FilesArgument, check, invalid, read
from toban.cli.render.output import emit_data
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

    The jobs of all files are known to each of them; a job that none of them defines is a warning only, since the
    daemon may have it.

    \b
    Examples:
      toban validate nightly.yaml
      toban validate workflows/ jobs.yaml -o json
      toban validate --schema > toban.schema.json
    """
    here = session(ctx, output)
    if schema:
        from toban.definition import json_schema

        emit_data(here, json_schema())
        return
    loaded = check(read(files or []))
    match here.output:
        case Output.TABLE:
            for problem in loaded.problems:
                print(problem)
            if not loaded.errors:
                for entry in loaded.entries:
                    what = f"job {entry.name}" if entry.is_job else entry.name
                    unknown = ", ".join(sorted(entry.uses & loaded.missing))
                    but = f", as far as it can be told without {unknown}" if unknown else ""
                    print(f"{entry.file}: {what} is valid{but}")
        case Output.NAME:
            for entry in loaded.entries:
                print(entry.name)
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
