"""`toban man`: the manual pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from toban import __version__
from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown
from toban.cli.syntax import Argument, CommandContext, Option

if TYPE_CHECKING:
    from toban.cli.syntax.program import Program


def command_names(ctx: CommandContext, incomplete: str) -> list[str]:
    """Commands that have a page."""
    return [name for name, entry in ctx.program.entries.items() if not entry.words and name.startswith(incomplete)]


def man(
    ctx: CommandContext,
    command: Annotated[
        str,
        Argument(
            metavar="COMMAND",
            help="A command of the first level (default: the page of toban itself).",
            show_default=False,
            autocompletion=command_names,
        ),
    ] = "",
    to: Annotated[
        str, Option("--to", metavar="DIR", help="Write all pages to this directory.", show_default=False)
    ] = "",
) -> None:
    """Print a manual page, for `man -l -`, or write all of them.

    \b
    Examples:
      toban man | man -l -
      toban man runs | man -l -
      toban man --to ~/.local/share/man/man1
    """
    if to:
        if command:
            raise Failure("cannot write one page: --to writes all of them", Exit.USAGE)
        _write_all(ctx, to)
        return
    if command and command not in command_names(ctx, command):
        raise Failure(f"cannot show a page: no command {shown(command)}", Exit.NOT_FOUND, hint="see `toban --help`")
    print(_page(ctx.program, command), end="")


def _page(program: Program, command: str) -> str:
    from toban.cli.syntax.man_page import command_page, main_page

    return command_page(program, command, __version__) if command else main_page(program, __version__)


def _write_all(ctx: CommandContext, directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
        for command in ("", *command_names(ctx, "")):
            path = os.path.join(directory, f"toban-{command}.1" if command else "toban.1")
            with open(path, "w", encoding="utf-8") as file:
                file.write(_page(ctx.program, command))
    except OSError as error:
        raise Failure(f"cannot write {shown(str(error.filename))}: {error.strerror}", Exit.USAGE) from None
