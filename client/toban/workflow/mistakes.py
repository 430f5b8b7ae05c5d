"""Mistakes in a workflow that is written in Python, with the file and line of the Python code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a Python file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is wrong, and where; `path` is the field of the definition."""

    place: Place
    path: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        path = f"{self.path}: " if self.path else ""
        return f"{self.place.file}:{self.place.line}: {kind}{path}{self.message}"


class InvalidWorkflow(Exception):  # noqa: N818 - the name describes the failure
    """A workflow cannot be defined like this. Its text lists all mistakes, each with file and line."""

    def __init__(self, name: str, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: Final = tuple(mistakes)
        super().__init__("\n".join([f"the workflow {name} is invalid:", *(f"  {each}" for each in self.mistakes)]))


def caller() -> Place:
    """The innermost line of the running code that is not in this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)


def raised_at(error: BaseException) -> Place | None:
    """The innermost line outside of this package from which an exception came."""
    place, trace = None, error.__traceback__
    while trace is not None:
        if not os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(_PACKAGE):
            place = Place(file=trace.tb_frame.f_code.co_filename, line=trace.tb_lineno)
        trace = trace.tb_next
    return place
