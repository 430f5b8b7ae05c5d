"""Implements `ports.Artifacts` with files: in threads of its own, so that gigabytes hold up nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tarfile
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from toband.domain.model import Artifact, Attempt
from toband.ports import ArtifactError, Collect, Placement, Stored
from toband.supervise import frames, keeping, noting
from toband.supervise.compressed import Indexes
from toband.supervise.files import RunFiles
from toband.supervise.inside import Inside, LeadsOutError, SpecialFileError, clean, joined
from toband.supervise.log_sources import all_frames, opened
from toband.supervise.placing import Ledger, Placing
from toband.supervise.selection import MISSING, Entry, Kind, TooMuchError, fingerprint, select, tree

CHUNK = 64 * 1024
THREADS = 4
_LOCKS = 64
_BLOCK = 512
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_WRONG = (LeadsOutError, SpecialFileError, TooMuchError)

T = TypeVar("T")


class ArtifactFiles:
    """Files in context directories are kept without their write bits, so that they can be linked to workspaces.

    `link` False: they are copied (or cloned) instead. That is so for root, whom no mode keeps from changing a kept file
    through its link.
    """

    def __init__(self, files: RunFiles, *, link: bool | None = None) -> None:
        self._files = files
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="artifacts")
        # One thing at a time in a place: a repeated call may find the first one still at work.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        if link is None:
            link = sys.platform == "win32" or os.geteuid() != 0
        self._placing = Placing(ledger=Ledger(files.placed), link=link, go_on=self._go_on)
        self._indexes = Indexes()

    async def close(self) -> None:
        """Breaks off what is under way; nothing is left half done."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def collect(self, what: Collect) -> tuple[Artifact, ...]:
        place = os.path.join(what.context, what.folder)
        return await self._do(place, lambda: keeping.collect(what, self._go_on))

    async def place(self, workspace: str, placements: Sequence[Placement], *, own: bool) -> None:
        await self._do(workspace, lambda: self._placing.place(workspace, placements, own=own))

    async def adopt(self, context: str, folders: Mapping[str, str]) -> None:
        await self._do(context, lambda: keeping.adopt(context, folders, self._go_on))

    async def fingerprint(self, workspace: str, path: str) -> str:
        return await self._do("", lambda: _fingerprint(workspace, path))

    async def fingerprint_output(self, attempt: Attempt) -> str:
        return await self._do("", lambda: self._fingerprint_output(attempt))

    def note(self, context: str, name: str, facts: Mapping[str, Any]) -> None:
        noting.note(context, name, facts)

    async def files(self, context: str, artifact: Artifact) -> Sequence[Stored]:
        return await self._do("", lambda: _files(context, artifact))

    async def read(self, context: str, artifact: Artifact, path: str) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        pieces = _gathered(_pieces(context, artifact, path))
        step: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                step = loop.run_in_executor(self._pool, next, pieces, None)
                piece = await asyncio.shield(step)
                if piece is None:
                    return
                yield piece
        finally:
            if step is not None and not step.done():
                # Whoever reads has gone; a generator that is at work cannot be closed.
                step.add_done_callback(lambda _: pieces.close())
            else:
                pieces.close()

    async def _do(self, place: str, work: Callable[[], T]) -> T:
        def locked() -> T:
            with self._locks[hash(place) % _LOCKS]:
                return work()

        run = locked if place else work
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    def _go_on(self) -> bool:
        return not self._closed.is_set()

    def _fingerprint_output(self, attempt: Attempt) -> str:
        found = hashlib.sha256()
        try:
            with opened(self._files.log(attempt), self._indexes) as source:
                for frame in all_frames(source):
                    if frame.kind == frames.STDOUT:
                        found.update(frame.payload)
        except FileNotFoundError:
            return MISSING
        return found.hexdigest()


# -- in the threads


def _fingerprint(workspace: str, path: str) -> str:
    try:
        with Inside(workspace) as inside:
            return fingerprint(inside, select(inside, path))
    except _NOT_THERE:
        return MISSING
    except (*_WRONG, PermissionError) as error:
        raise ArtifactError(f"cannot see whether {path} changes: {error}") from None


def _directory_of(artifact: Artifact) -> str:
    """`build/report` or, of an instance, `build/3/report`; an artifact cannot have a number for a name."""
    parts = artifact.path.split("/")
    number = 1 if parts[1:2] == [artifact.name] else 2
    return "/".join(parts[: number + 1])


def _kept(context: Inside, artifact: Artifact) -> Sequence[Entry]:
    """Raises ArtifactError."""
    try:
        return tree(context, _directory_of(artifact))
    except (LeadsOutError, SpecialFileError) as error:
        raise ArtifactError(f'cannot read artifact "{artifact.name}": {error}') from None


def _files(context: str, artifact: Artifact) -> Sequence[Stored]:
    try:
        with Inside(context) as inside:
            return [
                Stored(path=entry.path, bytes=inside.facts(entry.source).st_size)
                for entry in _kept(inside, artifact)
                if entry.kind is Kind.FILE
            ]
    except _NOT_THERE:
        return []


def _pieces(context: str, artifact: Artifact, path: str) -> Generator[bytes]:
    try:
        with Inside(context) as inside:
            if path:
                yield from _contents(inside, _named(inside, artifact, path))
                return
            entries = _kept(inside, artifact)
            files = [entry for entry in entries if entry.kind is Kind.FILE]
            if len(files) == 1:
                yield from _contents(inside, files[0].source)
            else:
                yield from _tar(inside, entries)
    except _NOT_THERE:
        what = f'"{path}" of artifact "{artifact.name}"' if path else f'artifact "{artifact.name}"'
        raise ArtifactError(f"cannot read {what}: it is not there") from None


def _named(inside: Inside, artifact: Artifact, path: str) -> str:
    """Raises ArtifactError, OSError."""
    directory = _directory_of(artifact)
    try:
        found = inside.resolve(joined(directory, clean(path)))
    except LeadsOutError as error:
        raise ArtifactError(
            f'cannot read "{path}" of artifact "{artifact.name}": {error}'
        ) from None
    if not found.startswith(f"{directory}/"):
        raise FileNotFoundError(path)
    return found


def _contents(inside: Inside, path: str) -> Iterator[bytes]:
    try:
        fd = inside.open_file(path)
    except SpecialFileError as error:
        raise ArtifactError(f"cannot read it: {error}") from None
    try:
        while data := os.read(fd, CHUNK):
            yield data
    finally:
        os.close(fd)


def _tar(inside: Inside, entries: Sequence[Entry]) -> Iterator[bytes]:
    """An archive as any tar reads it, made as it is read."""
    size = 0
    for entry in entries:
        if not entry.path:
            continue
        facts = inside.facts(entry.source)
        about = tarfile.TarInfo(entry.path)
        about.mtime = int(facts.st_mtime)
        about.mode = 0o755 if entry.kind is Kind.DIRECTORY or entry.mode & 0o111 else 0o644
        match entry.kind:
            case Kind.DIRECTORY:
                about.type = tarfile.DIRTYPE
            case Kind.LINK:
                about.type, about.linkname = tarfile.SYMTYPE, entry.target
            case Kind.FILE:
                about.size = facts.st_size
        head = about.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        yield head
        size += len(head)
        if entry.kind is Kind.FILE:
            written = 0
            for data in _contents(inside, entry.source):
                written += len(data)
                yield data
            if written != about.size:
                raise ArtifactError(f"cannot read {entry.path}: it changes while it is read")
            padding = -written % _BLOCK
            yield bytes(padding)
            size += written + padding
    # Two empty blocks, and up to a whole record, as tar itself writes it.
    yield bytes(2 * _BLOCK + -(size + 2 * _BLOCK) % tarfile.RECORDSIZE)


def _gathered(pieces: Iterator[bytes]) -> Generator[bytes]:
    """The same bytes, so many at a time, and nothing empty."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)
