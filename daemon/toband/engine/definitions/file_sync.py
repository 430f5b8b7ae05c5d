"""Definitions that files own: what is stored follows the files, and a broken file changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from toban.definition import DefinitionKind
from toband.backoff import Backoff
from toband.engine.definitions.file_cache import KnownFiles, LoadedFile
from toband.engine.definitions.file_claims import (
    FirstClaims,
    below,
    by_owner,
    check_claims,
    claims_of,
    losing,
    portions,
)
from toband.engine.definitions.file_loader import (
    FileReader,
    Loader,
    ReadFile,
    Unread,
    UnusableFileError,
    unexpected,
)
from toband.engine.definitions.file_status import FileState, FileStates
from toband.ports import (
    ActiveRunError,
    Clock,
    Conditions,
    DefinitionFileSource,
    DefinitionMemory,
    DefinitionStore,
    JobInUseError,
    KnownFile,
    Listing,
    Mark,
    PutOutcome,
    StoredWorkflow,
    StoreError,
)

LOOK_AGAIN = 15.0
"""Seconds after which the files are looked at although nobody told of a change."""
LOOK_SOON = 1.0
"""The same while a file is read that takes long."""
PATIENCE, FIRST_PATIENCE = 2.0, 10.0
"""Seconds that one look waits for files that take long, and the first one."""
SETTLE, SETTLE_TRIES = 0.15, 4
"""Seconds that a file which is still written to gets, and how often."""

log = structlog.get_logger()


class ChangeKind(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    DISABLED = "disabled"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """What became of a definition; `path` is of the file that has it, or had it."""

    name: str
    kind: ChangeKind
    path: str


class DefinitionFiles:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        source: DefinitionFileSource,
        memory: DefinitionMemory,
        loader: Loader,
        reader: FileReader,
        store: DefinitionStore,
        clock: Clock,
        conditions: Conditions,
        changed: Callable[[], None],
        read: asyncio.Event,
        delete_removed: bool = False,
        watch: bool = True,
    ) -> None:
        """`changed` is called when schedules may have changed, and `read` is set when all files were looked at once.

        Without `watch` they are looked at once only.
        """
        self._source = source
        self._known = KnownFiles(memory)
        self._loader = loader
        self._reader = reader
        self._store = store
        self._clock = clock
        self._changed = changed
        self._read = read
        self._delete_removed = delete_removed
        self._watch = watch
        self._files = FileStates(clock, conditions)
        self._settled_with: Listing | None = None
        """What was there at the last look, if that left nothing to be done."""
        self._pending = False
        """Whether the last look left a file that is still being read."""
        self._turn = asyncio.Lock()

    @property
    def states(self) -> Sequence[FileState]:
        """Broken ones first, then by path."""
        return self._files.all

    async def run(self) -> None:
        """Until it is cancelled, or there is nothing to watch. Nothing that it meets ends it."""
        try:
            await self._run()
        except asyncio.CancelledError:
            self._reader.close()
            raise

    async def _run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._follow(everything=False)
            except Exception as error:
                known = isinstance(error, StoreError)
                log.error(
                    "cannot follow the definition files",
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
            await self._source.changed(LOOK_SOON if self._pending else LOOK_AGAIN)

    async def reload(self) -> Sequence[DefinitionChange]:
        """Reads every file again; what that changed. Raises StoreError."""
        return await self._follow(everything=True)

    # -- one look at all of them

    async def _follow(self, *, everything: bool) -> Sequence[DefinitionChange]:
        async with self._turn:
            changes: list[DefinitionChange] = []
            try:
                await self._look(changes, everything=everything)
                self._files.followed(None)
            except Exception as error:
                self._files.followed(error)
                raise
            finally:
                if changes:
                    self._changed()
                self._files.tell()
            return changes

    async def _look(self, changes: list[DefinitionChange], *, everything: bool) -> None:
        await self._known.recall()
        listing = await self._settled(everything=everything)
        if not everything and self._is_settled(listing):
            return
        self._settled_with, self._pending = None, False
        self._files.unreadable(listing.unreadable)
        self._forget_gone(listing)
        owned = await self._owned()
        loaded = await self._load(listing, owned, changes, everything=everything)
        now = await self._owned() if loaded else owned
        await self._known.loaded(loaded, owned, now)
        if await self._remove(listing, now.values(), changes) and not self._pending:
            self._settled_with = listing
        await self._known.remember()

    async def _owned(self) -> Mapping[str, StoredWorkflow]:
        return {each.name: each for each in await self._store.list_file_owned()}

    def _is_settled(self, listing: Listing) -> bool:
        """Whether this is what there was before, and all of it was well: nothing is asked of the database then."""
        last = self._settled_with
        return (
            last is not None
            and not listing.young
            and (listing.files, listing.unreadable) == (last.files, last.unreadable)
            and self._files.are_settled(listing.files)
        )

    async def _settled(self, *, everything: bool) -> Listing:
        """A listing without files that somebody seems to be writing, if that can be had in time."""
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
                self._known.gone(path)
                self._reader.forget(path)

    def _wanted(self, listing: Listing, *, everything: bool) -> Mapping[str, Mark]:
        """Files that are new, were changed, or could not be used before: what was in their way may be gone."""
        return {
            path: mark
            for path, mark in sorted(listing.files.items())
            if everything or (state := self._files.of(path)) is None or state.mark != mark or state.broken
        }

    async def _load(
        self,
        listing: Listing,
        owned: Mapping[str, StoredWorkflow],
        changes: list[DefinitionChange],
        *,
        everything: bool,
    ) -> Sequence[LoadedFile]:
        """Reads and stores; which files were stored.

        Those that are stored as they are, are well without being understood. Those that have to do with no other file
        are stored as they come, so that no more than a few are held at a time; the rest at the end.
        """
        wanted = self._wanted(listing, everything=everything)
        stored = by_owner(owned.values())
        claims = FirstClaims(owned)
        for path in listing.files.keys() - wanted.keys():
            claims.take(path, self._files.names_of(path))
        later: dict[str, ReadFile] = {}
        loaded: list[LoadedFile] = []
        slow: list[str] = []
        known: dict[str, KnownFile | None] = {}

        async def take(files: Sequence[ReadFile]) -> None:
            now: list[ReadFile] = []
            for file in files:
                if (before := known[file.path]) is not None and file.known:
                    self._files.well(file, tuple(before.stored), before.warnings)
                    claims.take(file.path, tuple(before.stored))
                elif file.problems:
                    had = [each.name for each in stored.get(file.path, ())]
                    self._files.broken(file, file.problems, had, file.cause)
                    claims.take(file.path, self._files.names_of(file.path))
                elif claims.take(file.path, file.names) and file.plain:
                    now.append(file)
                else:
                    later[file.path] = file
            failed = await self._store_together(now, {}, loaded, changes)
            later.update({file.path: file for file, _ in failed})

        for paths in portions(wanted):
            known |= {path: self._known.of(path, stored.get(path, ())) for path in paths}
            quick, left = await self._understood(paths, listing, known)
            slow += [file.path for file in left]
            await take(quick)
        # A file that is hard to read delays none of the others. Its text is read again, rather than kept until here.
        patience = PATIENCE if self._read.is_set() else FIRST_PATIENCE
        until = None if everything else time.monotonic() + patience
        for path in slow:
            quick, left = await self._understood([path], listing, known)
            for file in left:
                within = None if until is None else max(0.0, until - time.monotonic())
                if (found := await self._reader.slow(file, within)) is not None:
                    quick = [*quick, found]
                else:
                    self._pending = True
            await take(quick)
        await self._load_rest(listing, later, owned, loaded, changes)
        return loaded

    async def _understood(
        self, paths: Sequence[str], listing: Listing, known: Mapping[str, KnownFile | None]
    ) -> tuple[Sequence[ReadFile], Sequence[Unread]]:
        """What was read at once, and files that take longer."""
        unread: list[Unread] = []
        failed: list[ReadFile] = []
        for path, data in (await self._source.read(paths)).items():
            if isinstance(data, FileNotFoundError):
                continue
            if isinstance(data, OSError):
                text = f"cannot read {path}: {data.strerror or data}"
                failed.append(ReadFile(path=path, mark=None, problems=(text,)))
                continue
            # One that may yet change without a new mark is read again next time.
            mark = None if path in listing.young else listing.files[path]
            before = known[path]
            digest = before.digest if before is not None else ""
            unread.append(Unread(path=path, mark=mark, data=data, known=digest))
        found, left = await self._reader.quick(unread)
        return [*failed, *found], left

    async def _load_rest(
        self,
        listing: Listing,
        read: Mapping[str, ReadFile],
        owned: Mapping[str, StoredWorkflow],
        loaded: list[LoadedFile],
        changes: list[DefinitionChange],
    ) -> None:
        """Stores files one by one: of workflows that would start each other, the last sees those before it.

        A file may need a job of another: as long as one works out, the others get another try.
        """
        names = {path: read[path].names if path in read else self._files.names_of(path) for path in listing.files}
        claims = claims_of(names, owned) if read else {}
        waiting = sorted(read.values(), key=lambda file: (not file.has_jobs, file.path))
        while waiting:
            failed: list[tuple[ReadFile, UnusableFileError]] = []
            for file in waiting:
                try:
                    check_claims(file, claims)
                except UnusableFileError as taken:
                    failed.append((file, taken))
                    continue
                take_over = losing(file, owned, listing)
                failed += await self._store_together([file], take_over, loaded, changes)
            if len(failed) == len(waiting):
                stored = by_owner(owned.values())
                for file, error in failed:
                    had = [each.name for each in stored.get(file.path, ())]
                    self._files.broken(file, error.problems, had, error.cause)
                return
            waiting = [file for file, _ in failed]

    async def _store_together(
        self,
        files: Sequence[ReadFile],
        take_over: Mapping[str, str],
        loaded: list[LoadedFile],
        changes: list[DefinitionChange],
    ) -> Sequence[tuple[ReadFile, UnusableFileError]]:
        """Each whole or not at all, at the same time, so that they may share a commit; those that cannot be used.

        Raises StoreError.
        """
        failed: list[tuple[ReadFile, UnusableFileError]] = []
        broke: BaseException | None = None
        tries = [self._loader.keep(file, take_over) for file in files]
        for file, kept in zip(files, await asyncio.gather(*tries, return_exceptions=True), strict=True):
            if isinstance(kept, UnusableFileError):
                failed.append((file, kept))
            elif isinstance(kept, Exception) and not isinstance(kept, StoreError):
                failed.append((file, unexpected(file.path, kept)))
            elif isinstance(kept, BaseException):
                broke = kept
            else:
                changes += _told(file, kept.outcomes)
                self._files.well(file, file.names, kept.warnings)
                loaded.append(LoadedFile.of(file, kept))
        if changes:
            # They become due also while there are others to be read.
            self._changed()
        if broke is not None:
            raise broke
        return failed

    async def _remove(self, listing: Listing, owned: Iterable[StoredWorkflow], changes: list[DefinitionChange]) -> bool:
        """What is in no file any more is disabled, or deleted. Workflows first: they use the jobs.

        False if something was in the way of that.
        """
        done = True
        for each in sorted(owned, key=lambda each: each.kind is DefinitionKind.JOB):
            path = each.owner
            if each.file:
                if self._still_has(each, listing):
                    continue
                if not await self._store.disown_definition(each.name, path, at=self._clock.now()):
                    done = False
                    continue
            if self._delete_removed and await self._deleted(each):
                kind = ChangeKind.DELETED
            elif each.file:
                kind = ChangeKind.DISABLED
                done = done and not self._delete_removed
            else:
                done = done and not self._delete_removed
                continue
            changes.append(DefinitionChange(name=each.name, kind=kind, path=path))
            log.warning(
                "a definition is in no file any more",
                action="definition_removed",
                definition=each.name,
                outcome=kind.value,
                path=path,
            )
        return done

    def _still_has(self, stored: StoredWorkflow, listing: Listing) -> bool:
        if stored.file not in listing.files:
            return below(stored.file, listing.unreadable)
        state = self._files.of(stored.file)
        # One that went while it was being read is looked for again next time.
        return state is None or state.broken or stored.name in state.names

    async def _deleted(self, stored: StoredWorkflow) -> bool:
        """False if something is in the way; it is tried again with every look."""
        try:
            return await self._store.delete_workflow(stored.name, at=self._clock.now(), kind=stored.kind)
        except (ActiveRunError, JobInUseError):
            return False


def _told(file: ReadFile, outcomes: Mapping[str, PutOutcome]) -> Sequence[DefinitionChange]:
    changes = []
    for name, outcome in outcomes.items():
        if outcome is PutOutcome.UNCHANGED:
            continue
        kind = ChangeKind.CREATED if outcome is PutOutcome.CREATED else ChangeKind.UPDATED
        changes.append(DefinitionChange(name=name, kind=kind, path=file.path))
        log.info(
            "a definition was loaded from its file",
            action="definition_loaded",
            definition=name,
            outcome=kind.value,
            path=file.path,
        )
    return changes
