"""Shell completion: the script for the shell, and what it may ask for by name.

Completion never complains and never takes long: without a daemon there is simply nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
    shell_complete,
)

from toban.cli.session import quiet_grpc

if TYPE_CHECKING:
    from toban.sdk import SyncClient

_VARIABLE: Final = "_TOBAN_COMPLETE"
_TIMEOUT: Final = 1.0
_MOST: Final = 500


class Shell(Enum):
    """Shells that can be helped."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False),
    ],
) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(toban completion bash)"
      toban completion fish > ~/.config/fish/completions/toban.fish
    """
    print(get_completion_script(prog_name="toban", complete_var=_VARIABLE, shell=shell.value))


def answer_shell(app: typer.Typer) -> int | None:
    """Answers the completion script; None if it was not the script that asked."""
    instruction = os.environ.get(_VARIABLE)
    if not instruction:
        return None
    completion_init()
    command = typer.main.get_command(app)
    return shell_complete(command, {}, "toban", _VARIABLE, instruction)


def workflow_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of workflows that begin so."""
    return _matching(incomplete, _ask(ctx, _workflows))


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of workflows; once they were begun, `NAME#number` and ids of the newest runs as well."""
    workflow, number, _ = incomplete.partition("#")
    if number:
        return _matching(incomplete, _ask(ctx, lambda client: _numbers(client, workflow)))
    found = _ask(ctx, _workflows)
    if incomplete:
        found += _ask(ctx, _ids)
    return _matching(incomplete, found)


def _workflows(client: SyncClient) -> list[str]:
    return [one.name for one in islice(client.list_workflows(page_size=_MOST), _MOST)]


def _numbers(client: SyncClient, workflow: str) -> list[str]:
    runs = islice(client.list_runs(workflow=workflow, page_size=_MOST), _MOST)
    return [f"{workflow}#{run.number}" for run in runs]


def _ids(client: SyncClient) -> list[str]:
    return [run.id for run in islice(client.list_runs(page_size=_MOST), _MOST)]


def _matching(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _ask(ctx: typer.Context, fetch: Callable[[SyncClient], list[str]]) -> list[str]:
    quiet_grpc()
    from toban.sdk import SyncClient, TobanError

    server = ctx.find_root().params.get("server")
    try:
        with SyncClient(server, timeout=_TIMEOUT, retry_for=0) as client:
            return fetch(client)
    except TobanError:
        return []
