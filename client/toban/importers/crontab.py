"""Reads a crontab, line by line, as cronie and Vixie cron do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from toban.importers.crontab_times import NAMED, REBOOT
from toban.importers.import_model import RefusedEntry

_SETTING = re.compile(
    r"""[ \t]*(?:(?P<bare>[^\s="'#][^\s=]*)|"(?P<double>[^"]*)"|'(?P<single>[^']*)')[ \t]*=(?P<value>.*)"""
)
_FIELDS = re.compile(r"(?P<when>(?:[^ \t]+[ \t]+){4}[^ \t]+)[ \t]+(?P<rest>.*)")
_NAMED = re.compile(r"(?P<when>@\w+)[ \t]+(?P<rest>.*)")
_USER = re.compile(r"(?P<user>[^ \t]+)[ \t]+(?P<rest>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry. `when` is five fields or `@reboot`; `settings` are those above it in the file."""

    number: int
    when: str
    user: str
    command: str
    stdin: str
    comments: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False


def read_crontab(text: str, *, file: str, system: bool) -> tuple[list[Line], list[RefusedEntry]]:
    """The entries, and the invalid lines. `system`: each command is preceded by a user."""
    lines: list[Line] = []
    refused: list[RefusedEntry] = []
    settings: dict[str, str] = {}
    comments: list[str] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r").lstrip(" \t")
        if not line:
            comments = []
        elif line.startswith("#"):
            comments.append(line.lstrip("#").strip())
        elif match := _SETTING.fullmatch(line):
            name = match["bare"] or match["double"] or match["single"] or ""
            settings[name] = _unquoted(match["value"].strip())
            comments = []
        else:
            found = _entry(line, number, system)
            if isinstance(found, Line):
                kept = tuple(comment for comment in comments if comment)
                lines.append(replace(found, comments=kept, settings=dict(settings)))
            else:
                refused.append(RefusedEntry(where=f"{file}:{number}", reason=found))
            comments = []
    return lines, refused


def split_command(text: str) -> tuple[str, str]:
    r"""The command and its standard input: the first `%` ends the command, others are newlines, `\%` is a `%`."""
    command: list[str] = []
    rest = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            following = text[at + 1]
            command.append("%" if following == "%" else char + following)
            at += 2
            continue
        if char == "%":
            rest = text[at + 1 :]
            break
        command.append(char)
        at += 1
    given = re.sub(r"\\?%", lambda match: "\n" if match[0] == "%" else "%", rest)
    # Cron ends its last line.
    return "".join(command), given if not given or given.endswith("\n") else given + "\n"


def _entry(line: str, number: int, system: bool) -> Line | str:
    """The entry, or why the line is invalid."""
    # cronie: do not log this entry to the system's log.
    quiet = line.startswith("-")
    line = line.removeprefix("-")
    match = (_NAMED if line.startswith("@") else _FIELDS).fullmatch(line)
    if match is None:
        return "expected a time and a command, or NAME=value"
    when, rest = " ".join(match["when"].split()), match["rest"]
    if when.startswith("@"):
        when = when.lower()
        if when != REBOOT and when not in NAMED:
            return f"{when} is not known: write its time in five fields"
        when = NAMED.get(when, when)
    user = ""
    if system:
        owner = _USER.fullmatch(rest)
        if owner is None:
            return "expected a user and a command after the time: is this the format of a user's crontab?"
        user, rest = owner["user"], owner["rest"]
    command, stdin = split_command(rest)
    if not command.strip():
        return "there is no command"
    return Line(number=number, when=when, user=user, command=command, stdin=stdin, quiet=quiet)


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
