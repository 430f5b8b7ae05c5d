"""`toban system`: the daemon itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toban.cli.args.names import connect
from toban.cli.exits import Exit
from toban.cli.human_text import clock, span
from toban.cli.render.output import Column, emit_data, emit_list, emit_one, fields, table, to_dict
from toban.cli.session import Output, OutputOption, Session, complain, session
from toban.quantity_text import counted, size_text

if TYPE_CHECKING:
    from toban.v1 import system_pb2

app = typer.Typer(
    name="system",
    help="""Show the daemon and its configuration, and look after it.

    \b
    Examples:
      toban system info
      toban system config
      toban system gc --dry-run
      toban system doctor
      toban system drain
      toban system reload
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def info(ctx: typer.Context, output: OutputOption = None) -> None:
    """Show the daemon: its version, its load, its last start.

    \b
    Examples:
      toban system info
      toban system info -o json
    """
    here = session(ctx, output)
    with connect(here, "show the daemon") as client:
        found = client.get_info()
        address = client.address.text
    emit_one(here, found, name=address, show=lambda: _show(here, found, address))


@app.command()
def config(ctx: typer.Context, output: OutputOption = None) -> None:
    """Show the configuration and where each value came from.

    \b
    Examples:
      toban system config
      toban system config -o json
    """
    here = session(ctx, output)
    with connect(here, "show the configuration") as client:
        values = client.get_config()
    columns: list[Column[system_pb2.ConfigValue]] = [
        Column("KEY", lambda value: value.key, lambda _: "bold"),
        Column("VALUE", lambda value: _value(value.value_json), folds=True),
        Column("SOURCE", _config_source),
    ]
    emit_list(here, values, columns, name=lambda value: str(value.key))


@app.command()
def gc(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go; nothing is changed.")] = False,
    output: OutputOption = None,
) -> None:
    """Remove runs that are no longer kept; compress finished logs.

    The daemon does this by itself every few minutes too, by the `retention` settings of its configuration and of each
    workflow. Active runs and the last run of each workflow always stay.

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
        case Output.TABLE:
            _show_garbage(here, done, dry_run)
        case Output.NAME:
            for run in done.runs:
                print(run.id)
        case _:
            emit_data(here, to_dict(done))


def _show_garbage(here: Session, done: system_pb2.CollectGarbageResponse, dry_run: bool) -> None:
    columns: list[Column[system_pb2.CollectedRun]] = [
        Column("RUN", lambda run: f"{run.workflow}#{run.number}", lambda _: "bold"),
        Column("ENDED", lambda run: clock(run.finished_at)),
        Column("SIZE", lambda run: size_text(run.bytes)),
        Column("REASON", lambda run: run.reason, folds=True),
        Column("ID", lambda run: run.id, optional=True),
    ]
    if done.runs:
        table(here, done.runs, columns)
    if done.run_count > len(done.runs):
        print(f"and {counted(done.run_count - len(done.runs), 'more run')}")
    told = [
        f"{counted(done.run_count, 'run')}, {counted(done.strays, 'stray')}, {size_text(done.bytes)}",
        f"{counted(done.compressed_logs, 'log')}",
    ]
    if dry_run:
        print(f"would remove {told[0]}; would compress {told[1]}")
    else:
        print(f"removed {told[0]}; compressed {told[1]}")


_WARNINGS: Final = 10
_MARKS: Final = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "failed": ("✗", "red"),
    "repaired": ("+", "cyan"),
}


@app.command()
def doctor(
    ctx: typer.Context,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what is safe to mend, and say what was done."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Look for what is wrong with the daemon, and mend it.

    Looks at the database, the state directory, permissions, the clock, space and stray processes. Exits with 1 if
    something is wrong and was not mended. Active runs and the history are never touched.

    \b
    Examples:
      toban system doctor
      toban system doctor --repair
      toban system doctor -o json
    """
    here = session(ctx, output)
    with connect(here, "look for what is wrong") as client:
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
        raise typer.Exit(Exit.RUN_FAILED)


@app.command()
def drain(ctx: typer.Context, output: OutputOption = None) -> None:
    """Let schedules and events start nothing for a while.

    What is due meanwhile is skipped, and `toban why` says so; events are kept, and start what they start afterwards.
    Runs that were started go on, and `toban run` still starts others. It holds until `toban system resume`, or until
    the daemon is restarted.

    \b
    Examples:
      toban system drain
      toban system drain -o json
    """
    here = session(ctx, output)
    with connect(here, "drain the daemon") as client:
        changed = client.drain()
    said = "draining" if changed else "already draining"
    told = f"{said}: schedules and events start nothing"
    _tell_draining(here, told, draining=True, changed=changed)
    here.note("hint: `toban system resume` lets them start runs again; `toban run` works meanwhile")


@app.command()
def resume(ctx: typer.Context, output: OutputOption = None) -> None:
    """Let schedules and events start runs again.

    Due times that were skipped meanwhile are not made up for; events that came meanwhile start what they start.

    \b
    Example:
      toban system resume
    """
    here = session(ctx, output)
    with connect(here, "resume the daemon") as client:
        changed = client.resume()
    said = "resumed" if changed else "was not draining"
    told = f"{said}: schedules and events start runs"
    _tell_draining(here, told, draining=False, changed=changed)


@app.command()
def reload(ctx: typer.Context, output: OutputOption = None) -> None:
    """Read all definition files again, and show what changed.

    These are the files and directories that `definitions` in the daemon's configuration names. Their changes are
    noticed without this too. Exits with 7 if a file cannot be used: what it defined before stays as it was.

    \b
    Examples:
      toban system reload
      toban system reload -o json
    """
    here = session(ctx, output)
    with connect(here, "reload the definition files") as client:
        done = client.reload()
    match here.output:
        case Output.TABLE:
            _show_reload(done)
        case Output.NAME:
            for change in done.changes:
                print(change.name)
        case _:
            emit_data(here, to_dict(done))
    if done.broken:
        for file in done.broken:
            for problem in file.problems:
                complain(problem)
        raise typer.Exit(Exit.INVALID_DEFINITION)


def _show_reload(done: system_pb2.ReloadResponse) -> None:
    from toban.v1 import system_pb2

    known = system_pb2.DefinitionOutcome.DESCRIPTOR.values_by_number
    for change in done.changes:
        name = known[change.outcome].name if change.outcome in known else ""
        word = name.removeprefix("DEFINITION_OUTCOME_").lower() or "changed"
        print(f"{change.name} {word} ({change.path})")
    if done.change_count > len(done.changes):
        print(f"and {counted(done.change_count - len(done.changes), 'more change')}")
    read = f"{counted(done.files, 'file')} read"
    broken = f", {len(done.broken)} of them broken" if done.broken else ""
    print(f"{read}{broken}, {counted(done.change_count, 'change')}")


def _tell_draining(here: Session, text: str, *, draining: bool, changed: bool) -> None:
    match here.output:
        case Output.TABLE:
            print(text)
        case Output.NAME:
            print("draining" if draining else "serving")
        case _:
            emit_data(here, {"draining": draining, "changed": changed})


def _found(finding: system_pb2.Finding) -> str:
    """A status that this client does not know yet is worth a look at least."""
    from toban.v1 import system_pb2

    known = system_pb2.FindingStatus.DESCRIPTOR.values_by_number
    name = known[finding.status].name if finding.status in known else ""
    word = name.removeprefix("FINDING_STATUS_").lower()
    return word if word in _MARKS else "warning"


def _value(text: str) -> str:
    """Strings without their quotes; everything else as JSON has it."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else "" if value is None else text


def _show(here: Session, found: system_pb2.GetInfoResponse, address: str) -> None:
    recovery = found.recovery
    fields(
        here,
        [
            ("address", address),
            ("version", found.version),
            ("pid", str(found.pid)),
            ("started", clock(found.started_at)),
            ("up for", span(found.started_at, None, datetime.now(UTC))),
            ("state directory", found.state_dir),
            ("database", _database(found)),
            ("listens on", ", ".join(found.listen)),
            ("workflows", str(found.workflows)),
            ("jobs", str(found.jobs) if found.jobs else ""),
            ("schedules", _schedules(found)),
            ("pending events", str(found.pending_events or "")),
            ("active runs", str(found.active_runs)),
            ("runs of events", _event_runs(found)),
            ("running processes", _running(found)),
            ("cgroups below", found.cgroup),
            ("recovery", _recovery(recovery) if found.HasField("recovery") else ""),
            *_definition_files(found),
            *_health(found),
        ],
    )


def _schedules(found: system_pb2.GetInfoResponse) -> str:
    if found.draining:
        return f"{found.schedules}, draining: they start nothing"
    if not found.schedules:
        return ""
    due = f", next due {clock(found.next_due)}" if found.HasField("next_due") else ""
    return f"{found.schedules}{due}"


def _event_runs(found: system_pb2.GetInfoResponse) -> str:
    """Those that are under way and those that wait; nothing from a daemon that knows no events."""
    if not found.event_concurrency:
        return ""
    waiting = f", {found.event_runs_waiting} waiting" if found.event_runs_waiting else ""
    return f"{found.event_runs} of at most {found.event_concurrency}{waiting}"


def _definition_files(found: system_pb2.GetInfoResponse) -> list[tuple[str, str]]:
    """How many there are, and a line for each problem of those that cannot be used; of warnings the first."""
    from toban.v1 import system_pb2

    if not found.definition_file_count:
        return []
    bad = system_pb2.DEFINITION_FILE_STATE_BROKEN
    broken = [file for file in found.definition_files if file.state == bad]
    warned = [file for file in found.definition_files if file.state != bad and file.problems]
    told = f", {len(broken)} of them broken" if broken else ""
    told += f", {len(warned)} with warnings" if warned else ""
    lines = [("definition files", f"{found.definition_file_count}{told}")]
    for file in broken:
        lines += [("  broken", problem) for problem in file.problems]
    warnings = [problem for file in warned for problem in file.problems]
    lines += [("  warning", problem.replace(": warning: ", ": ", 1)) for problem in warnings[:_WARNINGS]]
    if len(warnings) > _WARNINGS:
        more = len(warnings) - _WARNINGS
        lines.append(("  warnings", f"{more} more, which `toban system info -o json` shows"))
    return lines


def _running(found: system_pb2.GetInfoResponse) -> str:
    most = f" of at most {found.max_attempts_running}" if found.max_attempts_running else ""
    waiting = f", {found.waiting_attempts} waiting" if found.waiting_attempts else ""
    return f"{found.running_processes}{most}{waiting}"


def _health(found: system_pb2.GetInfoResponse) -> list[tuple[str, str]]:
    """A line for the whole, and one for each thing that is not well, the worst first."""
    if not found.HasField("health"):
        return []
    lines = [("health", _health_word(found.health.status))]
    for each in found.health.conditions:
        told = f"{_health_word(each.status)} since {clock(each.since)}: {each.detail}"
        lines.append((f"  {each.name}", told))
    return lines


def _health_word(status: system_pb2.HealthStatus.ValueType) -> str:
    from toban.v1 import system_pb2

    return system_pb2.HealthStatus.Name(status).removeprefix("HEALTH_STATUS_").lower()


def _config_source(value: system_pb2.ConfigValue) -> str:
    from toban.v1 import system_pb2

    return system_pb2.ConfigSource.Name(value.source).removeprefix("CONFIG_SOURCE_").lower()


def _database(info: system_pb2.GetInfoResponse) -> str:
    from toban.v1 import system_pb2

    return system_pb2.DatabaseKind.Name(info.database).removeprefix("DATABASE_KIND_").lower()


def _recovery(recovery: system_pb2.Recovery) -> str:
    parts = [
        (recovery.reattached, "re-attached"),
        (recovery.finished_meanwhile, "had ended meanwhile"),
        (recovery.relaunched, "started anew"),
        (recovery.lost, "lost"),
        (recovery.cleaned_up, "cleaned up"),
    ]
    told = [f"{number} {what}" for number, what in parts if number]
    runs = f"{counted(recovery.runs, 'unfinished run')}"
    told_of = f"{runs}; processes: {', '.join(told)}" if told else runs
    return told_of if recovery.HasField("finished_at") else f"{told_of}; goes on"
