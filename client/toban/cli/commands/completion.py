"""`toban completion`: the completion script of a shell."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from toban.cli.syntax import Argument
from toban.cli.syntax.shell_completion import script


class Shell(Enum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      eval "$(toban completion bash)"
      toban completion fish > ~/.config/fish/completions/toban.fish
    """
    print(script("toban", shell.value))
