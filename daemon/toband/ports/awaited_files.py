"""Files that steps wait for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


class FileMark(NamedTuple):
    """`content` differs when the file was written or replaced; `changed_at` is when that was, in seconds since 1970."""

    content: tuple[int, ...]
    changed_at: float


class AwaitedFiles(Protocol):
    async def look(self, paths: Collection[str]) -> Mapping[str, FileMark]:
        """The marks of those that exist, as far as the daemon can see them. Follows links."""
        ...
