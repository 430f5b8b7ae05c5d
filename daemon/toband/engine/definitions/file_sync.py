"""Keeps the stored definitions in step with the definition files. A broken file changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from toband.backoff import Backoff
from toband.engine.definitions.file_cache import FileCache
from toband.engine.definitions.file_changes import DefinitionChange
from toband.engine.definitions.file_claims import below
from toband.engine.definitions.file_loader import FileLoader, FileReader
from toband.engine.definitions.file_pass import FilePass
from toband.engine.definitions.file_removal import FileRemoval
from toband.engine.definitions.file_status import DefinitionFileState, FileStates
from toband.ports import (
    Clock,
    Conditions,
    DefinitionFileSource,
    DefinitionMemory,
    DefinitionStore,
    Listing,
    StoredWorkflow,
    StoreError,
)

CHECK_EVERY = 15.0
"""Seconds between checks of the files without a notification."""
CHECK_PENDING = 1.0
"""The same while a slow file is being parsed."""
PATIENCE, FIRST_PATIENCE = 2.0, 10.0
"""Seconds that a pass, and the first pass, waits for slow files."""
SETTLE, SETTLE_TRIES = 0.15, 4
"""Seconds to wait for a file that is being written, and how often."""

log = structlog.get_logger()


class FileSync:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        source: DefinitionFileSource,
        memory: DefinitionMemory,
        loader: FileLoader,
        reader: FileReader,
        store: DefinitionStore,
        clock: Clock,
        conditions: Conditions,
        changed: Callable[[], None],
        read: asyncio.Event,
        delete_removed: bool = False,
        watch: bool = True,
    ) -> None:
        """`changed` is called when schedules may have changed. `read` is set after the first pass over all files.

        Without `watch` there is one pass only.
        """
        self._source = source
        self._cache = FileCache(memory)
        self._loader = loader
        self._reader = reader
        self._store = store
        self._changed = changed
        self._read = read
        self._watch = watch
        self._files = FileStates(clock, conditions)
        self._removal = FileRemoval(store, clock, self._files, delete=delete_removed)
        self._settled_with: Listing | None = None
        """The listing of the last pass, if that pass left nothing to do."""
        self._pending = False
        """The last pass left a file that is still being parsed."""
        self._lock = asyncio.Lock()

    @property
    def states(self) -> Sequence[DefinitionFileState]:
        """Broken ones first, then by path."""
        return self._files.all

    async def run(self) -> None:
        """Runs until it is cancelled, or once without `watch`. No error ends it."""
        try:
            await self._run()
        except asyncio.CancelledError:
            self._reader.close()
            raise

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._sync(everything=False)
            except Exception as error:
                known = isinstance(error, StoreError)
                log.error(
                    "cannot load the definition files",
                    action="definitions_failed",
                    error=str(error),
                    exc_info=None if known else error,
                )
                await asyncio.sleep(backoff.pause())
                continue
            backoff.reset()
            if not self._read.is_set():
                self._read.set()
                self._changed()
            if not self._watch:
                return
            await self._source.changed(CHECK_PENDING if self._pending else CHECK_EVERY)

    async def reload(self) -> Sequence[DefinitionChange]:
        """Reads every file again, and returns the changes. Raises StoreError."""
        return await self._sync(everything=True)

    async def _sync(self, *, everything: bool) -> Sequence[DefinitionChange]:
        async with self._lock:
            changes: list[DefinitionChange] = []
            try:
                await self._pass(changes, everything=everything)
                self._files.synced(None)
            except Exception as error:
                self._files.synced(error)
                raise
            finally:
                if changes:
                    self._changed()
                self._files.report()
            return changes

    async def _pass(self, changes: list[DefinitionChange], *, everything: bool) -> None:
        await self._cache.recall()
        listing = await self._list_settled(everything=everything)
        if not everything and self._is_settled(listing):
            return
        self._settled_with, self._pending = None, False
        self._files.unreadable(listing.unreadable)
        self._forget_gone(listing)
        owned = await self._owned()
        work = FilePass(
            source=self._source,
            reader=self._reader,
            loader=self._loader,
            files=self._files,
            cache=self._cache,
            listing=listing,
            owned=owned,
            changes=changes,
            changed=self._changed,
        )
        try:
            await work.run(everything=everything, patience=PATIENCE if self._read.is_set() else FIRST_PATIENCE)
        finally:
            self._pending = work.pending
        now = await self._owned() if work.loaded else owned
        await self._cache.loaded(work.loaded, owned, now)
        if await self._removal.remove(listing, now.values(), changes) and not self._pending:
            self._settled_with = listing
        await self._cache.remember()

    async def _owned(self) -> Mapping[str, StoredWorkflow]:
        return {each.name: each for each in await self._store.list_file_owned()}

    def _is_settled(self, listing: Listing) -> bool:
        """Whether nothing has changed since a pass without errors: then the database is not queried."""
        last = self._settled_with
        return (
            last is not None
            and not listing.young
            and (listing.files, listing.unreadable) == (last.files, last.unreadable)
            and self._files.are_settled(listing.files)
        )

    async def _list_settled(self, *, everything: bool) -> Listing:
        """Waits a moment for files that are being written."""
        listing = await self._source.look()
        for _ in range(SETTLE_TRIES):
            if not any(everything or self._is_new(path, listing) for path in listing.young):
                break
            await asyncio.sleep(SETTLE)
            listing = await self._source.look()
        return listing

    def _is_new(self, path: str, listing: Listing) -> bool:
        state = self._files.of(path)
        return state is None or state.mark != listing.files[path]

    def _forget_gone(self, listing: Listing) -> None:
        for path in set(self._files.paths) - listing.files.keys():
            if not below(path, listing.unreadable):
                self._files.gone(path)
                self._cache.gone(path)
                self._reader.forget(path)
