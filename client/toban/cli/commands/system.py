"""`toban system`: the daemon: info, configuration, garbage collection, doctor and drain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.args.name_arguments import connect
from toban.cli.commands.system_reload import reload
from toban.cli.exits import Exit
from toban.cli.human_text import enum_word
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, table, time_column
from toban.cli.session import OutputFormat, OutputOption, Session, session
from toban.cli.syntax import CommandContext, ExitCommand, Group, Option
from toban.message_json.message_data import to_dict
from toban.quantity_text import counted, size_text

if TYPE_CHECKING:
    from toban.v1 import system_pb2

app = Group(
    name="system",
    help="""Inspect and maintain the daemon.

    \b
    Examples:
      toban system info
      toban system config
      toban system gc --dry-run
      toban system doctor
      toban system drain
      toban system reload
      toban system migrate-store --to postgresql://db/toban
    """,
)


@app.command()
def info(ctx: CommandContext, output: OutputOption = None) -> None:
    """Show the daemon: version, load, recovery and health.

    \b
    Examples:
      toban system info
      toban system info -o json
    """
    from toban.cli.render.daemon_report import report_daemon

    here = session(ctx, output)
    with connect(here, "show the daemon") as client:
        found = client.get_info()
        address = client.address.text
    emit_one(here, found, name=address, show=lambda: report_daemon(here, found, address))


@app.command()
def config(ctx: CommandContext, output: OutputOption = None) -> None:
    """Show the configuration and the source of each value.

    \b
    Examples:
      toban system config
      toban system config -o json
    """
    from toban.v1 import system_pb2

    here = session(ctx, output)
    with connect(here, "show the configuration") as client:
        values = client.get_config()
    columns: list[Column[system_pb2.ConfigValue]] = [
        Column("KEY", lambda value: value.key, lambda _: "bold"),
        Column("VALUE", lambda value: _value(value.value_json), folds=True),
        Column("SOURCE", lambda value: f"{enum_word(system_pb2.ConfigSource, value.source)} {value.place}".rstrip()),
        Column("OVERRIDES", lambda value: ", ".join(value.overridden), optional=True, folds=True),
        Column("CHANGED BY", lambda value: "reload" if value.live else "restart", optional=True),
    ]
    emit_list(here, values, columns, name=lambda value: str(value.key))


@app.command()
def gc(
    ctx: CommandContext,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be removed.")] = False,
    output: OutputOption = None,
) -> None:
    """Remove runs past their retention; compress finished logs.

    The daemon also does this every few minutes, by the `retention` settings of its configuration and of each workflow.
    Active runs and the last run of each workflow always stay.

    \b
    Examples:
      toban system gc --dry-run
      toban system gc
      toban system gc -o json
    """
    here = session(ctx, output)
    with connect(here, "collect garbage") as client:
        done = client.collect_garbage(dry_run=dry_run)
    match here.output:
        case OutputFormat.TABLE:
            _show_garbage(here, done, dry_run)
        case OutputFormat.NAME:
            for run in done.runs:
                print(run.id)
        case _:
            emit_data(here, to_dict(done))


def _show_garbage(here: Session, done: system_pb2.CollectGarbageResponse, dry_run: bool) -> None:
    columns: list[Column[system_pb2.CollectedRun]] = [
        Column("RUN", lambda run: f"{run.workflow}#{run.number}", lambda _: "bold"),
        time_column("ENDED", lambda run: run.finished_at),
        Column("SIZE", lambda run: size_text(run.bytes)),
        Column("REASON", lambda run: run.reason, folds=True),
        Column("ID", lambda run: run.id, optional=True),
    ]
    if done.runs:
        table(here, done.runs, columns)
    if done.run_count > len(done.runs):
        print(f"and {counted(done.run_count - len(done.runs), 'more run')}")
    removed = f"{counted(done.run_count, 'run')}, {counted(done.strays, 'stray')}, {size_text(done.bytes)}"
    compressed = counted(done.compressed_logs, "log")
    if dry_run:
        print(f"would remove {removed}; would compress {compressed}")
    else:
        print(f"removed {removed}; compressed {compressed}")


_MARKS: Final = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "failed": ("✗", "red"),
    "repaired": ("+", "cyan"),
}


@app.command()
def doctor(
    ctx: CommandContext,
    repair: Annotated[
        bool,
        Option("--repair", help="Repair what is safe to repair, and report it."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Check the daemon for problems, and repair them.

    Checks the database, the state directory, permissions, the clock, free space and stray processes. Exits with 1 if a
    problem remains. Never changes active runs or the history.

    \b
    Examples:
      toban system doctor
      toban system doctor --repair
      toban system doctor -o json
    """
    here = session(ctx, output)
    with connect(here, "check the daemon") as client:
        findings = client.doctor(repair=repair)
    columns: list[Column[system_pb2.Finding]] = [
        Column(
            "STATUS",
            lambda finding: f"{_MARKS[_found(finding)][0]} {_found(finding)}",
            lambda finding: _MARKS[_found(finding)][1],
        ),
        Column("CHECK", lambda finding: finding.check, lambda _: "bold"),
        Column("FOUND", lambda finding: finding.detail, folds=True),
        Column("WHAT TO DO", lambda finding: finding.hint, folds=True),
    ]
    emit_list(here, findings, columns, name=lambda finding: str(finding.check))
    if any(_found(finding) == "failed" for finding in findings):
        raise ExitCommand(Exit.RUN_FAILED)


@app.command()
def drain(ctx: CommandContext, output: OutputOption = None) -> None:
    """Stop schedules and events from starting runs.

    Until `toban system resume`, or until the daemon restarts, due times are skipped, which `toban why` reports; events
    stay pending and start their runs afterwards. Started runs continue, and `toban run` still starts others.

    \b
    Examples:
      toban system drain
      toban system drain -o json
    """
    here = session(ctx, output)
    with connect(here, "drain the daemon") as client:
        changed = client.drain()
    state = "draining" if changed else "already draining"
    _report_draining(here, f"{state}: schedules and events start no runs", draining=True, changed=changed)
    here.note("hint: `toban system resume` lets them start runs again; `toban run` still works")


@app.command()
def resume(ctx: CommandContext, output: OutputOption = None) -> None:
    """Let schedules and events start runs again.

    Due times that were skipped while draining stay skipped; pending events start their runs.

    \b
    Example:
      toban system resume
    """
    here = session(ctx, output)
    with connect(here, "resume the daemon") as client:
        changed = client.resume()
    state = "resumed" if changed else "was not draining"
    _report_draining(here, f"{state}: schedules and events start runs", draining=False, changed=changed)


app.command()(reload)


@app.command("migrate-store")
def migrate_store(
    ctx: CommandContext,
    to: Annotated[
        str,
        Option("--to", metavar="URL", help="An empty database: postgresql://… or sqlite:///PATH.", show_default=False),
    ],
    state_dir: Annotated[
        str,
        Option("--state-dir", metavar="DIR", help="The state directory of the daemon.", show_default=False),
    ] = "",
    database: Annotated[
        str,
        Option("--database", metavar="URL", help="The database to move from.", show_default=False),
    ] = "",
    config: Annotated[
        str,
        Option("--config", metavar="FILE", help="The configuration that names both.", show_default=False),
    ] = "",
    output: OutputOption = None,
) -> None:
    """Move the daemon's database to PostgreSQL, or back to SQLite.

    Run it as the user of the daemon, while the daemon is stopped. It copies every row, compares the number and the
    digest of the rows of each table, and says which setting to change. Repeat it after an interruption: it continues.
    The old database stays as it is, but no daemon starts on it again.

    \b
    Examples:
      toban system migrate-store --to postgresql://db/toban --state-dir state
      toban system migrate-store --to postgresql://db/toban --config toband.toml
    """
    from toban.cli.commands.offline_daemon import run_offline

    here = session(ctx, output)
    given = {"--config": config, "--state-dir": state_dir, "--database": database}
    options = [word for name, value in given.items() if value for word in (name, value)]
    done = run_offline(["migrate-store", "--to", to, *options], quiet=here.quiet)
    match here.output:
        case OutputFormat.TABLE:
            print(f"moved {done['rows']:,} rows of {len(done['tables'])} tables; their digests are equal")
            where = done["config_file"] or "the configuration of the daemon"
            print(f'now set in {where}: database = "{done["database"]}"')
        case OutputFormat.NAME:
            print(done["database"])
        case _:
            emit_data(here, done)


def _report_draining(here: Session, text: str, *, draining: bool, changed: bool) -> None:
    match here.output:
        case OutputFormat.TABLE:
            print(text)
        case OutputFormat.NAME:
            print("draining" if draining else "serving")
        case _:
            emit_data(here, {"draining": draining, "changed": changed})


def _found(finding: system_pb2.Finding) -> str:
    """The status; a warning if this client does not know it yet."""
    from toban.v1 import system_pb2

    word = enum_word(system_pb2.FindingStatus, finding.status)
    return word if word in _MARKS else "warning"


def _value(text: str) -> str:
    """A setting: strings without quotes, everything else as JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else "" if value is None else text
