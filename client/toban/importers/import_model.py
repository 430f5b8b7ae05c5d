"""The result of an import: drafts of workflows, and the entries that could not be imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

Times = Callable[[datetime, int], list[datetime]]
"""Computes the first due times strictly after a moment, in UTC, up to a count."""

_LONGEST_NAME = 50
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]+")


class ImportProblem(Exception):  # noqa: N818 - a finding, not an error of the program
    """Something has no counterpart in Toban; the text names it. `ignorable`: it is a directive of a unit."""

    def __init__(self, text: str, *, ignorable: bool = False) -> None:
        super().__init__(text)
        self.ignorable = ignorable


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedEntry:
    """An entry that was not imported, its position, and why. `ignorable`: it could be without some directives."""

    where: str
    reason: str
    ignorable: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDraft:
    """A workflow to be written.

    `document` is the content of the file, `comments` are written above it, `notes` are for the importing user. `zone`
    is the zone of its times. `theirs` computes the due times from the original, without the schedule that was made of
    it; None: they cannot be known, as with `@reboot`.
    """

    name: str
    where: str
    document: Mapping[str, Any]
    comments: Sequence[str] = ()
    notes: Sequence[str] = ()
    zone: ZoneInfo
    theirs: Times | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The whole result of an import, in the order of its source."""

    drafts: tuple[WorkflowDraft, ...]
    refused: tuple[RefusedEntry, ...] = ()


def literal(text: str) -> str:
    """The text, escaped for a field that may contain templates."""
    return text.replace("{{", '{{ "{{" }}')


def valid_name(text: str, *, otherwise: str) -> str:
    """A valid workflow name that resembles the text."""
    name = _NOT_IN_NAMES.sub("-", text.lower()).strip("-_")[:_LONGEST_NAME].rstrip("-_")
    return name or otherwise


class ImportedNames:
    """Unique names for imported workflows, in linear time even if many want the same one."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def free(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        if name not in self._taken:
            return name
        number = self._next.get(name, 2)
        while f"{name}-{number}" in self._taken:
            number += 1
        self._next[name] = number
        return f"{name}-{number}"

    def take(self, name: str) -> None:
        self._taken.add(name)
