"""`toban system`: the daemon itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from toban.cli.names import connect
from toban.cli.output import Column, emit_list, emit_one, fields
from toban.cli.session import OutputOption, Session, session
from toban.cli.text import clock, count, span

if TYPE_CHECKING:
    from toban.v1 import system_pb2

app = typer.Typer(
    name="system",
    help="""Show the daemon and its configuration.

    \b
    Examples:
      toban system info
      toban system config
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
        Column("SOURCE", lambda value: value.source),
    ]
    emit_list(here, values, columns, name=lambda value: str(value.key))


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
            ("database", found.database),
            ("listens on", ", ".join(found.listen)),
            ("workflows", str(found.workflows)),
            ("active runs", str(found.active_runs)),
            ("running processes", str(found.running_processes)),
            ("recovery", _recovery(recovery) if found.HasField("recovery") else ""),
        ],
    )


def _recovery(recovery: system_pb2.Recovery) -> str:
    parts = [
        (recovery.reattached, "re-attached"),
        (recovery.finished_meanwhile, "had ended meanwhile"),
        (recovery.relaunched, "started anew"),
        (recovery.lost, "lost"),
    ]
    told = [f"{number} {what}" for number, what in parts if number]
    runs = f"{count(recovery.runs, 'unfinished run')}"
    return f"{runs}; processes: {', '.join(told)}" if told else runs
