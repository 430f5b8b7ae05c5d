"""The `args` of a `shell` step: positional parameters of its script, or the arguments of its only command."""

from __future__ import annotations

from enum import Enum, auto

from toban.definition.scripts.shell_reader import ShellOutline, outline

# Commands that use the positional parameters without naming them.
_USERS = frozenset({"shift", "getopts", "eval", ".", "source", "for", "select"})
_PASSED_ON = ' "$@"'


class ArgsUse(Enum):
    """What a script does with its args."""

    POSITIONAL = auto()  # it uses $1, $@, …
    APPENDED = auto()  # they are the arguments of its only command
    UNUSED = auto()


def args_use(script: str) -> ArgsUse:
    """What becomes of the args of a script. A script that cannot be read to its end is assumed to use them."""
    return _use(outline(script))


def with_args(script: str) -> str:
    """The script with its args as the arguments of its only command, if it is one simple command."""
    found = outline(script)
    if _use(found) is not ArgsUse.APPENDED:
        return script
    end = found.commands[0].end if len(found.commands) == 1 else max(each.end for each in found.commands)
    return script[:end] + _PASSED_ON + script[end:]


def _use(found: ShellOutline) -> ArgsUse:
    first = {found.text[slice(*command.words[0])] for command in found.commands}
    if found.positional or not found.complete or first & _USERS:
        return ArgsUse.POSITIONAL
    words = [found.text[slice(*word)] for word in found.commands[0].words] if found.commands else []
    assigns_only = all("=" in word for word in words)
    return ArgsUse.APPENDED if found.single and not assigns_only else ArgsUse.UNUSED
