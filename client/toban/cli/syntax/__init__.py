"""Command lines: declaring options and arguments, parsing them, help and completion. Knows no command of `toban`.

A library would take more processor time to load than all the rest of a command together.
"""

from toban.cli.syntax.declare import Argument, Command, CommandContext, ExitCommand, Group, Option, UsageError

__all__ = ["Argument", "Command", "CommandContext", "ExitCommand", "Group", "Option", "UsageError"]
