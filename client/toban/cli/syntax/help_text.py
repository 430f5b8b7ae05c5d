"""Renders the help of a command or a group."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from toban.cli.syntax.declare import Command, Group, Option, summary
from toban.cli.syntax.parameters import Parameter, parameters, range_text

_WIDEST = 80
_COLUMN = 30
_RAW = "\b"
"""A paragraph that begins with a line of this character keeps its lines."""


def command_help(path: str, command: Command) -> str:
    found = parameters(command.function)
    arguments = [each for each in found if not isinstance(each.spec, Option)]
    options = [each for each in found if isinstance(each.spec, Option)]
    words = [each.label if each.required else f"[{each.label}]" for each in arguments]
    parts = [f"Usage: {' '.join([path, '[OPTIONS]', *words])}", description(command.help)]
    if arguments:
        parts.append(section("Arguments", [(each.metavar, each.spec.help) for each in arguments]))
    parts.append(section("Options", [*map(option_row, options), help_row()]))
    parts.append(f"Options before and after the command: see `{path.partition(' ')[0]} --help`.")
    return "\n\n".join(parts)


def group_help(path: str, group: Group) -> str:
    rows = [(name, summary(command.help)) for name, command in group.commands.items()]
    parts = [f"Usage: {path} COMMAND [OPTIONS] [ARGUMENTS]", description(group.help), section("Commands", rows)]
    parts.append(f"`{path} COMMAND --help` explains a command.")
    return "\n\n".join(parts)


def help_row() -> tuple[str, str]:
    return "-h, --help", "Show this message and exit."


def option_row(parameter: Parameter) -> tuple[str, str]:
    spec = parameter.spec
    assert isinstance(spec, Option)
    on = [name for name in spec.names if name not in spec.off]
    names = ", ".join(sorted(on, key=len))
    if spec.off:
        names = f"{names} / {', '.join(spec.off)}"
    left = names if parameter.flag else f"{names} {parameter.metavar}"
    return left, f"{spec.help}{_default(parameter)}"


def _default(parameter: Parameter) -> str:
    default = parameter.default
    notes = []
    if parameter.spec.show_default and not parameter.required and default not in (None, "", False):
        notes.append(f"default: {default.value if isinstance(default, Enum) else default}")
    if text := range_text(parameter):
        notes.append(text)
    if parameter.required:
        notes.append("required")
    return f"  [{'; '.join(notes)}]" if notes else ""


def option_section(found: Iterable[Parameter], further: Sequence[tuple[str, str]]) -> str:
    """The options of every command."""
    return section("Options", [*map(option_row, found), *further])


def section(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    """Names and texts in two columns."""
    left = min(max(len(name) for name, _ in rows), _COLUMN) + 2
    lines = [f"{heading}:"]
    for name, text in rows:
        wrapped = wrap(text, width() - left - 2) or [""]
        if len(name) > left - 2:
            lines.append(f"  {name}")
            name = ""
        lines.append(f"  {name:{left}}{wrapped[0]}".rstrip())
        lines += [f"  {'':{left}}{line}" for line in wrapped[1:]]
    return "\n".join(lines)


def description(text: str) -> str:
    """The paragraphs of a docstring, indented by two."""
    shown = []
    for kept, lines in paragraphs(text):
        wrapped = lines if kept else wrap(" ".join(lines), width() - 2)
        shown.append("\n".join(f"  {line}".rstrip() for line in wrapped))
    return "\n\n".join(shown)


def paragraphs(text: str) -> Iterator[tuple[bool, list[str]]]:
    """The lines of each paragraph of a docstring, and whether they stay as they are."""
    for paragraph in _dedented(text).split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        kept = lines[0].strip() == _RAW
        yield kept, lines[1:] if kept else lines


def wrap(text: str, most: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def width() -> int:
    """At most 80 columns."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return min(int(columns), _WIDEST)
    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns or _WIDEST, _WIDEST)
    except (AttributeError, OSError, ValueError):
        return _WIDEST


def _dedented(text: str) -> str:
    lines = text.strip("\n").split("\n")
    rest = [len(line) - len(line.lstrip(" ")) for line in lines[1:] if line.strip()]
    margin = min(rest, default=0)
    return "\n".join([lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:])]).strip("\n")
