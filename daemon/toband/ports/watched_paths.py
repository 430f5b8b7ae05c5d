"""Files and directories that workflows watch, and word of their changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class FileChange(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """What became of one file or directory; `path` is as below the path that was declared, links and all.

    One that is no text is told with U+FFFD in the place of what is none, and is `altered`: nothing is found by it.
    """

    path: str
    change: FileChange
    altered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchChanges:
    """What changed about a watched path within a short while: each file once, and how many more there were."""

    watch: str
    changes: tuple[PathChange, ...]
    more: int = 0


class PathWatcher(Protocol):
    """Watches files, and directories with all below them; none of them has to be there."""

    def follow(self, paths: Collection[str]) -> None:
        """From now on these, and no others. Returns at once: what is large is looked through beside everything else.

        Of what is there already, nothing is told.
        """
        ...

    async def changes(self) -> Sequence[WatchChanges]:
        """The next changes; empty if only `troubles` have changed."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]:
        """By path, why it cannot be watched, and what would help; it is tried again without being asked."""
        ...
