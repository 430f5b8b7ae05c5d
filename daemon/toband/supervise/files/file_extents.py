"""Reads, hashes and copies files without their holes: a sparse file costs as much as its data, whatever its size."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator

from toband.supervise.files.file_budget import Budget

CHUNK = 1024 * 1024
_BLOCK = 64 * 1024
_ZEROS = bytes(_BLOCK)
_SYNC_EVERY = 64 * CHUNK
_FICLONE = 0x40049409
_SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)
_SEEK_HOLE: int | None = getattr(os, "SEEK_HOLE", None)
# The file system, the kernel or this pair of files does not support it; reading and writing does the same.
_NO_RANGES = frozenset(
    {
        errno.EXDEV,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.ETXTBSY,
        errno.EBADF,
        errno.EACCES,
    }
)


def extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges with data in the first `size` bytes: starts and ends, in order. Moves the file's position.

    On a file system without holes, all of it is data. Raises OSError.
    """
    if _SEEK_DATA is None or _SEEK_HOLE is None:
        if size:
            yield 0, size
        return
    at = 0
    while at < size:
        try:
            begin = os.lseek(fd, at, _SEEK_DATA)
            end = min(size, os.lseek(fd, begin, _SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole from here on
            if error.errno not in _NO_RANGES:
                raise
            begin, end = at, size
        if begin >= size:
            return
        yield begin, end
        at = end


def data_bytes(fd: int, budget: Budget, most: int) -> int:
    """The number of bytes of data; counting stops above `most`. Raises OSError, StoppedError."""
    total = 0
    for begin, end in extents(fd, os.fstat(fd).st_size):
        budget.check()
        total += end - begin
        if total > most:
            break
    return total


# -- hashing


def digest(fd: int, budget: Budget) -> bytes:
    """Equal for equal contents, however they are stored: blocks of zeros count as holes.

    A file that grows meanwhile is read up to its initial size. Raises OSError, TooMuchError, StoppedError.
    """
    size = os.fstat(fd).st_size
    found = _beginning(size)
    done = 0
    for begin, end in extents(fd, size):
        # Blocks are counted from the start of the file; two extents may touch the same one.
        at, until = max(done, begin - begin % _BLOCK), min(size, end + -end % _BLOCK)
        while at < until:
            length = min(CHUNK, until - at)
            budget.spend(min(end, at + length) - max(begin, at))
            data = _read_at(fd, length, at)
            _add_blocks(found, data, at)
            at += length
        done = max(done, until)
    return found.digest()


def _beginning(size: int) -> hashlib._Hash:
    return hashlib.sha256(size.to_bytes(8, "big"))


NO_CONTENTS = _beginning(0).digest()
"""The digest of an empty file."""


def _add_blocks(found: hashlib._Hash, data: bytes, offset: int) -> None:
    view = memoryview(data)
    for begin in range(0, len(data), _BLOCK):
        block = view[begin : begin + _BLOCK]
        if block != _ZEROS[: len(block)]:
            found.update((offset + begin).to_bytes(8, "big"))
            found.update(block)


def _read_at(fd: int, length: int, offset: int) -> bytes:
    """Reads up to the end of the file."""
    os.lseek(fd, offset, os.SEEK_SET)
    data = os.read(fd, length)
    while len(data) < length and (more := os.read(fd, length - len(data))):
        data += more
    return data


# -- copying


def copy(source: int, target: int, budget: Budget, *, durable: bool = False) -> int:
    """Copies a file, with its holes, into an empty one; returns its size. A file that grows meanwhile is cut off.

    `durable`: most of it is flushed already, so that a following `fsync` is fast. Raises OSError, TooMuchError,
    StoppedError.
    """
    size = os.fstat(source).st_size
    budget.check()
    if size == 0 or _cloned(source, target):
        return os.fstat(target).st_size
    pair = _Pair(source, target)
    unsynced = 0
    for begin, end in extents(source, size):
        at = begin
        while at < end:
            length = min(CHUNK, end - at)
            budget.spend(length)
            moved = pair.move(at, length)
            if not moved:
                # The file has become shorter.
                os.ftruncate(target, at)
                return at
            at += moved
            unsynced += moved
            if durable and unsynced >= _SYNC_EVERY:
                os.fsync(target)
                unsynced = 0
    os.ftruncate(target, size)
    return size


def _cloned(source: int, target: int) -> bool:
    """Whether the file system made both share their data until one of them changes."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


class _Pair:
    """Moves ranges inside the kernel while it can."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._by_kernel = sys.platform == "linux"

    def move(self, offset: int, length: int) -> int:
        """Copies a range; returns the number of bytes, 0 at the end of the file."""
        if self._by_kernel:
            moved = self._move_by_kernel(offset, length)
            if moved:
                return moved
            self._by_kernel = False
        data = _read_at(self._source, length, offset)
        os.lseek(self._target, offset, os.SEEK_SET)
        view = memoryview(data)
        while view:
            view = view[os.write(self._target, view) :]
        return len(data)

    def _move_by_kernel(self, offset: int, length: int) -> int:
        if sys.platform != "linux":
            return 0
        try:
            return os.copy_file_range(self._source, self._target, length, offset, offset)
        except OSError as error:
            if error.errno not in _NO_RANGES:
                raise
            return 0
