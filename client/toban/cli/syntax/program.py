"""A program with commands: finds the command of a line, parses its options and runs it. Loads only that command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toban.cli.syntax.declare import Command, CommandContext, ExitCommand, Group, UsageError
from toban.cli.syntax.parameters import Parameter, parameters
from toban.cli.syntax.parse import HELP, HelpWanted, Parser


class ProgramEntry(NamedTuple):
    """A command or group of the first level; `words` are the command that a short form leads to."""

    name: str
    summary: str
    module: str = ""
    words: tuple[str, ...] = ()


class Found(NamedTuple):
    """The command of a line; None if the line ends before it. `rest` are its words."""

    command: Command | Group | None
    context: CommandContext
    rest: list[str]


class Program:
    """`shared` declares the options of every command, which may stand before and after it.

    `meant` are words of other programs, each with the command that it means here.
    """

    def __init__(
        self,
        name: str,
        sections: Mapping[str, Sequence[ProgramEntry]],
        *,
        load: Callable[[ProgramEntry], Command | Group],
        shared: Callable[..., None],
        help_text: Callable[[], str],
        examples: str = "",
        meant: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.sections = sections
        self.examples = examples
        self.meant = meant or {}
        self.entries = {entry.name: entry for entries in sections.values() for entry in entries}
        self._load = load
        self._shared_by = shared
        self._help_text = help_text

    @property
    def shared(self) -> list[Parameter]:
        return parameters(self._shared_by)

    def load(self, name: str) -> Command | Group:
        return self._load(self.entries[name])

    def run(self, words: Sequence[str], *, prepared: Callable[[CommandContext, Command | None], None]) -> None:
        """Runs one command line. Raises UsageError, ExitCommand and what the command raises."""
        given = list(words)
        if given[:1] == ["help"] and not any(word.startswith("-") for word in given[1:]):
            given = [*given[1:], HELP[0]]
        context = CommandContext(self)
        try:
            found = self.find(context, given)
            prepared(context, None)
            if not isinstance(found.command, Command):
                raise UsageError(self.help(found.command, context.path), context.path)
            own = parameters(found.command.function)
            parser = Parser(context, self.shared, own)
            parser.bind(parser.parse(found.rest))
        except HelpWanted:
            # Options that stand behind it do not matter.
            found = self.find(CommandContext(self), [word for word in given if word not in HELP], lenient=True)
            print(self.help(found.command, found.context.path))
            return
        prepared(context, found.command)
        call(found.command.function, context)

    def find(self, context: CommandContext, words: Sequence[str], *, lenient: bool = False) -> Found:
        """The command that the first words name. Raises UsageError and HelpWanted."""
        shared = Parser(context, self.shared, lenient=lenient)
        rest = shared.parse(words, to_command=True)
        if not rest:
            return Found(None, context, rest)
        name, *rest = rest
        entry = self.entries.get(name)
        if entry is None:
            if lenient:
                return Found(None, context, rest)
            raise self._unknown(name, list(self.entries), context)
        if entry.words:
            return self.find(context, [*entry.words, *rest], lenient=lenient)
        command = self._load(entry)
        context.path = f"{context.path} {name}"
        if isinstance(command, Command):
            return Found(command, context, rest)
        rest = Parser(context, self.shared, lenient=lenient).parse(rest, to_command=True)
        if not rest and command.default and not lenient:
            rest = [command.default]
        if not rest:
            return Found(command, context, rest)
        verb, *rest = rest
        within = command.commands.get(verb)
        if within is None:
            if lenient:
                return Found(command, context, rest)
            raise self._unknown(verb, list(command.commands), context)
        context.path = f"{context.path} {verb}"
        return Found(within, context, rest)

    def help(self, command: Command | Group | None, path: str) -> str:
        from toban.cli.syntax.help_text import command_help, group_help

        if command is None:
            return self._help_text()
        return command_help(path, command) if isinstance(command, Command) else group_help(path, command)

    def _unknown(self, name: str, known: Sequence[str], context: CommandContext) -> UsageError:
        from difflib import get_close_matches

        meant = self.meant.get(name, "")
        own = meant if context.path == self.name else meant.rpartition(" ")[2]
        near = [own] if own.partition(" ")[0] in known else get_close_matches(name, known)
        hint = f". Did you mean {', '.join(map(repr, near))}?" if near else ""
        return UsageError(f"no such command {name!r}{hint}", context.path, command=name)


def call(function: Callable[..., None], context: CommandContext) -> None:
    """Calls a command with its values; the parameter that is neither option nor argument is the context."""
    values: dict[str, Any] = dict(context.params)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if names[:1] == ("ctx",):
        values["ctx"] = context
    function(**values)


__all__ = ["ExitCommand", "Found", "Program", "ProgramEntry", "call"]
