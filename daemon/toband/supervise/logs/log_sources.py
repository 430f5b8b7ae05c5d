"""An attempt file as its readers see it: still being written, finished, or compressed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

from toband.supervise.logs.compressed_log import SUFFIX, CompressedLog, Indexes
from toband.supervise.shim import frames

CHUNK = 1024 * 1024


class LogSource(Protocol):
    """Bytes by their offset in the original file."""

    @property
    def size(self) -> int: ...

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer at the end, or where the file is damaged. Raises OSError."""
        ...

    @property
    def torn(self) -> bool:
        """Whether its end is known to be missing."""
        ...

    def lacks(self, got: int, size: int, offset: int) -> bool:
        """Whether a read of `size` bytes that returned only `got` was cut short by damage."""
        ...

    def ended(self) -> bool:
        """Whether it ends with its end record."""
        ...


class PlainLog:
    """The file as its shim writes it: missing data may still come."""

    __slots__ = ("_fd",)

    torn = False

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, size: int, offset: int) -> bytes:
        return frames.pread(self._fd, size, offset)

    def lacks(self, got: int, size: int, offset: int) -> bool:
        return False

    def ended(self) -> bool:
        return frames.read_end(self._fd) is not None


@contextlib.contextmanager
def opened(path: str, indexes: Indexes) -> Iterator[LogSource]:
    """The log, compressed or not. Raises FileNotFoundError if there is none, OSError."""
    fd, compressed = _open(path)
    try:
        if compressed:
            yield CompressedLog(fd, indexes.of(fd), indexes.members)
        else:
            yield PlainLog(fd)
    finally:
        os.close(fd)


def _open(path: str) -> tuple[int, bool]:
    # The plain file is removed only when the other exists; that may have happened since the check.
    for candidate in (path, f"{path}{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            return os.open(candidate, _READ), candidate is not path
    return os.open(path, _READ), False


_READ: int = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def read_frames(source: LogSource, offset: int, size: int) -> frames.Scan:
    """Whole frames from that offset, within about `size` bytes, or one larger frame."""
    found = _scan(source, offset, size)
    if not found.frames and not found.damaged:
        # A larger frame; or one that was incomplete a moment ago and is complete now. For a reader that follows a
        # growing log, a second look is much cheaper than another call.
        found = _scan(source, offset, max(size, frames.size_of_first(source.read(frames.HEADER.size, offset))))
    return found


def _scan(source: LogSource, offset: int, size: int) -> frames.Scan:
    data = source.read(size, offset)
    found = frames.scan(data, offset)
    if source.lacks(len(data), size, offset):
        found = found._replace(damaged=True)
    return found


def all_frames(source: LogSource) -> Iterator[frames.Frame]:
    """All whole frames before the first damage, in bounded memory."""
    position = 0
    while True:
        found = read_frames(source, position, CHUNK)
        yield from found.frames
        if not found.frames or found.damaged:
            return
        position = found.end
