"""A finished attempt file, compressed so that every offset of the original can still be read at once.

The file is a sequence of gzip members, so `zcat` restores the original, byte for byte. Each member contains MEMBER
bytes of it, the last one the rest. An extra field of our own in its gzip header gives its length:

    u32  size of the whole member
    u32  bytes of the original in it
    u8   1: the last member; 2 beside it: the original ended with its end record

The index is built by hopping from header to header, and a byte is read by unpacking the one member that contains it.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from toband import failpoints
from toband.ports import StoppedError
from toband.supervise.files.run_directories import always
from toband.supervise.shim import frames

SUFFIX = ".gz"
NEW_SUFFIX = ".gz.new"
MEMBER = 1024 * 1024
SMALLEST = 4096
"""Smaller files are not compressed: they would take the same block on disk."""
_LEVEL = 6

# Magic, method and flags; no time, no system; the length of the extra field, its name and its own length.
_HEADER = struct.Struct("<4sIBBH2sHIIB")
_EXTRA = struct.Struct("<IIB")
_TRAILER = struct.Struct("<II")
_MAGIC = b"\x1f\x8b\x08\x04"
_NAME = b"TB"
_LAST, _WHOLE = 1, 2

_KEPT = 16
_MEMBERS_KEPT = 4
"""Unpacked members kept, over all files: a reader reads one in many small pages."""
_LARGEST_KEPT = 16 * 1024
"""An index of this many members takes 128 KiB: a log of 16 GiB. Larger ones are rebuilt for each read."""


class Index(NamedTuple):
    """Offsets of the members. `size` is that of the original. `torn`: the file ends too early."""

    starts: array[int]
    stop: int
    size: int
    torn: bool
    whole: bool


def encode_member(data: bytes, *, last: bool = False, whole: bool = False) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    size = _HEADER.size + len(body) + _TRAILER.size
    flags = (_LAST if last else 0) | (_WHOLE if whole else 0)
    header = _HEADER.pack(_MAGIC, 0, 0, 255, 4 + _EXTRA.size, _NAME, _EXTRA.size, size, len(data), flags)
    return header + body + _TRAILER.pack(zlib.crc32(data), len(data))


def read_index(fd: int) -> Index:
    """Reads the index without unpacking anything. Raises OSError."""
    end = os.fstat(fd).st_size
    starts = array("Q")
    position = size = flags = 0
    while position < end and not flags & _LAST:
        header = frames.pread(fd, _HEADER.size, position)
        if len(header) < _HEADER.size:
            break
        magic, _, _, _, _, name, _, length, original, flags = _HEADER.unpack(header)
        fits = original == MEMBER or (flags & _LAST and original < MEMBER)
        if magic != _MAGIC or name != _NAME or not fits or length < _HEADER.size + _TRAILER.size:
            flags = 0
            break
        starts.append(position)
        size += original
        position += length
    # A truncated member is in the index too: the rest of it can be read.
    torn = position != end or not flags & _LAST
    return Index(starts, min(position, end), size, torn, bool(flags & _WHOLE) and not torn)


class CompressedLog:
    """The original of a compressed file, readable at any offset. `read` returns less only at the end of the original,
    or where the file is damaged.
    """

    __slots__ = ("_fd", "_index", "_members", "_overlong")

    def __init__(self, fd: int, index: Index, members: Members | None = None) -> None:
        self._fd = fd
        self._index = index
        self._members = members
        self._overlong = False

    @property
    def size(self) -> int:
        return self._index.size

    @property
    def torn(self) -> bool:
        return self._index.torn

    def read(self, size: int, offset: int) -> bytes:
        """Raises OSError."""
        parts = []
        number, skip = divmod(offset, MEMBER)
        while size > 0 and number < len(self._index.starts):
            original = min(MEMBER, self.size - number * MEMBER)
            data = self._unpacked(number)
            if len(data) > original:
                # Its header is damaged. Readers rely on `size`: nothing follows.
                self._overlong, data = True, data[:original]
            part = data[skip : skip + size]
            parts.append(part)
            size -= len(part)
            if len(data) < original:
                break  # damaged in here
            number, skip = number + 1, 0
        return b"".join(parts)

    def lacks(self, got: int, size: int, offset: int) -> bool:
        ends_early = self.torn or self._overlong
        return got < min(size, self.size - offset) or (ends_early and offset + size >= self.size)

    def ended(self) -> bool:
        return self._index.whole

    def _unpacked(self, number: int) -> bytes:
        if self._members is None:
            return self._member(number)
        key = _key(self._fd), number
        data = self._members.get(key)
        if data is None:
            data = self._member(number)
            self._members.put(key, data)
        return data

    def _member(self, number: int) -> bytes:
        """As much of it as can be unpacked. The checksums of the frames show whether it is correct."""
        starts = self._index.starts
        start = starts[number] + _HEADER.size
        stop = starts[number + 1] if number + 1 < len(starts) else self._index.stop
        packed = memoryview(frames.pread(self._fd, stop - start, start))
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return unpacker.decompress(packed, MEMBER)
        except zlib.error:
            return _prefix(packed)


def _prefix(packed: memoryview) -> bytes:
    """The data before the first wrong bit."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    parts: list[bytes] = []
    left, place, step = MEMBER, 0, 512
    while place < len(packed) and left > 0:
        before = unpacker.copy()
        try:
            part = unpacker.decompress(packed[place : place + step], left)
        except zlib.error:
            if step == 1:
                break
            # The output of this piece before the error is lost with it: try again, byte by byte.
            unpacker, step = before, 1
            continue
        parts.append(part)
        left -= len(part)
        place += step
    return b"".join(parts)


_File = tuple[int, int, int, int]
K = TypeVar("K")
V = TypeVar("V")


def _key(fd: int) -> _File:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


class _Recent(Generic[K, V]):
    """A cache of recently used values. May be used from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


Members = _Recent[tuple[_File, int], bytes]


class Indexes:
    """Caches the indexes of recently read files, and their last members."""

    def __init__(self) -> None:
        self._kept: _Recent[_File, Index] = _Recent(_KEPT)
        self.members: Members = _Recent(_MEMBERS_KEPT)

    def of(self, fd: int) -> Index:
        key = _key(fd)
        index = self._kept.get(key)
        if index is None:
            index = read_index(fd)
            if len(index.starts) <= _LARGEST_KEPT:
                self._kept.put(key, index)
        return index


def compress(path: str, fd: int, *, go_on: Callable[[], bool] = always) -> int:
    """Replaces `path`, which is open as `fd` and will not grow any more, by `path.gz`; returns its size.

    At every moment, and after any crash, the original or the whole compressed file exists under its name, on disk as
    well. Raises OSError, StoppedError when `go_on` returns False: then nothing has changed.
    """
    whole = frames.read_end(fd) is not None
    new = f"{path}{NEW_SUFFIX}"
    size = os.fstat(fd).st_size
    try:
        # Never writes through a leftover of a crash, or anything else of that name.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        out = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _BINARY, 0o600)
        try:
            written = 0
            for member in _members(fd, size, whole):
                if not go_on():
                    raise StoppedError
                written += _write(out, member)
            os.fsync(out)
        finally:
            os.close(out)
        if os.fstat(fd).st_size != size:
            raise OSError(f"cannot compress {path}: it still grows")
        failpoints.hit("compress.written")
        os.replace(new, f"{path}{SUFFIX}")
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    _sync_directory(os.path.dirname(path))
    failpoints.hit("compress.renamed")
    os.unlink(path)
    return written


def _members(fd: int, size: int, whole: bool) -> Iterator[bytes]:
    for offset in range(0, size, MEMBER):
        want = min(MEMBER, size - offset)
        data = frames.pread(fd, want, offset)
        if len(data) != want:
            raise OSError("cannot compress a log: it became shorter meanwhile")
        last = offset + want == size
        yield encode_member(data, last=last, whole=last and whole)


def _write(fd: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return len(data)


_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)


def _sync_directory(path: str) -> None:
    if os.name == "nt":
        return  # not available here
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
