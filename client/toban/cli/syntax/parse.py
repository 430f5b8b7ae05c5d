"""Parses the words after a command: options and arguments in any order, `--` before words that begin with a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toban.cli.syntax.declare import CommandContext, Option, UsageError
from toban.cli.syntax.parameters import Parameter

HELP = ("--help", "-h")


class HelpWanted(Exception):  # noqa: N818 - an answer, not an error
    """The words ask for help."""


class Parser:
    """Takes words one after another. Options in `shared` are those of every command; their values go to the context.

    With `lenient` nothing is an error: for a command line that is still being typed.
    """

    def __init__(
        self,
        context: CommandContext,
        shared: Sequence[Parameter],
        own: Sequence[Parameter] = (),
        *,
        lenient: bool = False,
    ) -> None:
        self.context = context
        self._lenient = lenient
        self._own = own
        self._options: dict[str, tuple[Parameter, dict[str, Any]]] = {}
        for found, values in ((shared, context.globals), (own, context.params)):
            for parameter in found:
                if isinstance(parameter.spec, Option):
                    self._options |= dict.fromkeys((*parameter.spec.names, *parameter.spec.off), (parameter, values))

    @property
    def options(self) -> Mapping[str, tuple[Parameter, dict[str, Any]]]:
        return self._options

    def parse(self, words: Sequence[str], *, to_command: bool = False) -> list[str]:
        """Stores the values of options, and returns the other words. `to_command`: stops at the first of these."""
        rest: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                return [*rest, *left]
            if word.startswith("-") and len(word) > 1:
                self._option(word, left)
                continue
            rest.append(word)
            if to_command:
                return [*rest, *left]
        return rest

    def bind(self, words: Sequence[str]) -> None:
        """Gives the words to the arguments, and everything that is not given its default."""
        left = list(words)
        arguments = [each for each in self._own if not isinstance(each.spec, Option)]
        for index, parameter in enumerate(arguments):
            after = sum(1 for each in arguments[index + 1 :] if each.required)
            count = max(0, len(left) - after) if parameter.many else min(1, len(left))
            taken, left = left[:count], left[count:]
            if taken:
                values = [self._value(parameter, word) for word in taken]
                self.context.params[parameter.name] = values if parameter.many else values[0]
            elif parameter.required and not self._lenient:
                raise UsageError(f"missing argument '{parameter.label}'", self.context.path)
        if left and not self._lenient:
            many = "arguments" if len(left) > 1 else "argument"
            raise UsageError(f"got unexpected extra {many} ({' '.join(left)})", self.context.path)
        for parameter in self._own:
            if parameter.name in self.context.params:
                continue
            if isinstance(parameter.spec, Option) and parameter.required and not self._lenient:
                raise UsageError(f"missing option '{parameter.label}'", self.context.path)
            self.context.params[parameter.name] = parameter.without()

    def _option(self, word: str, left: list[str]) -> None:
        name, equals, text = word.partition("=")
        if not word.startswith("--"):
            # `-p value`, `-pvalue`, and flags together: `-qv`.
            name, text, equals = word[:2], word[2:], ""
        if name in HELP and not self._lenient:
            raise HelpWanted
        found = self._options.get(name)
        if found is None:
            if not self._lenient:
                raise UsageError(f"no such option: {name}{self._near(name)}", self.context.path, option=name)
            return
        parameter, values = found
        if parameter.flag:
            if equals:
                if not self._lenient:
                    raise UsageError(f"option '{name}' does not take a value", self.context.path, option=name)
                return
            assert isinstance(parameter.spec, Option)
            values[parameter.name] = name not in parameter.spec.off
            if text:
                self._option(f"-{text}", left)
            return
        if not text and not equals:
            if not left:
                if not self._lenient:
                    raise UsageError(f"option '{name}' requires an argument", self.context.path, option=name)
                return
            text = left.pop(0)
        value = self._value(parameter, text)
        if parameter.many:
            values.setdefault(parameter.name, []).append(value)
        else:
            values[parameter.name] = value

    def _value(self, parameter: Parameter, text: str) -> Any:
        try:
            return parameter.value(text)
        except ValueError as error:
            if self._lenient:
                return text
            message = f"invalid value for {parameter.label}: {error}"
            raise UsageError(message, self.context.path, option=parameter.label) from None

    def _near(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self._options, n=2, cutoff=0.7)
        return f"; did you mean {' or '.join(near)}?" if near else ""
