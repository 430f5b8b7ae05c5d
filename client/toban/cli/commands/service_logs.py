"""`toban service logs`: the daemon's own log, from the journal."""

from __future__ import annotations

import os
import shutil
from typing import Annotated, Final

from toban.cli.args.completers import workflow_names
from toban.cli.commands.logs import Level
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import OutputFormat, OutputOption, session
from toban.cli.syntax import CommandContext, Option

# The priorities of syslog: the least important one that is shown.
_PRIORITIES: Final = {
    Level.DEBUG: "debug",
    Level.INFO: "info",
    Level.WARNING: "warning",
    Level.ERROR: "err",
}


def logs(
    ctx: CommandContext,
    user: Annotated[bool, Option("--user", help="Of your own service.")] = False,
    follow: Annotated[bool, Option("-f", "--follow", help="Show new lines as they come, until Ctrl-C.")] = False,
    tail: Annotated[int, Option("--tail", "-n", min=0, metavar="N", help="Start with the last N lines.")] = 50,
    since: Annotated[
        str, Option("--since", metavar="TIME", help="Only since then, in the words of journalctl.", show_default=False)
    ] = "",
    run: Annotated[
        str, Option("--run", "-r", metavar="RUN", help="Only about this run: NAME#number.", show_default=False)
    ] = "",
    workflow: Annotated[
        str,
        Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="Only about this workflow.",
            show_default=False,
            autocompletion=workflow_names,
        ),
    ] = "",
    step: Annotated[str, Option("--step", "-S", metavar="STEP", help="Only about this step.", show_default=False)] = "",
    level: Annotated[
        Level | None, Option("--level", help="Only lines of at least this level.", show_default=False)
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show the log of the daemon, from the journal.

    `toban logs` shows the output of runs. It is journalctl with the fields that the daemon writes: TOBAN_RUN,
    TOBAN_RUN_ID, TOBAN_WORKFLOW, TOBAN_STEP and TOBAN_ACTION. Reading the log of the system needs root, or the group
    systemd-journal.

    \b
    Examples:
      toban service logs -f
      toban service logs --run 'nightly#12'
      toban service logs --level warning --since today
      toban service logs -o json
    """
    from toban.cli.systemd.service_layout import UNIT

    here = session(ctx, output)
    if here.output in (OutputFormat.YAML, OutputFormat.NAME):
        raise Failure("cannot show the log as yaml or name: use -o json", Exit.USAGE)
    program = shutil.which("journalctl")
    if program is None:
        raise Failure("cannot show the log: there is no journalctl", Exit.UNREACHABLE)
    words = [program, "--no-pager", "--quiet", "--lines", str(tail), "--user-unit" if user else "--unit", UNIT]
    words += ["--output", "json"] if here.output is OutputFormat.JSON else []
    words += ["--follow"] if follow else []
    words += ["--since", since] if since else []
    words += ["--priority", _PRIORITIES[level]] if level else []
    # A field that is given twice means either value; different fields must all match.
    words += [f"TOBAN_RUN={run}"] if "#" in run else [f"TOBAN_RUN_ID={run}"] if run else []
    words += [f"TOBAN_WORKFLOW={workflow}"] if workflow else []
    words += [f"TOBAN_STEP={step}"] if step else []
    os.execv(program, words)  # noqa: S606 - no shell
