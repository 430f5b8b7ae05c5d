"""Declares commands: a function whose parameters are annotated with Option and Argument.

    def show(ctx: Context, run: Annotated[str, Argument(metavar="RUN")], all: Annotated[bool, Option("--all")] = False)

A parameter is a str, int, float, bool or an Enum, may be a list of them, and may be None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toban.cli.syntax.program import Program

Completer = Callable[..., list[str]]
"""Returns the words that complete a value, from the incomplete word or from the CommandContext and the word."""


class Option:
    """An option, such as `--limit N`. A bool is a flag; `--on/--off` is a flag that can be turned off."""

    def __init__(
        self,
        *names: str,
        metavar: str = "",
        help: str = "",  # noqa: A002 - the word that everybody looks for
        show_default: bool = True,
        autocompletion: Completer | None = None,
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
    ) -> None:
        self.names = tuple(name for declared in names for name in declared.partition("/")[::2] if name)
        self.off = tuple(declared.partition("/")[2] for declared in names if "/" in declared)
        self.metavar = metavar
        self.help = help
        self.show_default = show_default
        self.autocompletion = autocompletion
        self.min = min
        self.max = max


class Argument:
    """A word by position. It is required unless the parameter has a default."""

    def __init__(
        self,
        *,
        metavar: str = "",
        help: str = "",  # noqa: A002
        show_default: bool = True,
        autocompletion: Completer | None = None,
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.show_default = show_default
        self.autocompletion = autocompletion
        self.min = min
        self.max = max


class CommandContext:
    """One command line that is being run or completed: the options before and after the command, and its values."""

    __slots__ = ("globals", "params", "path", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.path = program.name
        self.globals: dict[str, Any] = {}
        """The options that every command has, by parameter name."""
        self.params: dict[str, Any] = {}


class ExitCommand(Exception):  # noqa: N818 - an answer, not an error
    """Ends the command with this exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = int(code)


class UsageError(Exception):
    """A command line that cannot be understood.

    `path` is the command that it was for, `option` the wrong option, `command` the unknown command.
    """

    def __init__(self, message: str, path: str, *, option: str = "", command: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.option = option
        self.command = command


class Command:
    """One command. Its parameters are read when they are needed."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        self.name = name
        self.function = function

    @property
    def help(self) -> str:
        return self.function.__doc__ or ""


class Group:
    """A noun, such as `runs`, with commands by name. `default` is the command that the noun alone means, if any."""

    def __init__(self, *, name: str, help: str, default: str = "") -> None:  # noqa: A002
        self.name = name
        self.help = help
        self.default = default
        self._commands: dict[str, Command] = {}

    @property
    def commands(self) -> Mapping[str, Command]:
        return self._commands

    def command(self, name: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
        """A decorator that adds a function under its name or another one."""

        def add(function: Callable[..., None]) -> Callable[..., None]:
            chosen = name or function.__name__.replace("_", "-")
            self._commands[chosen] = Command(chosen, function)
            return function

        return add


def summary(text: str) -> str:
    """The first line of a help text."""
    return text.strip().partition("\n")[0].strip()
