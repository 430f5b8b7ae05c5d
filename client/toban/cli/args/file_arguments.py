"""Arguments that name definition files: reads the files and checks their definitions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit
from toban.cli.session import shown
from toban.cli.syntax import Argument
from toban.quantity_text import counted

if TYPE_CHECKING:
    from toban.definition import Document, Problem

STDIN: Final = "<stdin>"
_SUFFIXES: Final = (".yaml", ".yml", ".json")

FilesArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="FILE|DIR|-",
        help="Files, directories (their *.yaml, *.yml and *.json) or - for standard input.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    name: str
    data: bytes

    @property
    def directory(self) -> str:
        """Absolute; empty for standard input."""
        return "" if self.name == STDIN else os.path.dirname(os.path.abspath(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDefinition:
    """One workflow or one job of a file.

    `uses` are the jobs that it names, `derived` the names of steps by the ids that were derived from them.
    """

    file: str
    directory: str
    source: str
    name: str
    is_job: bool
    uses: frozenset[str]
    derived: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFiles:
    """Files, their definitions and problems. `missing` are jobs that definitions use and no file defines."""

    files: Sequence[InputFile]
    definitions: Sequence[FileDefinition]
    problems: Sequence[Problem]
    missing: frozenset[str]

    @property
    def errors(self) -> list[Problem]:
        """The problems that are no warnings."""
        return [problem for problem in self.problems if not problem.warning]


def read(paths: Sequence[str]) -> list[InputFile]:
    """The files that the arguments name. Raises Failure for an unreadable one."""
    return [InputFile(name=name, data=_read(name)) for name in _expand(paths)]


def check(files: Sequence[InputFile]) -> CheckedFiles:
    """Checks all files; each may use the jobs of all. A missing job is a warning: the daemon may have it."""
    from datetime import UTC, datetime

    from toban.definition import DefinitionKind, Parsed, parse
    from toban.definition.checks.never_due import run_out

    now = datetime.now(UTC)
    found: list[tuple[InputFile, Parsed]] = [(file, parse(file.data, file=file.name)) for file in files]
    jobs = {
        document.name: document.source
        for _, parsed in found
        for document in parsed.documents
        if document.kind is DefinitionKind.JOB
    }
    definitions: list[FileDefinition] = []
    problems: list[Problem] = []
    taken: dict[str, str] = {}
    used: set[str] = set()
    for file, parsed in found:
        uses = {job for document in parsed.documents for job in document.uses}
        used |= uses
        if uses and uses <= jobs.keys():
            parsed = parse(file.data, file=file.name, jobs=jobs)
        problems += parsed.problems
        for document in parsed.documents:
            if not document.name:
                continue
            problems += _taken(file, document, taken)
            problems += run_out(document, file.name, now)
            definitions.append(_definition(file, document))
    return CheckedFiles(files=files, definitions=definitions, problems=problems, missing=frozenset(used - jobs.keys()))


def _definition(file: InputFile, document: Document) -> FileDefinition:
    return FileDefinition(
        file=file.name,
        directory=file.directory,
        source=document.source,
        name=document.name,
        is_job=document.kind.value == "job",
        uses=document.uses,
        derived=document.derived,
    )


def _taken(file: InputFile, document: Document, taken: dict[str, str]) -> list[Problem]:
    """A problem if another file has the name: workflows and jobs share their names."""
    from toban.definition import Problem

    before = taken.setdefault(document.name, f"{file.name}:{document.line}")
    # Parsing reports a name that one file has twice.
    if before.rpartition(":")[0] == file.name:
        return []
    message = f"{document.name!r} is defined twice: also in {before}"
    return [Problem(file=file.name, line=document.line, column=1, path="name", message=message)]


def invalid(action: str, errors: int) -> Failure:
    """The Failure for invalid definitions."""
    return Failure(f"cannot {action}: {counted(errors, 'problem')} found", Exit.INVALID_DEFINITION)


def _expand(paths: Sequence[str]) -> list[str]:
    if not paths:
        raise Failure(
            "cannot read definitions: no file given",
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
        # Hidden files are those of editors.
        if name.endswith(_SUFFIXES) and not name.startswith(".")
        if os.path.isfile(path := os.path.join(directory, name))
    ]
    if not found:
        raise Failure(
            f"cannot read {shown(directory)}: the directory has no definition files",
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
