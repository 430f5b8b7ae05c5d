"""`toban validate`: checks definitions offline."""

from __future__ import annotations

from typing import Annotated

from toban.cli.args.file_arguments import FilesArgument, check, invalid, read
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, session, shown
from toban.cli.syntax import CommandContext, Option


def validate(
    ctx: CommandContext,
    files: FilesArgument = None,
    schema: Annotated[
        bool,
        Option("--schema", help="Print the JSON Schema of the format and do nothing else."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Check definitions offline and show every problem.

    Files may use each other's jobs. A job that none of them defines is only a warning: the daemon may have it.

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
    checked = check(read(files or []))
    match here.output:
        case OutputFormat.TABLE:
            for problem in checked.problems:
                print(problem)
            if not checked.errors:
                for each in checked.definitions:
                    subject = f"job {each.name}" if each.is_job else each.name
                    unknown = ", ".join(sorted(each.uses & checked.missing))
                    but = f", except for the unknown {unknown}" if unknown else ""
                    print(f"{each.file}: {subject} is valid{but}")
                    for step_id, name in each.derived.items():
                        print(f"{each.file}: {subject}: the id of the step {shown(name)} is {step_id}")
        case OutputFormat.NAME:
            for each in checked.definitions:
                print(each.name)
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
                    for problem in checked.problems
                ],
            )
    if checked.errors:
        raise invalid("accept the definitions", len(checked.errors))
