"""Checks the documents of one file: jobs first, since workflows may use them before or after their definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from toban.definition.checks.document_check import validate
from toban.definition.checks.job_documents import Jobs, is_jobs, read_jobs
from toban.definition.checks.step_layers import Layer
from toban.definition.source.problem_collector import Reporter
from toban.definition.source.problems import Document, Problem
from toban.definition.source.yaml_source import Node, SourceDocument


@dataclass(slots=True)
class _Read:
    """The definitions of one document of the file, and the position of each name."""

    report: Reporter
    parts: list[tuple[Document, Node | None, str]]


def read_file(
    entries: Sequence[SourceDocument], source: str, file: str, given: Mapping[str, str] | None
) -> tuple[list[Document], list[Problem]]:
    """All definitions of a file, in order, and all of its problems.

    None of the documents may be empty.
    """
    here: dict[str, Layer | None] = {}
    read: dict[int, _Read] = {}
    for index, entry in enumerate(entries):
        assert entry.root is not None
        if is_jobs(entry.root):
            report = _reporter(entry, source, file)
            found = read_jobs(entry.root, source, report)
            for job in found:
                here.setdefault(job.document.name, job.layer)
            parts = [(job.document, job.key, f"jobs.{job.document.name}") for job in found]
            read[index] = _Read(report, [*parts])
    jobs = Jobs(here, given)
    for index, entry in enumerate(entries):
        if index not in read:
            read[index] = _workflow(entry, source, file, jobs)
    return _joined([read[index] for index in range(len(entries))])


def _reporter(entry: SourceDocument, source: str, file: str) -> Reporter:
    report = Reporter(source, file)
    for problem in entry.problems:
        report.add(problem.message, problem.line, problem.column)
    return report


def _workflow(entry: SourceDocument, source: str, file: str, jobs: Jobs) -> _Read:
    assert entry.root is not None
    report = _reporter(entry, source, file)
    checked = validate(entry.root, jobs, report)
    document = Document(
        source=source[entry.start : entry.end],
        line=entry.line + 1,
        name=checked.name,
        uses=checked.uses,
        derived=checked.derived,
        workflow=checked.workflow,
    )
    path = "id" if "id" in entry.root.entries else "name"
    name = entry.root.entries.get(path)
    return _Read(report, [(document, name.value if name else None, path)])


def _joined(read: Sequence[_Read]) -> tuple[list[Document], list[Problem]]:
    """All documents, each name once, and the problems of all."""
    documents: list[Document] = []
    problems: list[Problem] = []
    kinds: dict[str, str] = {}
    for entry in read:
        for document, node, path in entry.parts:
            if document.name in kinds and node is not None:
                other = kinds[document.name]
                known = "it" if other == document.kind else f"a {other} of this name"
                message = f'duplicate {document.kind} "{document.name}": the file has {known} already'
                entry.report.at(node, path, message)
                document = replace(document, workflow=None)
            elif document.name:
                kinds[document.name] = document.kind
            documents.append(document)
        problems += entry.report.problems
        if entry.report.left_out:
            last = problems[-1]
            message = f"and {entry.report.left_out:,} more problems in this document"
            problems.append(replace(last, message=message, path="", warning=False, known=()))
    return documents, problems
