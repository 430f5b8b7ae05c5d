"""Definitions that files own: what is stored follows the files, and a broken file changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import structlog

from toban.definition import DefinitionKind
from toband.engine.actor import RETRY_FIRST, RETRY_MOST
from toband.engine.loading import Loader, ReadFile, UnusableFileError, understand
from toband.ports import (
    REMOVED,
    ActiveRunError,
    Clock,
    Conditions,
    DefinitionSource,
    HealthStatus,
    JobInUseError,
    Listing,
    Mark,
    PutOutcome,
    Store,
    StoredWorkflow,
    StoreError,
)

CONDITION = "definitions"
LOOK_AGAIN = 15.0
"""Seconds after which the files are looked at although nobody told of a change."""
SETTLE, SETTLE_TRIES = 0.15, 4
"""Seconds that a file which is still written to gets, and how often."""
PROBLEMS_MOST = 20
"""Lines that are told of one file."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file, or a directory that cannot be looked at. One that is broken has the names that it had before.

    `mark` is of what was read last; None: it is to be read again. `loaded_at` is None if what is stored of it was
    stored by an earlier daemon.
    """

    path: str
    mark: Mark | None
    names: tuple[str, ...] = ()
    broken: bool = False
    problems: tuple[str, ...] = ()
    loaded_at: datetime | None = None


class DefinitionFiles:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        source: DefinitionSource,
        loader: Loader,
        store: Store,
        clock: Clock,
        conditions: Conditions,
        changed: Callable[[], None],
        delete_removed: bool = False,
        watch: bool = True,
    ) -> None:
        """`changed` is called when schedules may have changed; without `watch` the files are looked at once only."""
        self._source = source
        self._loader = loader
        self._store = store
        self._clock = clock
        self._conditions = conditions
        self._changed = changed
        self._delete_removed = delete_removed
        self._watch = watch
        self._files: dict[str, FileState] = {}
        self._unreadable: Mapping[str, str] = {}
        self._turn = asyncio.Lock()

    @property
    def states(self) -> Sequence[FileState]:
        """Broken ones first, then by path."""
        unreadable = [
            FileState(path=path, mark=None, broken=True, problems=(f"cannot read {path}: {why}",))
            for path, why in self._unreadable.items()
        ]
        return sorted(
            (*self._files.values(), *unreadable), key=lambda each: (not each.broken, each.path)
        )

    async def run(self) -> None:
        """Until it is cancelled, or there is nothing to watch. Nothing that it meets ends it."""
        pause = RETRY_FIRST
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
                await asyncio.sleep(pause)
                pause = min(RETRY_MOST, pause * 2)
                continue
            pause = RETRY_FIRST
            if not self._watch:
                return
            await self._source.changed(LOOK_AGAIN)

    async def reload(self) -> Sequence[DefinitionChange]:
        """Reads every file again; what that changed. Raises StoreError."""
        return await self._follow(everything=True)

    # -- one look at all of them

    async def _follow(self, *, everything: bool) -> Sequence[DefinitionChange]:
        async with self._turn:
            changes: list[DefinitionChange] = []
            try:
                listing = await self._settled(everything=everything)
                self._unreadable = listing.unreadable
                self._forget_gone(listing)
                owned = {each.name: each for each in await self._store.list_file_owned()}
                read = await self._read(listing, owned, everything=everything)
                if read:
                    await self._keep(listing, read, owned, changes)
                await self._remove(listing, changes)
            finally:
                if changes:
                    self._changed()
                self._tell()
            return changes

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
        state = self._files.get(path)
        return state is None or state.mark != listing.files[path]

    def _forget_gone(self, listing: Listing) -> None:
        for path in self._files.keys() - listing.files.keys():
            if not _below(path, listing.unreadable):
                del self._files[path]

    async def _read(
        self, listing: Listing, owned: Mapping[str, StoredWorkflow], *, everything: bool
    ) -> dict[str, ReadFile]:
        """Files that are new, were changed, or could not be used before: what was in their way may be gone."""
        read: dict[str, ReadFile] = {}
        for path, mark in sorted(listing.files.items()):
            state = self._files.get(path)
            if not everything and state is not None and state.mark == mark and not state.broken:
                continue
            # One that may yet change without a new mark is read again next time.
            known = None if path in listing.young else mark
            try:
                found = await understand(path, known, await self._source.read(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                text = f"cannot read {path}: {error.strerror or error}"
                found = ReadFile(path=path, mark=None, problems=(text,))
            if found.problems:
                self._is_broken(found, found.problems, _names_of(path, owned))
            read[path] = found
        return read

    async def _keep(
        self,
        listing: Listing,
        read: Mapping[str, ReadFile],
        owned: Mapping[str, StoredWorkflow],
        changes: list[DefinitionChange],
    ) -> None:
        """Stores what was read.

        A file may need a job of another: as long as one works out, the others get another try.
        """
        claims = self._claims(listing, read, owned)
        waiting = [file for file in read.values() if not file.problems]
        waiting.sort(key=lambda file: (not file.has_jobs, file.path))
        progress = True
        while waiting and progress:
            failed: list[tuple[ReadFile, tuple[str, ...]]] = []
            for file in waiting:
                try:
                    _check_claims(file, claims)
                    take_over = _losing(file, owned, listing)
                    kept = await self._loader.keep(file, take_over)
                except UnusableFileError as error:
                    failed.append((file, error.problems))
                    continue
                changes += _told(file, kept.outcomes)
                self._is_well(file, kept.warnings)
            progress = len(failed) < len(waiting)
            waiting = [file for file, _ in failed]
            if not progress:
                for file, problems in failed:
                    self._is_broken(file, problems, _names_of(file.path, owned))

    def _claims(
        self,
        listing: Listing,
        read: Mapping[str, ReadFile],
        owned: Mapping[str, StoredWorkflow],
    ) -> Mapping[str, str]:
        """Which file has a name: the one that had it before, if it still has; else the first."""
        claims: dict[str, str] = {}
        for path in sorted(listing.files):
            file, state = read.get(path), self._files.get(path)
            if file is not None and not file.problems:
                names: Iterable[str] = file.names
            else:
                names = state.names if state is not None else ()
            for name in names:
                if name not in claims or (name in owned and owned[name].owner == path):
                    claims[name] = path
        return claims

    async def _remove(self, listing: Listing, changes: list[DefinitionChange]) -> None:
        """What is in no file any more is disabled, or deleted. Workflows first: they use the jobs."""
        owned = await self._store.list_file_owned()
        for each in sorted(owned, key=lambda each: each.kind is DefinitionKind.JOB):
            path = each.owner.removesuffix(REMOVED)
            if each.file:
                if self._still_has(each, listing):
                    continue
                if not await self._store.disown_definition(each.name, path, at=self._clock.now()):
                    continue
            if self._delete_removed and await self._deleted(each):
                kind = ChangeKind.DELETED
            elif each.file:
                kind = ChangeKind.DISABLED
            else:
                continue
            changes.append(DefinitionChange(name=each.name, kind=kind, path=path))
            log.warning(
                "a definition is in no file any more",
                action="definition_removed",
                definition=each.name,
                outcome=kind.value,
                path=path,
            )

    def _still_has(self, stored: StoredWorkflow, listing: Listing) -> bool:
        if stored.file not in listing.files:
            return _below(stored.file, listing.unreadable)
        state = self._files.get(stored.file)
        # One that went while it was being read is looked for again next time.
        return state is None or state.broken or stored.name in state.names

    async def _deleted(self, stored: StoredWorkflow) -> bool:
        """False if something is in the way; it is tried again with every look."""
        try:
            return await self._store.delete_workflow(stored.name, kind=stored.kind)
        except (ActiveRunError, JobInUseError):
            return False

    # -- what is known of each

    def _is_well(self, file: ReadFile, warnings: tuple[str, ...]) -> None:
        before = self._files.get(file.path)
        self._files[file.path] = FileState(
            path=file.path,
            mark=file.mark,
            names=file.names,
            problems=_cut(warnings),
            loaded_at=self._clock.now(),
        )
        if before is not None and before.broken:
            log.info("a definition file is well again", action="definitions_well", path=file.path)

    def _is_broken(self, file: ReadFile, problems: tuple[str, ...], names: tuple[str, ...]) -> None:
        """What it defined stays as it was."""
        before = self._files.get(file.path)
        after = FileState(
            path=file.path,
            mark=file.mark,
            names=before.names if before is not None and before.names else names,
            broken=True,
            problems=_cut(problems),
            loaded_at=before.loaded_at if before is not None else None,
        )
        self._files[file.path] = after
        if before is None or replace(before, mark=None) != replace(after, mark=None):
            log.error(
                "a definition file cannot be used: what it defined stays as it was",
                action="definitions_broken",
                path=file.path,
                problems=list(after.problems),
            )

    def _tell(self) -> None:
        broken = [state for state in self.states if state.broken]
        if not broken:
            self._conditions.well(CONDITION)
            return
        more = f", and {len(broken) - 1} more like it" if len(broken) > 1 else ""
        text = f"{broken[0].path} cannot be used{more}: {broken[0].problems[0]}"
        detail = f"{text}; what was defined before stays as it was"
        self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, detail)


def _below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip(os.sep) + os.sep) for place in places)


def _names_of(path: str, owned: Mapping[str, StoredWorkflow]) -> tuple[str, ...]:
    return tuple(name for name, each in owned.items() if each.owner == path)


def _check_claims(file: ReadFile, claims: Mapping[str, str]) -> None:
    """Raises UnusableFileError for names that another file has."""
    taken = [
        f"{file.path}:{document.line}:1: {document.name!r} is defined twice: also in {claims[document.name]}"
        for document in file.documents
        if claims[document.name] != file.path
    ]
    if taken:
        raise UnusableFileError(taken)


def _losing(
    file: ReadFile, owned: Mapping[str, StoredWorkflow], listing: Listing
) -> Mapping[str, str]:
    """By name, the owners that have no use for it any more; never one that cannot be looked at."""
    return {
        name: owned[name].owner
        for name in file.names
        if name in owned and not _below(owned[name].file, listing.unreadable)
    }


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


def _cut(lines: tuple[str, ...]) -> tuple[str, ...]:
    if len(lines) <= PROBLEMS_MOST:
        return lines
    return (*lines[: PROBLEMS_MOST - 1], f"and {len(lines) - PROBLEMS_MOST + 1} more")
