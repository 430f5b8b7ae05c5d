"""Reads the text of a definition file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toban.definition.problems import Document, Parsed, Problem

if TYPE_CHECKING:
    from toban.definition.yaml_source import SourceDocument

MAX_SOURCE_BYTES = 2 * 1024 * 1024


def parse(text: str | bytes, file: str = "<definition>") -> Parsed:
    """Everything in a file, and everything that is wrong with it. Raises nothing.

    `file` only names the file in problems; nothing is opened.
    """
    source = _decode(text, file)
    if isinstance(source, Problem):
        return Parsed(documents=(), problems=(source,))
    # Reading YAML and checking shapes is heavy, and a client that never parses does not need it.
    from toban.definition.yaml_source import read_documents

    found, stopped = read_documents(source)
    problems = [_problem(entry.message, entry.line, entry.column, file) for entry in stopped]
    documents: list[Document] = []
    for entry in found:
        # An empty document, such as after a last "---", is nothing.
        if entry.root is not None and (entry.root.kind != "scalar" or entry.root.text):
            document, wrong = _check(entry, source, file, documents)
            documents.append(document)
            problems += wrong
    if not documents and not problems:
        message = "the file is empty: expected a workflow with name and steps"
        problems.append(_problem(message, 0, 0, file))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    return Parsed(documents=tuple(documents), problems=tuple(problems))


def _check(
    entry: SourceDocument, source: str, file: str, before: list[Document]
) -> tuple[Document, list[Problem]]:
    from toban.definition.reporting import Reporter
    from toban.definition.validate import validate

    assert entry.root is not None
    report = Reporter(source, file)
    for problem in entry.problems:
        report.add(problem.message, problem.line, problem.column)
    workflow = validate(entry.root, report)
    if workflow is not None:
        for other in before:
            if other.workflow is not None and other.workflow.name == workflow.name:
                message = f'duplicate workflow "{workflow.name}": the file has it already'
                report.at(entry.root.entries["name"].value, "name", message)
                workflow = None
                break
    problems = report.problems
    if report.left_out:
        last = problems[-1]
        message = f"and {report.left_out:,} more problems in this document"
        problems.append(_problem(message, last.line - 1, last.column - 1, file))
    text = source[entry.start : entry.end]
    return Document(source=text, line=entry.line + 1, workflow=workflow), problems


def _decode(text: str | bytes, file: str) -> str | Problem:
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        limit = MAX_SOURCE_BYTES // (1024 * 1024)
        return _problem(f"the file has {size:,} bytes: at most {limit} MiB are read", 0, 0, file)
    if isinstance(text, bytes):
        try:
            return text.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            before = text[: error.start].decode()
            line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
            message = f"byte 0x{text[error.start]:02x} is not UTF-8: save the file as UTF-8"
            return _problem(message, line, column, file)
    return text.removeprefix("\ufeff")


def _problem(message: str, line: int, column: int, file: str) -> Problem:
    return Problem(message=message, path="", line=line + 1, column=column + 1, file=file)
