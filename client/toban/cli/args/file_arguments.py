"""Definition files: which ones are meant, what they hold, and all that is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.definition import DefinitionKind, Document, Problem

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
class File:
    """One file and what is in it."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One workflow or one job of one file."""

    file: str
    # Where its text begins in the file, counted from 1.
    line: int
    # Directory of the file; empty for standard input.
    directory: str
    source: str
    name: str
    kind: DefinitionKind
    # Jobs that it uses.
    uses: frozenset[str]

    @property
    def is_job(self) -> bool:
        return self.kind.value == "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that was read. `missing` are jobs that are used and that no file defines."""

    entries: Sequence[Entry]
    problems: Sequence[Problem]
    missing: frozenset[str]

    @property
    def errors(self) -> list[Problem]:
        """Problems that make a definition useless."""
        return [problem for problem in self.problems if not problem.warning]


def read(paths: Sequence[str]) -> list[File]:
    """All files that are meant. Raises Failure for what cannot be read."""
    return [File(name=name, data=_read(name)) for name in _expand(paths)]


def check(files: Sequence[File], stored: Mapping[str, str] | None = None) -> Loaded:
    """What the files hold; the jobs of all of them are known to each.

    With `stored`, the sources of jobs that are elsewhere, every other job that is used is an error; without it nobody
    can tell, and it is a warning.
    """
    from datetime import UTC, datetime

    from toban.definition import DefinitionKind, Parsed, parse
    from toban.definition.checks.never_due import run_out

    now = datetime.now(UTC)
    found: list[tuple[File, Parsed]] = [(file, parse(file.data, file=file.name)) for file in files]
    own = {
        document.name: document.source
        for _, parsed in found
        for document in parsed.documents
        if document.kind is DefinitionKind.JOB
    }
    known = {**(stored or {}), **own}
    entries: list[Entry] = []
    problems: list[Problem] = []
    taken: dict[str, str] = {}
    used: set[str] = set()
    for file, parsed in found:
        uses = {job for document in parsed.documents for job in document.uses}
        used |= uses
        if uses and (stored is not None or uses <= known.keys()):
            parsed = parse(file.data, file=file.name, jobs=known)
        problems += parsed.problems
        for document in parsed.documents:
            if not document.name:
                continue
            problems += _taken(file, document, taken)
            problems += run_out(document, file.name, now)
            entries.append(_entry(file, document))
    return Loaded(entries=entries, problems=problems, missing=frozenset(used - own.keys()))


def _entry(file: File, document: Document) -> Entry:
    directory = "" if file.name == STDIN else os.path.dirname(os.path.abspath(file.name))
    return Entry(
        file=file.name,
        line=document.line,
        directory=directory,
        source=document.source,
        name=document.name,
        kind=document.kind,
        uses=document.uses,
    )


def _taken(file: File, document: Document, taken: dict[str, str]) -> list[Problem]:
    """Workflows and jobs share their names: one that another file has already is a problem."""
    from toban.definition import Problem

    before = taken.setdefault(document.name, f"{file.name}:{document.line}")
    # What one file has twice, the reading of the file has told.
    if before.rpartition(":")[0] == file.name:
        return []
    message = f"{document.name!r} is defined twice: also in {before}"
    return [Problem(file=file.name, line=document.line, column=1, path="name", message=message)]


def invalid(what: str, problems: Sequence[str]) -> Failure:
    """The Failure for definitions that do not hold."""
    return Failure(f"cannot {what}: {counted(len(problems), 'problem')} found", Exit.INVALID_DEFINITION)


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
