"""Collects the problems of one document."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from toban import limits
from toban.definition.source.problems import Problem
from toban.definition.source.scalar_positions import ScalarPositions
from toban.definition.source.yaml_source import Node

MAX_PROBLEMS = 1000


class Reports(Protocol):
    """Takes problems of nodes."""

    def at(self, node: Node, path: str, message: str, *, warning: bool = False) -> None:
        """A problem of a whole node."""
        ...

    def inside(self, node: Node, offset: int, path: str, message: str, *, warning: bool = False) -> None:
        """A problem at one character of a scalar."""
        ...


class Reporter:
    """Turns nodes into positions and keeps each problem once, up to a limit."""

    def __init__(self, source: str, file: str) -> None:
        self._source = source
        self._file = file
        self._problems: dict[Problem, None] = {}
        self._last: ScalarPositions | None = None
        self.left_out = 0
        self.failed = False

    @property
    def problems(self) -> list[Problem]:
        return list(self._problems)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        while index := self._source.find("\n", starts[-1]) + 1:
            starts.append(index)
        return starts

    def at(self, node: Node, path: str, message: str, *, warning: bool = False, known: tuple[str, ...] = ()) -> None:
        """A problem of a whole node; `known` are the fields that its mapping may have, listed once per file."""
        self.add(message, node.line, node.column, path, warning=warning, known=known)

    def inside(self, node: Node, offset: int, path: str, message: str, *, warning: bool = False) -> None:
        """A problem at one character of a scalar."""
        if len(self._problems) >= MAX_PROBLEMS:
            line, column = node.line, node.column  # only counted
        else:
            index = self._positions(node).of(offset)
            line = bisect_right(self._line_starts, index) - 1
            column = index - self._line_starts[line]
        self.add(message, line, column, path, warning=warning)

    def _positions(self, node: Node) -> ScalarPositions:
        if self._last is None or self._last.node is not node:
            self._last = ScalarPositions(self._source, node)
        return self._last

    def add(
        self,
        message: str,
        line: int,
        column: int,
        path: str = "",
        *,
        warning: bool = False,
        known: tuple[str, ...] = (),
    ) -> None:
        """A problem at a position that counts from 0."""
        self.failed |= not warning
        if len(self._problems) >= MAX_PROBLEMS:
            self.left_out += 1
            return
        problem = Problem(
            message=message,
            path=path,
            line=line + 1,
            column=column + 1,
            file=self._file,
            warning=warning,
            known=known,
        )
        self._problems.setdefault(problem)


def check_about(node: Node, path: str, values: Mapping[str, Any], report: Reports) -> None:
    """Checks the size of the title, description and labels, which lists include."""
    try:
        limits.check_about(values)
    except limits.SizeError as error:
        report.at(node, path, str(error))


def join(path: str, *names: str | int) -> str:
    """`steps.fetch` + `args` + 1 is `steps.fetch.args[1]`."""
    for name in names:
        if isinstance(name, int):
            path += f"[{name}]"
        else:
            path = f"{path}.{name}" if path else name
    return path
