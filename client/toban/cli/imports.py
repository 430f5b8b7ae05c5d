"""`toban import`: workflow files from crontabs and systemd timers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toban.cli.exits import Exit
from toban.cli.failures import Failure
from toban.cli.files import File, read
from toban.cli.output import emit_data, wide_table
from toban.cli.session import Output, OutputOption, Session, session, shown
from toban.cli.text import count as counted
from toban.cli.text import one_line, parse_at

if TYPE_CHECKING:
    from toban.importing.model import Imported, Refused
    from toban.importing.writing import Written

app = typer.Typer(
    name="import",
    help="""Make workflow files of what another scheduler has.

    Nothing is stored and nothing is changed: look at the files, then `toban apply` them and take the jobs out of the
    other scheduler.

    \b
    Examples:
      toban import crontab mycrontab -O workflows
      toban import systemd backup.timer
    """,
    no_args_is_help=True,
)

_STDOUT: Final = "-"
_SYSTEM_FILE: Final = "/etc/crontab"
_SYSTEM_DIRECTORY: Final = "/etc/cron.d"

ToOption = Annotated[
    str,
    typer.Option(
        "-O",
        "--to",
        metavar="DIR",
        help="Directory of the files, or - for standard output.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over files that are there.")]
SkipOption = Annotated[
    bool, typer.Option("--skip", help="What cannot be taken over is a warning, no error.")
]
CountOption = Annotated[
    int, typer.Option("-n", "--count", min=1, max=100, metavar="N", help="How many due times.")
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from", metavar="TIME", help="Due times after this instead of now.", show_default=False
    ),
]
ZoneOption = Annotated[
    str,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Where the clock of the old scheduler is; by default this machine's.",
        show_default=False,
    ),
]


@app.command()
def crontab(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A crontab, or - for one to read.")],
    system: Annotated[
        bool | None,
        typer.Option(
            "--system/--no-system",
            help="Whether a user stands before each command, as in /etc/crontab.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str,
        typer.Option("--user", metavar="NAME", help="Whose crontab it is.", show_default=False),
    ] = "",
    to: ToOption = ".",
    force: ForceOption = False,
    skip: SkipOption = False,
    count: CountOption = 10,
    start: FromOption = "",
    timezone: ZoneOption = "",
    output: OutputOption = None,
) -> None:
    """Make a workflow file of each line of a crontab.

    Shows the next due times side by side, as cron has them and as Toban has them. Lines that cannot be taken over are
    told with their reason, and the others are written.

    \b
    Examples:
      crontab -l | toban import crontab - --user alice -O workflows
      toban import crontab /etc/crontab
      toban import crontab jobs.cron --system --skip
      toban import crontab jobs.cron -O -
    """
    from toban.cli.imports_machine import home_of, is_user
    from toban.importing.crontab_drafts import import_crontab, looks_like_system

    here = session(ctx, output)
    what = f"import {shown(file)}"
    (found,) = read([file])
    text = _decoded(found, what)
    if system is None:
        system = _is_system_file(file)
        if not system and looks_like_system(text, is_user):
            raise Failure(
                f"cannot {what}: each command begins with the name of a user",
                Exit.USAGE,
                hint="--system if that is whom it runs as, --no-system if it is a program",
            )
    if system and user:
        raise Failure(
            f"cannot {what}: --user is for a user's own crontab, this one names users",
            Exit.USAGE,
            hint="--no-system if it is a user's own",
        )
    imported = import_crontab(
        text, file=found.name, system=system, zone=_zone(timezone, what), home=home_of, owner=user
    )
    _finish(here, imported, what, "cron", to, force, skip, count, start)


@app.command()
def systemd(
    ctx: typer.Context,
    timers: Annotated[
        list[str],
        typer.Argument(metavar="NAME.timer|FILE", help="Timers by name, or their unit files."),
    ],
    root: Annotated[
        str,
        typer.Option(
            "--root", metavar="DIR", help="Look for units below this.", show_default=False
        ),
    ] = "",
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="DIRECTIVE",
            help="Leave this out, though it has no counterpart; may be repeated.",
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
    """Make a workflow file of each timer and its service.

    Reads the unit files, with their drop-ins; systemd need not run. Directives that have no counterpart are an error
    that names them all.

    \b
    Examples:
      toban import systemd backup.timer
      toban import systemd ./units/report.timer -O workflows
      toban import systemd backup.timer --ignore PrivateTmp
    """
    from toban.cli.imports_machine import calendar_times, home_of
    from toban.importing.model import Draft, Imported, ImportProblem, Refused
    from toban.importing.timers import import_timer

    here = session(ctx, output)
    what = f"import {', '.join(map(shown, timers))}"
    zone = _zone(timezone, what)
    drafts: dict[str, Draft] = {}
    refused: list[Refused] = []
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
                raise ImportProblem(f"{drafts[draft.name].where} makes a workflow {draft.name} too")
            drafts[draft.name] = draft
        except ImportProblem as problem:
            refused.append(Refused(where=timer, reason=str(problem)))
    imported = Imported(drafts=tuple(drafts.values()), refused=tuple(refused))
    _finish(here, imported, what, "systemd", to, force, skip, count, start)


def _finish(
    here: Session,
    imported: Imported,
    what: str,
    source: str,
    to: str,
    force: bool,
    skip: bool,
    count: int,
    start: str,
) -> None:
    """Writes the files and tells what came of it; raises Failure if something was not taken over."""
    from toban.importing.model import ImportProblem, Refused
    from toban.importing.writing import written

    if to == _STDOUT and here.output is not Output.TABLE:
        raise Failure(
            f"cannot {what}: both the files and -o would be standard output",
            Exit.USAGE,
            hint="-O DIR writes the files elsewhere",
        )
    after = _after(start, what)
    ready: list[Written] = []
    refused = list(imported.refused)
    for draft in imported.drafts:
        try:
            ready.append(written(draft, after=after, count=count))
        except ImportProblem as problem:
            refused.append(Refused(where=draft.where, reason=str(problem)))
    files = _store(ready, to, force, what)
    match here.output:
        case Output.TABLE:
            _tell(here, ready, files, source, to=to)
        case Output.NAME:
            for each in ready:
                print(each.draft.name)
        case _:
            emit_data(here, _data(ready, files, refused))
    _tell_refused(here, refused, len(ready), what, skip)


def _tell_refused(
    here: Session, refused: Sequence[Refused], others: int, what: str, skip: bool
) -> None:
    if not refused:
        return
    if skip:
        for each in refused:
            here.warn(f"not taken over: {one_line(str(each))}")
        return
    more = f", {others} could be" if others else ""
    raise Failure(
        f"cannot {what}: {counted(len(refused), 'entry', 'entries')} not taken over{more}",
        Exit.INVALID_DEFINITION,
        lines=[str(each) for each in refused],
        hint="--skip makes this a warning",
    )


def _store(ready: Sequence[Written], to: str, force: bool, what: str) -> list[str]:
    """Writes each to a file of its own, all or none if one is there already; gives their paths."""
    if to == _STDOUT:
        print("---\n".join(each.text for each in ready), end="")
        return [_STDOUT for _ in ready]
    paths = [os.path.join(to, f"{each.draft.name}.yaml") for each in ready]
    there = [path for path in paths if os.path.lexists(path)]
    if there and not force:
        raise Failure(
            f"cannot {what}: {shown(there[0])} exists",
            Exit.CONFLICT,
            hint="--force writes over it, -O DIR elsewhere",
        )
    try:
        if paths:
            os.makedirs(to, exist_ok=True)
        for path, each in zip(paths, ready, strict=True):
            with open(path, "w" if force else "x", encoding="utf-8", newline="\n") as opened:
                opened.write(each.text)
    except OSError as error:
        raise Failure(f"cannot {what}: {error.strerror or error}", Exit.USAGE) from error
    return paths


def _tell(
    here: Session, ready: Sequence[Written], files: Sequence[str], source: str, *, to: str
) -> None:
    def say(text: str) -> None:
        # Standard output may be the files themselves.
        if to == _STDOUT:
            here.note(text)
        else:
            print(text)

    for each, file in zip(ready, files, strict=True):
        place = "" if to == _STDOUT else f"{one_line(file)}: "
        say(f"{place}{each.draft.name}, from {one_line(each.draft.where)}")
        for note in each.draft.notes:
            say(f"  note: {one_line(note)}")
        for line in _side_by_side(each, source):
            say(f"  {line}")
        if each.same is False:
            here.warn(f"{each.draft.name} is not due at the same times as in {source}")


def _side_by_side(each: Written, source: str) -> list[str]:
    if each.theirs is None and not each.ours:
        return ["due once per boot of the machine"]
    zone = each.draft.zone

    def clock(times: Sequence[datetime], at: int) -> str:
        if at >= len(times):
            return "-"
        return times[at].astimezone(zone).isoformat(sep=" ", timespec="seconds")

    if each.theirs is None:
        rows = [[clock(each.ours, at)] for at in range(len(each.ours))]
        return wide_table(["TOBAN"], rows).splitlines()
    length = max(len(each.theirs), len(each.ours))
    if not length:
        return ["never due again, on both sides"]
    rows = [
        [
            clock(each.theirs, at),
            clock(each.ours, at),
            "same" if each.theirs[at : at + 1] == each.ours[at : at + 1] else "DIFFERENT",
        ]
        for at in range(length)
    ]
    return wide_table([source.upper(), "TOBAN", ""], rows).splitlines()


def _data(
    ready: Sequence[Written], files: Sequence[str], refused: Sequence[Refused]
) -> dict[str, Any]:
    return {
        "workflows": [
            {
                "name": each.draft.name,
                "file": file,
                "source": each.draft.where,
                "notes": list(each.draft.notes),
                "due_there": None
                if each.theirs is None
                else [at.isoformat() for at in each.theirs],
                "due_here": [at.isoformat() for at in each.ours],
                "same": each.same,
            }
            for each, file in zip(ready, files, strict=True)
        ],
        "refused": [{"source": each.where, "reason": each.reason} for each in refused],
    }


def _is_system_file(file: str) -> bool:
    path = os.path.abspath(file)
    return path == _SYSTEM_FILE or os.path.dirname(path) == _SYSTEM_DIRECTORY


def _decoded(file: File, what: str) -> str:
    try:
        return file.data.decode()
    except UnicodeDecodeError as error:
        line = file.data[: error.start].count(b"\n") + 1
        raise Failure(f"cannot {what}: line {line} is not UTF-8", Exit.USAGE) from error


def _zone(name: str, what: str) -> str:
    from toban.cli.imports_machine import machine_zone
    from toban.definition.timing.zones import check_zone

    if not name:
        return machine_zone()
    try:
        return check_zone(name)
    except ValueError as error:
        raise Failure(f"cannot {what}: --timezone: {error}", Exit.USAGE) from error


def _after(start: str, what: str) -> datetime:
    now = datetime.now(UTC).replace(microsecond=0)
    if not start:
        return now
    try:
        return parse_at(start, now).astimezone(UTC)
    except ValueError as error:
        raise Failure(f"cannot {what}: --from: {error}", Exit.USAGE) from error
