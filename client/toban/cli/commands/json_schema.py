"""`toban schema`: the JSON Schema of the output of a command."""

from __future__ import annotations

from typing import Annotated

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data
from toban.cli.session import quiet_grpc, session, shown
from toban.cli.syntax import Argument, CommandContext


def schema(
    ctx: CommandContext,
    command: Annotated[
        list[str], Argument(metavar="COMMAND", help="A command that has -o, as in: runs list.", show_default=False)
    ],
) -> None:
    """Print the JSON Schema of what -o json writes.

    For commands that write a value per line, such as `logs` and `runs watch`, it is the schema of a line.

    \b
    Examples:
      toban schema runs list
      toban schema logs > line.schema.json
    """
    quiet_grpc()
    from toban.cli.render.output_schema import VERBS, output_schema

    verb = " ".join(command)
    if verb not in VERBS:
        from difflib import get_close_matches

        near = get_close_matches(verb, VERBS, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "`toban --help` lists the commands"
        raise Failure(f"cannot print a schema: {shown(verb)} is no command with -o json", Exit.USAGE, hint=hint)
    emit_data(session(ctx), output_schema(verb))
