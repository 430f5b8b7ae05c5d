"""`toban import`: writes workflow files from crontabs and systemd timers."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

from toban.cli.args.file_arguments import STDIN
from toban.cli.args.time_options import time_option
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.render.import_report import finish
from toban.cli.session import OutputOption, session, shown
from toban.cli.syntax import Argument, CommandContext, Group, Option

app = Group(
    name="import",
    help="""Write workflow files from the jobs of another scheduler.

    Import stores and changes nothing: check the files, `toban apply` them, and remove the jobs from the other
    scheduler.

    \b
    Examples:
      toban import crontab mycrontab -O workflows
      toban import systemd backup.timer
    """,
)

_SYSTEM_FILE: Final = "/etc/crontab"
_SYSTEM_DIRECTORY: Final = "/etc/cron.d"

ToOption = Annotated[
    str,
    Option(
        "-O",
        "--to",
        metavar="DIR",
        help="Directory for the files, or - for standard output.",
    ),
]
ForceOption = Annotated[bool, Option("--force", help="Overwrite existing files.")]
SkipOption = Annotated[bool, Option("--skip", help="Only warn about entries that cannot be imported.")]
CountOption = Annotated[int, Option("-n", "--count", min=1, max=100, metavar="N", help="Number of due times.")]
FromOption = Annotated[
    str,
    Option("--from", metavar="TIME", help="Show due times after this (default: now).", show_default=False),
]
ZoneOption = Annotated[
    str,
    Option(
        "--timezone",
        metavar="ZONE",
        help="Time zone of the old scheduler (default: that of this machine).",
        show_default=False,
    ),
]


@app.command()
def crontab(
    ctx: CommandContext,
    file: Annotated[str, Argument(metavar="FILE|-", help="Crontab file, or - for standard input.")],
    system: Annotated[
        bool | None,
        Option(
            "--system/--no-system",
            help="Whether each line names a user before the command, as in /etc/crontab.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str,
        Option("--user", metavar="NAME", help="Owner of the crontab.", show_default=False),
    ] = "",
    to: ToOption = ".",
    force: ForceOption = False,
    skip: SkipOption = False,
    count: CountOption = 10,
    start: FromOption = "",
    timezone: ZoneOption = "",
    output: OutputOption = None,
) -> None:
    """Write a workflow file for each line of a crontab.

    Shows the next due times in cron and in Toban side by side. Reports lines that cannot be imported with the reason,
    and imports the others.

    \b
    Examples:
      crontab -l | toban import crontab - --user alice -O workflows
      toban import crontab /etc/crontab
      toban import crontab jobs.cron --system --skip
      toban import crontab jobs.cron -O -
    """
    from toban.cli.args.import_machine import home_of, is_user
    from toban.importers.crontab_drafts import import_crontab, looks_like_system

    here = session(ctx, output)
    what = f"import {shown(file)}"
    name, text = _read(file, what)
    if system is None:
        system = _is_system_file(file)
        if not system and looks_like_system(text, is_user):
            raise Failure(
                f"cannot {what}: each command begins with a user name",
                Exit.USAGE,
                hint="--system if it names the user to run as, --no-system if it is a program",
            )
    if system and user:
        raise Failure(
            f"cannot {what}: --user is for the crontab of one user, but this one names users",
            Exit.USAGE,
            hint="--no-system if it belongs to one user",
        )
    imported = import_crontab(text, file=name, system=system, zone=_zone(timezone, what), home=home_of, owner=user)
    if not imported.drafts and not imported.refused:
        here.note(f"{shown(name)} has no entries")
    finish(here, imported, what, "cron", to, force, skip, count, _after(start, what))


@app.command()
def systemd(
    ctx: CommandContext,
    timers: Annotated[
        list[str],
        Argument(metavar="NAME.timer|FILE", help="Names of timers, or their unit files."),
    ],
    root: Annotated[
        str,
        Option("--root", metavar="DIR", help="Root directory for unit files.", show_default=False),
    ] = "",
    ignore: Annotated[
        list[str] | None,
        Option(
            "--ignore",
            metavar="DIRECTIVE",
            help="Leave out this unsupported directive; may be repeated.",
            show_default=False,
        ),
    ] = None,
    to: ToOption = ".",
    force: ForceOption = False,
    skip: SkipOption = False,
    count: CountOption = 10,
    start: FromOption = "",
    timezone: ZoneOption = "",
    output: OutputOption = None,
) -> None:
    """Write a workflow file for each timer and its service.

    Reads the unit files with their drop-ins; systemd need not run. Directives without a counterpart in Toban are an
    error that lists them all.

    \b
    Examples:
      toban import systemd backup.timer
      toban import systemd ./units/report.timer -O workflows
      toban import systemd backup.timer --ignore PrivateTmp
    """
    from toban.cli.args.import_machine import calendar_times, home_of
    from toban.importers.import_model import Imported, ImportProblem, RefusedEntry, WorkflowDraft
    from toban.importers.systemd_timers import import_timer

    here = session(ctx, output)
    what = f"import {', '.join(map(shown, timers))}"
    zone = _zone(timezone, what)
    drafts: dict[str, WorkflowDraft] = {}
    refused: list[RefusedEntry] = []
    for timer in timers:
        try:
            draft = import_timer(
                timer,
                root=root,
                zone=zone,
                home=home_of,
                ignored=ignore or [],
                times=calendar_times,
            )
            if draft.name in drafts:
                raise ImportProblem(f"{drafts[draft.name].where} also gives a workflow {draft.name}")
            drafts[draft.name] = draft
        except ImportProblem as problem:
            refused.append(RefusedEntry(where=timer, reason=str(problem), ignorable=problem.ignorable))
    imported = Imported(drafts=tuple(drafts.values()), refused=tuple(refused))
    finish(here, imported, what, "systemd", to, force, skip, count, _after(start, what))


def _is_system_file(file: str) -> bool:
    path = os.path.abspath(file)
    return path == _SYSTEM_FILE or os.path.dirname(path) == _SYSTEM_DIRECTORY


def _read(file: str, what: str) -> tuple[str, str]:
    """The name and the text of a crontab. Raises Failure."""
    if os.path.isdir(file):
        raise Failure(
            f"cannot {what}: is a directory",
            Exit.USAGE,
            hint=f"give one file at a time, such as {shown(os.path.join(file, 'NAME'))}",
        )
    try:
        if file == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as opened:
                data = opened.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Failure(f"cannot {what}: {reason}", Exit.USAGE) from error
    try:
        return STDIN if file == "-" else file, data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Failure(f"cannot {what}: line {line} is not UTF-8", Exit.USAGE) from error


def _after(start: str, what: str) -> datetime:
    return (time_option(start, "--from", what) or datetime.now(UTC).replace(microsecond=0)).astimezone(UTC)


def _zone(name: str, what: str) -> str:
    from toban.cli.args.import_machine import machine_zone
    from toban.definition.timing.zones import check_zone

    if not name:
        return machine_zone()
    try:
        return check_zone(name)
    except ValueError as error:
        raise Failure(f"cannot {what}: --timezone: {error}", Exit.USAGE) from error
