"""The result of `parse`: the documents of a file and their problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from toban.definition.model.workflow import DefinitionKind

if TYPE_CHECKING:
    from toban.definition.model.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem and its position; line and column count from 1.

    `known` are the fields that the mapping may have, if the message is about an unknown one; see `list_known_once`.
    """

    message: str
    path: str
    line: int
    column: int
    file: str
    warning: bool = False
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        path = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: {kind}{path}{self.message}"


def list_known_once(problems: Iterable[Problem]) -> list[Problem]:
    """The problems of a file, each list of known fields only at the first problem that needs it."""
    lines: dict[tuple[str, ...], int] = {}
    listed = []
    for problem in problems:
        if problem.known:
            hint = f"see line {lines[problem.known]}" if problem.known in lines else ", ".join(problem.known)
            lines.setdefault(problem.known, problem.line)
            problem = replace(problem, message=f"{problem.message} (known: {hint})", known=())
        listed.append(problem)
    return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One workflow of a file, or one of its jobs.

    `source` has only this definition; its first line is `line` of the file. `name` is '' if it cannot be read. `uses`
    are the jobs that its steps use, `derived` the names of steps by the ids that were derived from them. `workflow` is
    None if it has errors, or uses a job that was not given; a job is a workflow of one step.
    """

    source: str
    line: int
    kind: DefinitionKind = DefinitionKind.WORKFLOW
    name: str = ""
    uses: frozenset[str] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)
    workflow: Workflow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The documents of one file, in order, and all problems, by position."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if not problem.warning)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.warning)

    @property
    def ok(self) -> bool:
        return not self.errors
