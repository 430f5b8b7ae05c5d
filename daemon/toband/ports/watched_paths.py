"""Changes of the files and directories that workflows watch."""

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
    """One changed file or directory; `path` begins with the declared path, with links unresolved.

    A path that is not UTF-8 has U+FFFD for the bytes that are not, and is `altered`: it cannot be opened.
    """

    path: str
    change: FileChange
    altered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchChanges:
    """Changes below a watched path within a short time: each file once, and the number of further files.

    They are for the watches of that path that wait `settle` seconds for a file.
    """

    watch: str
    settle: float = 0.0
    changes: tuple[PathChange, ...]
    more: int = 0


class PathWatcher(Protocol):
    """Watches files, and directories with everything below them. They need not exist."""

    def follow(self, paths: Mapping[str, Collection[float]]) -> None:
        """Watches these paths from now on, and no others. Returns at once: large directories are scanned in the
        background. Files that exist already are not reported.

        Each path has the times to wait: with 0 changes are reported at once, otherwise those of a regular file when its
        size and time have not changed for so many seconds. A deletion is always reported at once, and so is a file that
        was renamed into place.
        """
        ...

    async def changes(self) -> Sequence[WatchChanges]:
        """The next changes; empty if only `troubles` have changed."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]:
        """By path, why it cannot be watched, and what to do about it. The watcher retries on its own."""
        ...
