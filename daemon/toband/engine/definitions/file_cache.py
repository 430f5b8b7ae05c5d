"""Files whose definitions are stored as they stand there, so that nobody has to read them again to know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toband.engine.definitions.file_loader import Kept, ReadFile
from toband.ports import DefinitionMemory, KnownFile, PutOutcome, StoredWorkflow

TURN = 500
"""Files after which others get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFile:
    """A file whose definitions were stored; without them, of which there may be many."""

    path: str
    digest: str
    names: tuple[str, ...]
    kept: Kept

    @classmethod
    def of(cls, file: ReadFile, kept: Kept) -> LoadedFile:
        return cls(path=file.path, digest=file.digest, names=file.names, kept=kept)


class KnownFiles:
    """Belongs to the event loop."""

    def __init__(self, memory: DefinitionMemory) -> None:
        self._memory = memory
        self._files: dict[str, KnownFile] | None = None
        self._changed: set[str] = set()

    async def recall(self) -> None:
        """Once, before anything else; later calls do nothing."""
        if self._files is None:
            self._files = dict(await self._memory.recall())

    def of(self, path: str, stored: Sequence[StoredWorkflow]) -> KnownFile | None:
        """What was last loaded of a file, if what it owns now is exactly that.

        Whatever changed there since, by whomever, is a reason to read the file again.
        """
        known = self._known.get(path)
        if known is None or known.stored != {each.name: _state(each) for each in stored}:
            return None
        return known

    async def loaded(
        self,
        files: Sequence[LoadedFile],
        before: Mapping[str, StoredWorkflow],
        after: Mapping[str, StoredWorkflow],
    ) -> None:
        """`before` and `after` are what files owned before these were stored, and some time after that."""
        for count, file in enumerate(files, start=1):
            known = _known(file, before, after)
            if known is not None and self._known.get(file.path) != known:
                self._known[file.path] = known
                self._changed.add(file.path)
            if not count % TURN:
                await asyncio.sleep(0)

    def gone(self, path: str) -> None:
        if self._known.pop(path, None) is not None:
            self._changed.add(path)

    async def remember(self) -> None:
        """For the next daemon."""
        if self._changed:
            changed, self._changed = self._changed, set()
            await self._memory.remember(dict(self._known), changed)

    @property
    def _known(self) -> dict[str, KnownFile]:
        assert self._files is not None, "nobody recalled them"
        return self._files


def _state(stored: StoredWorkflow) -> str:
    """No two states of a definition share it, not even those of one database that was set back to an older copy."""
    return f"{stored.etag} {stored.updated_at.isoformat()}"


def _known(
    file: LoadedFile,
    before: Mapping[str, StoredWorkflow],
    after: Mapping[str, StoredWorkflow],
) -> KnownFile | None:
    """None if somebody else changed one of its definitions meanwhile."""
    stored: dict[str, str] = {}
    for name in file.names:
        found = after.get(name)
        if found is None:
            return None
        if file.kept.outcomes[name] is PutOutcome.UNCHANGED:
            undisturbed = name in before and _state(before[name]) == _state(found)
        else:
            undisturbed = found.updated_at == file.kept.at
        if not undisturbed:
            return None
        stored[name] = _state(found)
    return KnownFile(digest=file.digest, stored=stored, warnings=file.kept.warnings)
