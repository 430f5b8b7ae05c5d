"""Implements `ports.Artifacts` with files, in its own threads: gigabytes delay neither steps nor other runs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from toband.domain.attempt_model import Attempt
from toband.domain.run_model import Artifact
from toband.ports import (
    ArtifactError,
    Collect,
    Conditions,
    HealthStatus,
    Placement,
    StoppedError,
    Stored,
)
from toband.supervise.artifacts import context_directory, metadata_writer
from toband.supervise.artifacts.path_selection import (
    MISSING,
    EntryKind,
    SelectedEntry,
    fingerprint,
    select,
    tree,
)
from toband.supervise.artifacts.workspace_inputs import Ledger, Placing
from toband.supervise.files.file_budget import Budget, FileLimits, TooMuchError
from toband.supervise.files.file_user import FileUser, file_user
from toband.supervise.files.file_workers import Turn, Workers
from toband.supervise.files.run_files import RunFiles
from toband.supervise.files.safe_directory import (
    LeadsOutError,
    SafeDirectory,
    SpecialFileError,
    clean,
    joined,
)
from toband.supervise.logs.compressed_log import Indexes
from toband.supervise.logs.log_sources import all_frames, opened
from toband.supervise.shim import frames

if sys.platform != "win32":
    from toband.supervise.shim import acl
    from toband.supervise.shim.privileges import separates_users

CHUNK = 64 * 1024
CONDITION = "artifacts"
_LOOK_EVERY = 1.0
_BLOCK = 512
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_WRONG = (LeadsOutError, SpecialFileError, TooMuchError)

T = TypeVar("T")


class ArtifactFiles:
    """Files in context directories are stored without their write bits, so that they can be linked into workspaces.

    `link` False: they are copied (or cloned) instead. That is so for a daemon that starts steps of other users: root
    could change a stored file through its link, and others could not own theirs.
    """

    def __init__(
        self,
        files: RunFiles,
        *,
        limits: FileLimits | None = None,
        rate: int | None = None,
        conditions: Conditions | None = None,
        link: bool | None = None,
    ) -> None:
        self._files = files
        self._limits = limits or FileLimits()
        self._conditions = conditions
        self._workers = Workers("artifacts", rate=rate)
        # Reads by clients do not take turns with collections.
        self._readers = Workers("artifact-reader")
        self._watch: asyncio.TimerHandle | None = None
        if link is None:
            link = sys.platform == "win32" or not separates_users()
        self._placing = Placing(ledger=Ledger(files.placed), link=link, limits=self._limits)
        self._indexes = Indexes()

    def use(self, *, limits: FileLimits, rate: int | None) -> None:
        """Replaces the limits, for work that begins from now on, and the rate."""
        self._limits = limits
        self._placing = replace(self._placing, limits=limits)
        self._workers.use(rate)

    async def close(self) -> None:
        """Aborts all work without waiting for it. A half-made copy is removed when the same one is made again."""
        if self._watch is not None:
            self._watch.cancel()
        self._workers.close()
        self._readers.close()

    async def collect(self, what: Collect) -> tuple[Artifact, ...]:
        place = os.path.join(what.context, what.folder)
        return await self._do(
            what.run_id,
            place,
            lambda turn: context_directory.collect(what, _budget(turn, self._limits)),
        )

    async def place(
        self, workspace: str, placements: Sequence[Placement], *, own: bool, run_id: str = "", user: str = ""
    ) -> None:
        def work(turn: Turn) -> None:
            as_user = file_user(user)
            if sys.platform != "win32" and own and as_user is not None:
                acl.open_run(self._files.reach(run_id), as_user.uid)
            self._placing.place(workspace, placements, own=own, budget=_budget(turn), user=as_user)

        await self._do(run_id, workspace, work)

    async def adopt(self, context: str, folders: Mapping[str, str], *, run_id: str = "") -> None:
        await self._do(run_id, context, lambda turn: context_directory.adopt(context, folders, _budget(turn)))

    async def fingerprint(self, workspace: str, path: str, *, run_id: str = "", user: str = "") -> str:
        def work(turn: Turn) -> str:
            return _fingerprint(workspace, path, _budget(turn, self._limits), file_user(user))

        return await self._do(run_id, "", work)

    async def fingerprint_output(self, attempt: Attempt) -> str:
        return await self._do(attempt.run_id, "", lambda turn: self._fingerprint_output(attempt, _budget(turn)))

    def note(self, context: str, name: str, facts: Mapping[str, Any]) -> None:
        metadata_writer.note(context, name, facts)

    async def files(self, context: str, artifact: Artifact) -> Sequence[Stored]:
        return await self._readers.do(context, "", lambda turn: _files(context, artifact, _budget(turn)))

    async def read(self, context: str, artifact: Artifact, path: str) -> AsyncIterator[bytes]:
        pieces = _gathered(_pieces(context, artifact, path))
        own = f"reading {id(pieces)}"
        try:
            while True:
                piece = await self._readers.do(own, own, lambda _: next(pieces, None))
                if piece is None:
                    return
                yield piece
        finally:
            # If the client has gone, close after the current piece: a running generator cannot be closed.
            with contextlib.suppress(StoppedError):
                self._readers.post(own, own, lambda _: pieces.close())

    async def _do(self, run_id: str, place: str, work: Callable[[Turn], T]) -> T:
        self._look_later()
        return await self._workers.do(run_id, place, work)

    def _look_later(self) -> None:
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        """Reports work that makes no progress."""
        self._watch = None
        trouble = self._workers.trouble()
        if self._conditions is not None:
            if trouble:
                self._conditions.trouble(CONDITION, HealthStatus.DEGRADED, trouble)
            else:
                self._conditions.well(CONDITION)
        if self._workers.busy:
            self._look_later()

    def _fingerprint_output(self, attempt: Attempt, budget: Budget) -> str:
        found = hashlib.sha256()
        try:
            with opened(self._files.log(attempt), self._indexes) as source:
                for frame in all_frames(source):
                    budget.check()
                    if frame.kind == frames.STDOUT:
                        budget.spend(len(frame.payload))
                        found.update(frame.payload)
        except FileNotFoundError:
            return MISSING
        return found.hexdigest()


# -- in the threads


def _budget(turn: Turn, limits: FileLimits | None = None) -> Budget:
    return Budget(limits, turn.go_on, turn.spend)


def _fingerprint(workspace: str, path: str, budget: Budget, user: FileUser | None) -> str:
    try:
        with SafeDirectory(workspace, user=user) as inside:
            return fingerprint(inside, select(inside, path, budget), budget)
    except _NOT_THERE:
        return MISSING
    except (*_WRONG, PermissionError) as error:
        raise ArtifactError(f"cannot see whether {path} changes: {error}") from None


def _directory_of(artifact: Artifact) -> str:
    """`build/report` or, for an instance, `build/3/report`; an artifact's name cannot be a number."""
    parts = artifact.path.split("/")
    number = 1 if parts[1:2] == [artifact.name] else 2
    return "/".join(parts[: number + 1])


def _kept(context: SafeDirectory, artifact: Artifact, budget: Budget) -> Sequence[SelectedEntry]:
    """Raises ArtifactError."""
    try:
        return tree(context, _directory_of(artifact), budget)
    except (LeadsOutError, SpecialFileError) as error:
        raise ArtifactError(f'cannot read artifact "{artifact.name}": {error}') from None


def _files(context: str, artifact: Artifact, budget: Budget) -> Sequence[Stored]:
    try:
        with SafeDirectory(context) as inside:
            return [
                Stored(path=entry.path, bytes=entry.size)
                for entry in _kept(inside, artifact, budget)
                if entry.kind is EntryKind.FILE
            ]
    except _NOT_THERE:
        return []


def _pieces(context: str, artifact: Artifact, path: str) -> Generator[bytes]:
    try:
        with SafeDirectory(context) as inside:
            if path:
                yield from _contents(inside, _named(inside, artifact, path))
                return
            entries = _kept(inside, artifact, Budget(None))
            files = [entry for entry in entries if entry.kind is EntryKind.FILE]
            if len(files) == 1:
                yield from _contents(inside, files[0].source)
            else:
                yield from _tar(inside, entries)
    except _NOT_THERE:
        what = f'"{path}" of artifact "{artifact.name}"' if path else f'artifact "{artifact.name}"'
        raise ArtifactError(f"cannot read {what}: it is not there") from None


def _named(inside: SafeDirectory, artifact: Artifact, path: str) -> str:
    """Raises ArtifactError, OSError."""
    directory = _directory_of(artifact)
    try:
        found = inside.resolve(joined(directory, clean(path)))
    except LeadsOutError as error:
        raise ArtifactError(f'cannot read "{path}" of artifact "{artifact.name}": {error}') from None
    if not found.startswith(f"{directory}/"):
        raise FileNotFoundError(path)
    return found


def _contents(inside: SafeDirectory, path: str) -> Iterator[bytes]:
    try:
        fd = inside.open_file(path)
    except SpecialFileError as error:
        raise ArtifactError(f"cannot read it: {error}") from None
    try:
        while data := os.read(fd, CHUNK):
            yield data
    finally:
        os.close(fd)


def _tar(inside: SafeDirectory, entries: Sequence[SelectedEntry]) -> Iterator[bytes]:
    """A standard tar archive, built while it is read."""
    size = 0
    for entry in entries:
        if not entry.path:
            continue
        facts = inside.facts(entry.source)
        about = tarfile.TarInfo(entry.path)
        about.mtime = int(facts.st_mtime)
        about.mode = 0o755 if entry.kind is EntryKind.DIRECTORY or entry.mode & 0o111 else 0o644
        match entry.kind:
            case EntryKind.DIRECTORY:
                about.type = tarfile.DIRTYPE
            case EntryKind.LINK:
                about.type, about.linkname = tarfile.SYMTYPE, entry.target
            case EntryKind.FILE:
                about.size = facts.st_size
        head = about.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        yield head
        size += len(head)
        if entry.kind is EntryKind.FILE:
            written = 0
            for data in _contents(inside, entry.source):
                written += len(data)
                yield data
            if written != about.size:
                raise ArtifactError(f"cannot read {entry.path}: it changes while it is read")
            padding = -written % _BLOCK
            yield bytes(padding)
            size += written + padding
    # Two empty blocks, padded to a whole record, as tar itself writes it.
    yield bytes(2 * _BLOCK + -(size + 2 * _BLOCK) % tarfile.RECORDSIZE)


def _gathered(pieces: Iterator[bytes]) -> Generator[bytes]:
    """The same bytes in pieces of CHUNK bytes, none empty."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)
