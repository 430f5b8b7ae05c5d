"""Cache of loaded definition files: one with the same content and stored definitions is not parsed again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toband.engine.definitions.file_loader import LoadResult, ReadFile
from toband.ports import DefinitionMemory, KnownFile, PutOutcome, StoredWorkflow

TURN = 500
"""Files after which the event loop gets a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A file whose definitions were stored, without its documents, to save memory."""

    path: str
    digest: str
    names: tuple[str, ...]
    result: LoadResult

    @classmethod
    def of(cls, file: ReadFile, result: LoadResult) -> LoadedFile:
        return cls(path=file.path, digest=file.digest, names=file.names, result=result)


class FileCache:
    """Belongs to the event loop."""

    def __init__(self, memory: DefinitionMemory) -> None:
        self._memory = memory
        self._files: dict[str, KnownFile] | None = None
        self._changed: set[str] = set()

    async def recall(self) -> None:
        """Call it before anything else; repeated calls do nothing."""
        if self._files is None:
            self._files = dict(await self._memory.recall())

    def of(self, path: str, stored: Sequence[StoredWorkflow]) -> KnownFile | None:
        """The last load of a file, if the definitions that it owns are still exactly those."""
        cached = self._entries.get(path)
        if cached is None or cached.stored != {each.name: _state(each) for each in stored}:
            return None
        return cached

    async def loaded(
        self,
        files: Sequence[LoadedFile],
        before: Mapping[str, StoredWorkflow],
        after: Mapping[str, StoredWorkflow],
    ) -> None:
        """`before` and `after` are the definitions that files owned before these were stored, and after it."""
        for count, file in enumerate(files, start=1):
            cached = _cached(file, before, after)
            if cached is not None and self._entries.get(file.path) != cached:
                self._entries[file.path] = cached
                self._changed.add(file.path)
            if not count % TURN:
                await asyncio.sleep(0)

    def gone(self, path: str) -> None:
        if self._entries.pop(path, None) is not None:
            self._changed.add(path)

    async def remember(self) -> None:
        """Saves the changes for the next daemon."""
        if self._changed:
            changed, self._changed = self._changed, set()
            await self._memory.remember(dict(self._entries), changed)

    @property
    def _entries(self) -> dict[str, KnownFile]:
        assert self._files is not None, "call recall first"
        return self._files


def _state(stored: StoredWorkflow) -> str:
    """Unique for each state of a definition, even if the database was restored from an older copy."""
    return f"{stored.etag} {stored.updated_at.isoformat()}"


def _cached(
    file: LoadedFile,
    before: Mapping[str, StoredWorkflow],
    after: Mapping[str, StoredWorkflow],
) -> KnownFile | None:
    """None if one of its definitions was changed meanwhile."""
    stored: dict[str, str] = {}
    for name in file.names:
        found = after.get(name)
        if found is None:
            return None
        if file.result.outcomes[name] is PutOutcome.UNCHANGED:
            unchanged = name in before and _state(before[name]) == _state(found)
        else:
            unchanged = found.updated_at == file.result.at
        if not unchanged:
            return None
        stored[name] = _state(found)
    return KnownFile(digest=file.digest, stored=stored, warnings=file.result.warnings)
