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
    from toban.definition import Document, Parsed, Problem
    from toban.workflow import Workflow

STDIN: Final = "<stdin>"
_SUFFIXES: Final = (".yaml", ".yml", ".json")

FilesArgument = Annotated[
    list[str] | None,
    Argument(
        metavar="FILE|DIR|-",
        help="Files, directories (their *.yaml, *.yml and *.json) or - for standard input. A *.py file is run, here.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file; or one of the workflows of a Python file, with its definition, empty if that is invalid."""

    name: str
    data: bytes
    workflow: Workflow | None = None

    @property
    def directory(self) -> str:
        """Absolute; empty for standard input."""
        if self.workflow is not None:
            return self.workflow.base_dir
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
    return [file for name in _expand(paths) for file in (_python(name) if name.endswith(".py") else [_plain(name)])]


def check(files: Sequence[InputFile]) -> CheckedFiles:
    """Checks all files; each may use the jobs of all. A missing job is a warning: the daemon may have it."""
    from datetime import UTC, datetime

    from toban.definition import DefinitionKind
    from toban.definition.checks.never_due import run_out

    now = datetime.now(UTC)
    found: list[tuple[InputFile, Parsed]] = [(file, _parse(file)) for file in files]
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
            parsed = _parse(file, jobs)
        problems += parsed.problems
        for document in parsed.documents:
            if not document.name:
                continue
            problems += _taken(file, document, taken)
            problems += run_out(document, file.name, now)
            definitions.append(_definition(file, document))
    return CheckedFiles(files=files, definitions=definitions, problems=problems, missing=frozenset(used - jobs.keys()))


def _parse(file: InputFile, jobs: Mapping[str, str] | None = None) -> Parsed:
    """The definitions of a file; problems of a workflow in Python have its lines."""
    from toban.definition import Parsed, Problem, parse

    if file.workflow is None:
        return parse(file.data, file=file.name, jobs=jobs)
    mistakes = file.workflow.mistakes if jobs is None else file.workflow.mistakes_with(jobs)
    problems = tuple(
        Problem(
            message=each.message,
            path=each.path,
            line=each.place.line,
            column=1,
            # As the user named it.
            file=file.name if os.path.abspath(file.name) == each.place.file else each.place.file,
            warning=each.warning,
        )
        for each in mistakes
    )
    documents = parse(file.data, file=file.name, jobs=jobs).documents if file.data else ()
    return Parsed(documents=documents, problems=problems)


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

    line = document.line if file.workflow is None else file.workflow.locate("name")[1]
    place = f"{file.name}:{line}"
    before = taken.setdefault(document.name, place)
    # Parsing reports a name that one file has twice.
    if before == place or (file.workflow is None and before.rpartition(":")[0] == file.name):
        return []
    message = f"{document.name!r} is defined twice: also in {before}"
    return [Problem(file=file.name, line=line, column=1, path="name", message=message)]


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


def _plain(name: str) -> InputFile:
    return InputFile(name=name, data=_read(name))


def _python(name: str) -> list[InputFile]:
    from toban.cli.args.python_file import workflows_in
    from toban.workflow import InvalidWorkflow

    files = []
    for workflow in workflows_in(name, _read(name)):
        try:
            data = workflow.to_yaml().encode()
        except InvalidWorkflow:
            data = b""
        files.append(InputFile(name=name, data=data, workflow=workflow))
    return files


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
