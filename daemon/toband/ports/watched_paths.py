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
    """Changes below a watched path within a short time: each file once, and the number of further files."""

    watch: str
    changes: tuple[PathChange, ...]
    more: int = 0


class PathWatcher(Protocol):
    """Watches files, and directories with everything below them. They need not exist."""

    def follow(self, paths: Collection[str]) -> None:
        """Watches these paths from now on, and no others. Returns at once: large directories are scanned in the
        background. Files that exist already are not reported.
        """
        ...

    async def changes(self) -> Sequence[WatchChanges]:
        """The next changes; empty if only `troubles` have changed."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]:
        """By path, why it cannot be watched, and what to do about it. The watcher retries on its own."""
        ...
