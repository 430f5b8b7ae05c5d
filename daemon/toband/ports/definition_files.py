"""Files that definitions are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Tells one content of a file from another without reading it; equal marks nearly always mean the same content."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files that there are, by path, and how old the youngest change of each is.

    `unreadable` has, by path, why a place cannot be looked at: nobody knows what is below it. `young` are files that
    were changed so recently that whoever writes them may not be done, or may change them again without a new mark.
    """

    files: Mapping[str, Mark]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    young: frozenset[str] = frozenset()


class DefinitionSource(Protocol):
    """The files and directories that the configuration names."""

    async def look(self) -> Listing:
        """What there is now. Raises nothing: what cannot be looked at is in `unreadable`."""
        ...

    async def read(self, path: str) -> bytes:
        """At most a little more than a definition may have. Raises OSError."""
        ...

    async def changed(self, within: float) -> None:
        """Until something may have changed since the last call, or that many seconds have passed."""
        ...
