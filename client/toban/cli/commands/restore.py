"""`toban restore`: makes a state directory from a backup."""

from __future__ import annotations

import shlex
from typing import Annotated

from toban.cli.commands.offline_daemon import run_offline
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.output import emit_data
from toban.cli.session import OutputFormat, OutputOption, session
from toban.cli.syntax import Argument, CommandContext, Option


def restore(
    ctx: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The backup.")],
    state_dir: Annotated[
        str,
        Option("--state-dir", metavar="DIR", help="The state directory to make: new or empty.", show_default=False),
    ],
    database: Annotated[
        str,
        Option(
            "--database",
            metavar="URL",
            help="An empty database: postgresql://… or sqlite:///PATH (default: SQLite in DIR).",
            show_default=False,
        ),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Make a state directory from a backup.

    Run it as the user of the daemon. The whole file is verified first. The daemon that is then started there is another
    installation, which starts nothing by itself until `toban system resume`; docs/backup.md says how to go live.

    \b
    Examples:
      toban restore toban-backup.tar.gz --state-dir /var/lib/toban
      sudo -u toban toban restore toban-backup.tar.gz --state-dir /srv/toban
      toban restore backup.tar.gz --state-dir s --database postgresql://db/toban
    """
    here = session(ctx, output)
    if file == "-":
        raise Failure("cannot restore from standard input: the file is read twice", Exit.USAGE, hint="store it first")
    arguments = ["restore", file, "--state-dir", state_dir, *(["--database", database] if database else [])]
    done = run_offline(arguments, quiet=here.quiet)
    match here.output:
        case OutputFormat.TABLE:
            print(f"restored {done['of']}: {done['runs']:,} runs, in {done['state_dir']}")
            start = ["toband", "--state-dir", str(done["state_dir"]), *(["--database", "…"] if database else [])]
            here.note(f"hint: start it with `{shlex.join(start)}`; it starts nothing until `toban system resume`")
        case OutputFormat.NAME:
            print(done["state_dir"])
        case _:
            emit_data(here, done)
