"""Definition files: their source, and a memory of those that were loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Metadata that changes with a file's content; equal marks nearly always mean equal content."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The existing files, by path.

    `unreadable` has, by path, why a directory or file cannot be listed; its contents are unknown. `young` are files
    that changed so recently that their writer may not be done, or may change them again without a new mark.
    """

    files: Mapping[str, Mark]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    young: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file as it was when it was last loaded.

    `digest` is of its content. `stored` has, by name, the state in which each of its definitions was stored;
    `warnings` are those that were reported for them.
    """

    digest: str
    stored: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class DefinitionMemory(Protocol):
    """Remembers loaded files across restarts.

    Losing it costs only time: callers compare it with the file and with the stored definitions.
    """

    async def recall(self) -> Mapping[str, KnownFile]:
        """By path; empty if another release or configuration wrote it: it may read files differently. Never raises."""
        ...

    async def remember(self, files: Mapping[str, KnownFile], changed: Collection[str]) -> None:
        """Stores all of them; `changed` are the paths that differ or were removed. Never raises."""
        ...


class DefinitionFileSource(Protocol):
    """The files and directories that the configuration names."""

    async def look(self) -> Listing:
        """The files that exist now. Never raises: paths that cannot be listed are in `unreadable`."""
        ...

    async def read(self, paths: Sequence[str]) -> Mapping[str, bytes | OSError]:
        """The content of each, cut a little above the size limit of a definition, or the error."""
        ...

    async def changed(self, within: float) -> None:
        """Waits until something may have changed since the last call, or that many seconds have passed."""
        ...
