"""Definition files: which ones are meant, what they hold, and all that is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toban.cli.exits import Exit
from toban.cli.failures import Failure
from toban.cli.session import shown
from toban.cli.text import count

if TYPE_CHECKING:
    from toban.definition import Problem, Workflow

STDIN: Final = "<stdin>"
_SUFFIXES: Final = (".yaml", ".yml", ".json")

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE|DIR|-",
        help="Files, directories (their *.yaml, *.yml and *.json) or - for standard input.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One workflow of one file."""

    file: str
    # Where its text begins in the file, counted from 1.
    line: int
    # Directory of the file; empty for standard input.
    directory: str
    source: str
    workflow: Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that was read."""

    entries: Sequence[Entry]
    problems: Sequence[Problem]

    @property
    def errors(self) -> list[Problem]:
        """Problems that make a definition useless."""
        return [problem for problem in self.problems if not problem.warning]


def load(paths: Sequence[str]) -> Loaded:
    """Reads and checks all files. Raises Failure only for what cannot be read at all."""
    from toban.definition import Problem, parse

    entries: list[Entry] = []
    problems: list[Problem] = []
    taken: dict[str, str] = {}
    for file, data in [(file, _read(file)) for file in _expand(paths)]:
        parsed = parse(data, file=file)
        problems.extend(parsed.problems)
        for document in parsed.documents:
            if document.workflow is None:
                continue
            name = document.workflow.name
            here = f"{file}:{document.line}"
            if name in taken:
                problems.append(
                    Problem(
                        file=file,
                        line=document.line,
                        column=1,
                        path="name",
                        message=f"{name!r} is defined twice: also in {taken[name]}",
                    )
                )
            taken.setdefault(name, here)
            entries.append(
                Entry(
                    file=file,
                    line=document.line,
                    directory="" if file == STDIN else os.path.dirname(os.path.abspath(file)),
                    source=document.source,
                    workflow=document.workflow,
                )
            )
    return Loaded(entries=entries, problems=problems)


def invalid(what: str, problems: Sequence[str]) -> Failure:
    """The Failure for definitions that do not hold."""
    return Failure(
        f"cannot {what}: {count(len(problems), 'problem')} found", Exit.INVALID_DEFINITION
    )


def _expand(paths: Sequence[str]) -> list[str]:
    if not paths:
        raise Failure(
            "cannot read definitions: no file was given",
            Exit.USAGE,
            hint="name files or directories, or - for standard input",
        )
    files: list[str] = []
    for path in paths:
        if path == "-":
            files.append(STDIN)
        elif os.path.isdir(path):
            files.extend(_definitions_in(path))
        else:
            files.append(path)
    # The same file twice, say by name and by directory, is one file.
    return list({os.path.abspath(file): file for file in files}.values())


def _definitions_in(directory: str) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise _unreadable(directory, error) from None
    found = [
        path
        for name in names
        # Editors keep their own files beside the real ones, with a dot before the name.
        if name.endswith(_SUFFIXES) and not name.startswith(".")
        if os.path.isfile(path := os.path.join(directory, name))
    ]
    if not found:
        raise Failure(
            f"cannot read {shown(directory)}: the directory holds no definitions",
            Exit.USAGE,
            hint="a directory means its *.yaml, *.yml and *.json files",
        )
    return found


def _read(file: str) -> bytes:
    if file == STDIN:
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from None


def _unreadable(path: str, error: OSError | ValueError) -> Failure:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Failure(f"cannot read {shown(path)}: {reason}", Exit.USAGE)
