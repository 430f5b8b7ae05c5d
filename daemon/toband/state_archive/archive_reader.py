"""Reads a backup, and refuses one that is not whole: every byte is compared with its checksum on the way."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from toband.state_archive.archive_format import (
    BLOCK,
    COMMENT,
    END,
    MANIFEST,
    ArchiveEnd,
    ArchiveError,
    Manifest,
    comment,
)

_PIECE = 1024 * 1024
_LONGEST_HEADER = 64 * 1024
_LARGEST_DATA = 256 * 1024 * 1024
"""Of a member that is read at once."""
_DAMAGED = (tarfile.TarError, zlib.error, gzip.BadGzipFile, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Member:
    """`pieces` has the contents of a file. What is not taken is skipped, and checked too.

    `own` is the digest of the contents, if the archive has one; for the others the next header shows damage.
    """

    info: tarfile.TarInfo
    pieces: Iterator[bytes]
    own: str

    def data(self) -> bytes:
        """Raises ArchiveError."""
        if self.info.size > _LARGEST_DATA:
            raise ArchiveError(f"{self.info.name} is larger than any that toban writes")
        data = b"".join(self.pieces)
        if self.own and hashlib.sha256(data).hexdigest() != self.own:
            raise ArchiveError(f"it is damaged ({self.info.name} is not what was written)")
        return data


class ArchiveReader:
    """One pass over a file, which `members` makes. What it yields is known to be whole only after its last member."""

    def __init__(self, path: str, progress: Callable[[int], None] = lambda _: None) -> None:
        """`progress` is called with the number of bytes of the file that have been read."""
        self._path = path
        self._progress = progress
        self._manifest: Manifest | None = None
        self._end: ArchiveEnd | None = None

    @property
    def manifest(self) -> Manifest:
        """There from the first member on."""
        assert self._manifest is not None
        return self._manifest

    @property
    def end(self) -> ArchiveEnd:
        """There after the last member."""
        assert self._end is not None
        return self._end

    def members(self) -> Iterator[Member]:
        """All but manifest and end. Raises ArchiveError, with the name of the file; OSError."""
        with open(self._path, "rb") as file, gzip.GzipFile(fileobj=file) as unpacked:
            source = _Source(unpacked)
            try:
                for member in self._members(source):
                    yield member
                    self._progress(file.tell())
            except EOFError:
                raise ArchiveError(f"cannot use the backup {self._path}: it is cut off") from None
            except ArchiveError as error:
                raise ArchiveError(f"cannot use the backup {self._path}: {error}") from None
            except _DAMAGED as error:
                what = f"it is damaged ({error})" if self._manifest is not None else "it is not a backup of toban"
                raise ArchiveError(f"cannot use the backup {self._path}: {what}") from None

    def verify(self) -> None:
        """Reads everything. Raises ArchiveError, OSError."""
        for _ in self.members():
            pass

    def _members(self, source: _Source) -> Iterator[Member]:
        before = "its beginning"
        while self._end is None:
            expected = source.sha256()
            info = _header(source)
            told = info.pax_headers.get(COMMENT, "")
            if not told.startswith(comment(expected)):
                raise ArchiveError(f"it is damaged ({before} is not what was written)")
            before = info.name
            member = Member(info, source.pieces(info.size), told.removeprefix(comment(expected)).strip())
            if self._manifest is None:
                if info.name != MANIFEST:
                    raise ArchiveError("it is not a backup of toban")
                self._manifest = Manifest.parse(json.loads(member.data()))
            elif info.name == END:
                self._end = ArchiveEnd.parse(json.loads(member.data()))
            else:
                yield member
            for _ in member.pieces:
                pass
            source.read(-info.size % BLOCK)
        # The checksum of gzip is behind the last block.
        while source.read_some():
            pass


class _Source:
    """The decompressed bytes, and a digest over those that were read."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file: BinaryIO = file  # type: ignore[assignment]
        self._digest = hashlib.sha256()

    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read(self, size: int) -> bytes:
        """Raises EOFError if there are fewer."""
        data = b""
        while len(data) < size:
            piece = self._file.read(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        self._digest.update(data)
        return data

    def read_some(self) -> bytes:
        return self._file.read(_PIECE)

    def pieces(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.read(min(size, _PIECE))
            size -= len(piece)
            yield piece


def _header(source: _Source) -> tarfile.TarInfo:
    """The header of the next member, with its pax keywords. Raises ValueError, TarError, EOFError."""
    extended = _plain_header(source)
    if extended.type != tarfile.XHDTYPE or extended.size > _LONGEST_HEADER:
        raise ValueError("a header is missing")
    keywords = _keywords(source.read(extended.size))
    source.read(-extended.size % BLOCK)
    info = _plain_header(source)
    info.pax_headers = dict(keywords)
    info.name = keywords.get("path", info.name)
    info.linkname = keywords.get("linkpath", info.linkname)
    for name in ("size", "uid", "gid"):
        if name in keywords:
            setattr(info, name, int(keywords[name]))
    return _checked(info)


def _plain_header(source: _Source) -> tarfile.TarInfo:
    return _checked(tarfile.TarInfo.frombuf(source.read(BLOCK), "utf-8", "surrogateescape"))


def _checked(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Raises ValueError."""
    if info.size < 0:
        raise ValueError("a size is negative")
    return info


def _keywords(data: bytes) -> Mapping[str, str]:
    found = {}
    while data:
        length = int(data.partition(b" ")[0])
        name, _, value = data[:length].partition(b" ")[2].partition(b"=")
        if not value.endswith(b"\n"):
            raise ValueError("a header is damaged")
        found[name.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        data = data[length:]
    return found
