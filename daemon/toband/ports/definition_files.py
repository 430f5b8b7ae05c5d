"""Files that definitions are read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file as it was when it was loaded last.

    `digest` is of its content. `stored` has, by name, what tells the state in which each of its definitions was left
    from any other state of it; `warnings` are what people were told about them.
    """

    digest: str
    stored: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class DefinitionMemory(Protocol):
    """What is known of files from one daemon to the next.

    Losing it costs time and nothing else: whoever uses it compares with the file and with what is stored.
    """

    async def recall(self) -> Mapping[str, KnownFile]:
        """By path; nothing of files that another release, or another configuration, may have understood otherwise.

        Raises nothing.
        """
        ...

    async def remember(self, files: Mapping[str, KnownFile], changed: Collection[str]) -> None:
        """All of them; `changed` are the paths that are other than before, or gone. Raises nothing."""
        ...


class DefinitionFileSource(Protocol):
    """The files and directories that the configuration names."""

    async def look(self) -> Listing:
        """What there is now. Raises nothing: what cannot be looked at is in `unreadable`."""
        ...

    async def read(self, paths: Sequence[str]) -> Mapping[str, bytes | OSError]:
        """Of each at most a little more than a definition may have, or why it cannot be read."""
        ...

    async def changed(self, within: float) -> None:
        """Until something may have changed since the last call, or that many seconds have passed."""
        ...
