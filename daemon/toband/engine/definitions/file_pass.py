"""One pass over the definition files: reads those that changed, and stores their definitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from toband.engine.definitions import file_changes
from toband.engine.definitions.file_cache import FileCache, LoadedFile
from toband.engine.definitions.file_changes import DefinitionChange
from toband.engine.definitions.file_claims import FirstClaims, by_owner, check_claims, claims_of, losing, portions
from toband.engine.definitions.file_loader import (
    FileContent,
    FileLoader,
    FileReader,
    ReadFile,
    UnusableFileError,
    unexpected,
)
from toband.engine.definitions.file_status import FileStates
from toband.ports import DefinitionFileSource, KnownFile, Listing, Mark, StoredWorkflow, StoreError

_Failed = list[tuple[ReadFile, UnusableFileError]]


class FilePass:
    """`loaded` are the files whose definitions it stored; `pending`: a slow file is still being parsed."""

    def __init__(
        self,
        *,
        source: DefinitionFileSource,
        reader: FileReader,
        loader: FileLoader,
        files: FileStates,
        cache: FileCache,
        listing: Listing,
        owned: Mapping[str, StoredWorkflow],
        changes: list[DefinitionChange],
        changed: Callable[[], None],
    ) -> None:
        """`owned` are the definitions that files own, by name. Changes are added to `changes`."""
        self._source = source
        self._reader = reader
        self._loader = loader
        self._files = files
        self._cache = cache
        self._listing = listing
        self._owned = owned
        self._by_owner = by_owner(owned.values())
        self._claims = FirstClaims(owned)
        self._cached: dict[str, KnownFile | None] = {}
        self._later: dict[str, ReadFile] = {}
        self._changes = changes
        self._changed = changed
        self.loaded: list[LoadedFile] = []
        self.pending = False

    async def run(self, *, everything: bool, patience: float) -> None:
        """Files that have nothing to do with others are stored as they are read, so that few are in memory at a time;
        the others at the end. A slow file delays no other, and the pass waits `patience` seconds for all slow files;
        with `everything` it reads all files and waits for all. Raises StoreError.
        """
        wanted = self._wanted(everything=everything)
        for path in self._listing.files.keys() - wanted.keys():
            self._claims.take(path, self._files.names_of(path))
        slow: list[str] = []
        for paths in portions(wanted):
            self._cached |= {path: self._cache.of(path, self._by_owner.get(path, ())) for path in paths}
            quick, left = await self._read(paths)
            slow += [file.path for file in left]
            await self._take(quick)
        await self._read_slow(slow, None if everything else time.monotonic() + patience)
        await self._store_rest()

    def _wanted(self, *, everything: bool) -> Mapping[str, Mark]:
        """New and changed files, and broken ones: the cause may be gone."""
        return {
            path: mark
            for path, mark in sorted(self._listing.files.items())
            if everything or (state := self._files.of(path)) is None or state.mark != mark or state.broken
        }

    # Reading.

    async def _read(self, paths: Sequence[str]) -> tuple[Sequence[ReadFile], Sequence[FileContent]]:
        """Files that were parsed at once, and files that take longer."""
        contents: list[FileContent] = []
        failed: list[ReadFile] = []
        for path, data in (await self._source.read(paths)).items():
            if isinstance(data, FileNotFoundError):
                continue
            if isinstance(data, OSError):
                text = f"cannot read {path}: {data.strerror or data}"
                failed.append(ReadFile(path=path, mark=None, problems=(text,)))
                continue
            # A file that may still change without a new mark is read again next time.
            mark = None if path in self._listing.young else self._listing.files[path]
            cached = self._cached[path]
            digest = cached.digest if cached is not None else ""
            contents.append(FileContent(path=path, mark=mark, data=data, cached=digest))
        found, left = await self._reader.quick(contents)
        return [*failed, *found], left

    async def _read_slow(self, paths: Sequence[str], until: float | None) -> None:
        for path in paths:
            # Reading its text again takes less memory than keeping it until here.
            quick, left = await self._read([path])
            for file in left:
                within = None if until is None else max(0.0, until - time.monotonic())
                if (found := await self._reader.slow(file, within)) is not None:
                    quick = [*quick, found]
                else:
                    self.pending = True
            await self._take(quick)

    async def _take(self, files: Sequence[ReadFile]) -> None:
        """Stores files that are independent of others, and keeps the others for the end."""
        now: list[ReadFile] = []
        for file in files:
            cached = self._cached[file.path]
            if cached is not None and file.cached:
                self._files.usable(file, tuple(cached.stored), cached.warnings)
                self._claims.take(file.path, tuple(cached.stored))
            elif file.problems:
                self._broken(file, UnusableFileError(file.problems, file.cause))
                self._claims.take(file.path, self._files.names_of(file.path))
            elif self._claims.take(file.path, file.names) and file.plain:
                now.append(file)
            else:
                self._later[file.path] = file
        failed = await self._store(now, {})
        self._later.update({file.path: file for file, _ in failed})

    # Storing.

    async def _store_rest(self) -> None:
        """Stores the kept files one by one: of workflows that would start each other, the last one sees the others.

        A file may need a job of another: as long as one succeeds, the failed ones are tried again.
        """
        names = {path: self._names_of(path) for path in self._listing.files}
        claims = claims_of(names, self._owned) if self._later else {}
        waiting = sorted(self._later.values(), key=lambda file: (not file.has_jobs, file.path))
        while waiting:
            failed: _Failed = []
            for file in waiting:
                try:
                    check_claims(file, claims)
                except UnusableFileError as taken:
                    failed.append((file, taken))
                else:
                    failed += await self._store([file], losing(file, self._owned, self._listing))
            if len(failed) == len(waiting):
                for file, error in failed:
                    self._broken(file, error)
                return
            waiting = [file for file, _ in failed]

    def _names_of(self, path: str) -> Sequence[str]:
        return self._later[path].names if path in self._later else self._files.names_of(path)

    async def _store(self, files: Sequence[ReadFile], take_over: Mapping[str, str]) -> _Failed:
        """Each file whole or not at all, at the same time, so that they share a commit; the failed ones.

        Raises StoreError.
        """
        failed: _Failed = []
        fatal: BaseException | None = None
        work = [self._loader.load(file, take_over) for file in files]
        for file, result in zip(files, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(result, UnusableFileError):
                failed.append((file, result))
            elif isinstance(result, Exception) and not isinstance(result, StoreError):
                failed.append((file, unexpected(file.path, result)))
            elif isinstance(result, BaseException):
                fatal = result
            else:
                self._changes += file_changes.loaded(file.path, result.outcomes)
                self._files.usable(file, file.names, result.warnings)
                self.loaded.append(LoadedFile.of(file, result))
        if self._changes:
            # Their schedules start before the remaining files are read.
            self._changed()
        if fatal is not None:
            raise fatal
        return failed

    def _broken(self, file: ReadFile, error: UnusableFileError) -> None:
        owned = [each.name for each in self._by_owner.get(file.path, ())]
        self._files.broken(file, error.problems, owned, error.cause)
