"""`toban completion`: the completion script of a shell, and the answers to its questions."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated, Final

import typer
from typer.completion import (  # type: ignore[attr-defined]
    completion_init,
    get_completion_script,
    shell_complete,
)

_VARIABLE: Final = "_TOBAN_COMPLETE"


class Shell(Enum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False),
    ],
) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      eval "$(toban completion bash)"
      toban completion fish > ~/.config/fish/completions/toban.fish
    """
    print(get_completion_script(prog_name="toban", complete_var=_VARIABLE, shell=shell.value))


def answer_shell(app: typer.Typer) -> int | None:
    """Answers the completion script; None if this is not a call by the script."""
    instruction = os.environ.get(_VARIABLE)
    if not instruction:
        return None
    completion_init()
    command = typer.main.get_command(app)
    return shell_complete(command, {}, "toban", _VARIABLE, instruction)
