"""Reads the text of a definition file."""

from __future__ import annotations

from collections.abc import Mapping

from toban.definition.source.problems import Parsed, Problem, list_known_once
from toban.limits import MAX_SOURCE_BYTES


def parse(text: str | bytes, file: str = "<definition>", jobs: Mapping[str, str] | None = None) -> Parsed:
    """All definitions of a file, and all of its problems. Never raises.

    `file` only names the file in problems; it is not opened. `jobs` has the sources of jobs that steps may use besides
    those of the text itself, each a document with that one job. If it is None, other jobs are unknown: a workflow that
    uses one gets a warning, and is not resolved.
    """
    source = _decode(text, file)
    if isinstance(source, Problem):
        return Parsed(documents=(), problems=(source,))
    # Loaded late: the YAML reader and the schema are large, and clients that never parse do not need them.
    from toban.definition.checks.file_documents import read_file
    from toban.definition.source.yaml_source import read_documents

    found, stopped = read_documents(source)
    problems = [_problem(entry.message, entry.line, entry.column, file) for entry in stopped]
    # Ignore an empty document, such as one after a last "---".
    found = [entry for entry in found if entry.root is not None and (entry.root.kind != "scalar" or entry.root.text)]
    documents, wrong = read_file(found, source, file, jobs)
    problems += wrong
    if not documents and not problems:
        message = "the file is empty: expected a workflow with name and steps"
        problems.append(_problem(message, 0, 0, file))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    return Parsed(documents=tuple(documents), problems=tuple(list_known_once(problems)))


def _decode(text: str | bytes, file: str) -> str | Problem:
    if isinstance(text, str):
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            line, column = _place(text[: error.start])
            message = f"found half a character, U+{ord(text[error.start]):04X}: save the file as UTF-8"
            return _problem(message, line, column, file)
    else:
        size = len(text)
    if size > MAX_SOURCE_BYTES:
        limit = MAX_SOURCE_BYTES // (1024 * 1024)
        message = f"the file has more than {limit} MiB, the most that is read: split it"
        return _problem(message, 0, 0, file)
    if isinstance(text, bytes):
        try:
            return text.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line, column = _place(text[: error.start].decode())
            message = f"byte 0x{text[error.start]:02x} is not UTF-8: save the file as UTF-8"
            return _problem(message, line, column, file)
    return text.removeprefix("\ufeff")


def _place(before: str) -> tuple[int, int]:
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


def _problem(message: str, line: int, column: int, file: str) -> Problem:
    return Problem(message=message, path="", line=line + 1, column=column + 1, file=file)
