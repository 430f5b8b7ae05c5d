"""Renders manual pages, in the `man` macros of troff, from the same declarations as the help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toban.cli.syntax.declare import Command, Group, Option, summary
from toban.cli.syntax.help_text import help_row, option_row, paragraphs
from toban.cli.syntax.parameters import Parameter, parameters
from toban.cli.syntax.program import Program, ProgramEntry


def main_page(program: Program, version: str) -> str:
    """The page of the program: its commands and the options of all of them. Loads no command."""
    parts = [
        _title(program.name, version),
        _name(program.name, "define, run and watch workflows"),
        f".SH SYNOPSIS\n.B {program.name}\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        f".SH EXAMPLES\n{_literal(program.examples.splitlines()[1:])}",
    ]
    for heading, entries in program.sections.items():
        parts.append(f".SH {_text(heading.upper())}\n{_rows([_entry_row(program.name, entry) for entry in entries])}")
    parts.append(f".SH OPTIONS\nThey may stand before or after the command.\n{_options(program.shared)}")
    return _joined(parts)


def command_page(program: Program, name: str, version: str) -> str:
    """The page of a command or group of the first level."""
    command = program.load(name)
    path = f"{program.name} {name}"
    parts = [_title(path, version), _name(path, summary(command.help).removesuffix("."))]
    if isinstance(command, Command):
        parts += [f".SH SYNOPSIS\n{_synopsis(path, command)}", ".SH DESCRIPTION\n" + _description(command.help)]
        parts += _arguments(command, ".SH ARGUMENTS", ".SH OPTIONS")
    else:
        parts += _group(path, command)
    parts.append(f".SH SEE ALSO\n.BR {program.name} (1)")
    return _joined(parts)


def _group(path: str, group: Group) -> Iterable[str]:
    lines = "\n.br\n".join(_synopsis(f"{path} {verb}", each) for verb, each in group.commands.items())
    yield f".SH SYNOPSIS\n{lines}"
    yield ".SH DESCRIPTION\n" + _description(group.help)
    yield ".SH COMMANDS"
    for verb, command in group.commands.items():
        yield f".SS {_text(f'{path} {verb}')}\n{_description(command.help)}"
        yield from _arguments(command, ".PP\nArguments:", ".PP\nOptions:")


def _arguments(command: Command, arguments: str, options: str) -> Iterable[str]:
    found = parameters(command.function)
    named = [(each.metavar, each.spec.help) for each in found if not isinstance(each.spec, Option)]
    if named:
        yield f"{arguments}\n{_rows(named)}"
    yield f"{options}\n{_options(each for each in found if isinstance(each.spec, Option))}"


def _options(found: Iterable[Parameter]) -> str:
    return _rows([*map(option_row, found), help_row()])


def _entry_row(program: str, entry: ProgramEntry) -> tuple[str, str]:
    if entry.words:
        return entry.name, f"{entry.summary} Short for `{program} {' '.join(entry.words)}`."
    return f"{program}-{entry.name}(1)", entry.summary


def _synopsis(path: str, command: Command) -> str:
    found = (each for each in parameters(command.function) if not isinstance(each.spec, Option))
    words = [each.label if each.required else f"[{each.label}]" for each in found]
    return "\n".join([f".B {_text(path)}", f"[\\fIOPTIONS\\fR] {_text(' '.join(words))}".rstrip()])


def _title(path: str, version: str) -> str:
    page = path.replace(" ", "-").upper()
    return f'.TH "{_text(page)}" 1 "" "Toban {_text(version)}" "Toban"\n.nh\n.ad l'


def _name(path: str, text: str) -> str:
    return f".SH NAME\n{_text(path.replace(' ', '-'))} \\- {_text(text)}"


def _description(text: str) -> str:
    parts = [_literal(lines) if kept else _text(" ".join(lines)) for kept, lines in paragraphs(text)]
    return "\n.PP\n".join(parts)


def _literal(lines: Sequence[str]) -> str:
    """Lines that stay as they are."""
    return "\n".join([".nf", *map(_text, lines), ".fi"])


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f".TP\n.B {_text(name)}\n{_text(text)}" for name, text in rows)


def _text(text: str) -> str:
    """Text without a meaning for troff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    escaped = escaped.replace('"', "\\(dq").replace("^", "\\(ha").replace("~", "\\(ti").strip("\n")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(parts) + "\n"
