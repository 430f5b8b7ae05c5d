"""The line index: how many lines have ended before some offsets of a log, so that any line is found at once.

It is beside the log, as `NAME.log.lines`, and made when lines are read, never by the shim. It only saves work: one that
is missing or damaged is made again, and one that cannot be written is kept in memory.

    8 bytes  TBLINES1
    u32      the checksum of the claim of the log
    then, for each checkpoint: u32 length, u32 CRC-32, and the numbers of `Checkpoint` with the beginnings of open lines
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from toband.supervise.logs.line_scan import HEAD, Checkpoint, LineScan, OpenLine
from toband.supervise.logs.log_sources import CHUNK, LogSource, read_frames
from toband.supervise.shim import frames

SUFFIX = ".lines"
SPACING = 256 * 1024
"""Bytes of a log between two checkpoints."""
KEPT = 16
"""Indexes in memory."""
_MAGIC = b"TBLINES1"
_START = struct.Struct("<8sI")
_ENTRY = struct.Struct("<II")
_NUMBERS = struct.Struct("<qqqB")
_OPEN = struct.Struct("<qqqH")
_LARGEST = 256 * 1024 * 1024


class LineIndex:
    """Of one log. Blocks; may be used from several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._claim = -1
        self._clear()

    def _clear(self) -> None:
        self._checkpoints = [Checkpoint()]
        self._offsets = [0]
        self._stored, self._stored_bytes = 1, 0
        self._scan = LineScan(Checkpoint())
        self._over = self._damaged = False

    def updated(self, source: LogSource) -> KnownLines:
        """Reads on to the end of the log. Raises OSError."""
        with self._lock:
            claim = int.from_bytes(source.read(8, 0)[4:8], "little")
            if claim != self._claim or source.size < self._scan.offset:
                self._claim = claim
                self._clear()
                self._load(source.size)
            self._read_on(source)
            self._save()
            return KnownLines(tuple(self._checkpoints), self._offsets[:], self._scan.now(), self._over, self._damaged)

    def _read_on(self, source: LogSource) -> None:
        while not self._over and not self._damaged:
            found = read_frames(source, self._scan.offset, CHUNK)
            begin = 0
            for number, frame in enumerate(found.frames, start=1):
                if frame.end - self._offsets[-1] >= SPACING and frame.kind != frames.END:
                    self._scan.count(found.frames[begin:number])
                    begin = number
                    self._checkpoints.append(self._scan.checkpoint())
                    self._offsets.append(frame.end)
            self._scan.count(found.frames[begin:])
            self._over = bool(found.frames) and found.frames[-1].kind == frames.END
            self._damaged = found.damaged
            if not found.frames:
                return

    def _load(self, size: int) -> None:
        """The checkpoints that are stored, up to the first that is not valid."""
        data = b""
        with contextlib.suppress(OSError):
            fd = os.open(f"{self._path}{SUFFIX}", _READ)
            try:
                data = frames.pread(fd, _LARGEST, 0)
            finally:
                os.close(fd)
        if data[: _START.size] != _START.pack(_MAGIC, self._claim):
            return
        self._stored_bytes = _START.size
        for checkpoint, end in _entries(data):
            if not self._offsets[-1] < checkpoint.offset <= size:
                return
            self._checkpoints.append(checkpoint)
            self._offsets.append(checkpoint.offset)
            self._stored, self._stored_bytes = len(self._checkpoints), end
            self._scan = LineScan(checkpoint)

    def _save(self) -> None:
        new = self._checkpoints[self._stored :]
        if not new:
            return
        data = b"".join(map(_encoded, new))
        if not self._stored_bytes:
            data = _START.pack(_MAGIC, self._claim) + data
        # It may be made again at any time: a full disk, for example, is no reason to refuse a reader.
        with contextlib.suppress(OSError):
            fd = os.open(f"{self._path}{SUFFIX}", _WRITE, 0o600)
            try:
                os.ftruncate(fd, self._stored_bytes)
                os.lseek(fd, self._stored_bytes, os.SEEK_SET)
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
            self._stored, self._stored_bytes = len(self._checkpoints), self._stored_bytes + len(data)


class KnownLines:
    """The lines of a log up to `end`. `over`: none follow. `damaged`: the log is cut off there."""

    def __init__(
        self, checkpoints: Sequence[Checkpoint], offsets: Sequence[int], end: Checkpoint, over: bool, damaged: bool
    ) -> None:
        self.checkpoints = checkpoints
        self.end, self.over, self.damaged = end, over, damaged
        self._offsets = offsets

    def ended(self, *, raw: bool) -> int:
        """The number of lines; those that have not ended count only if nothing follows."""
        lines = self.end.lines(raw=raw)
        return lines + sum(bool(each.size) for each in (self.end.out, self.end.err)) if self.over else lines

    def before_line(self, number: int, *, raw: bool) -> int:
        """The last checkpoint that has all of a line after it, as its position among them."""
        found = bisect_right(self.checkpoints, number - 1, key=lambda each: each.lines(raw=raw)) - 1
        return self._whole(max(found, 0))

    def before_offset(self, offset: int) -> int:
        return self._whole(max(bisect_right(self._offsets, offset) - 1, 0))

    def _whole(self, number: int) -> int:
        while number and not self.checkpoints[number].whole:
            number -= 1
        return number


class LineIndexes:
    """The indexes of the logs that were read last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, LineIndex] = OrderedDict()

    def of(self, path: str) -> LineIndex:
        with self._lock:
            found = self._kept.setdefault(path, LineIndex(path))
            self._kept.move_to_end(path)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found


def _encoded(checkpoint: Checkpoint) -> bytes:
    parts = [_NUMBERS.pack(checkpoint.offset, checkpoint.raw, checkpoint.shown, checkpoint.aligned)]
    for line in (checkpoint.out, checkpoint.err):
        parts += [_OPEN.pack(line.size, line.begin, line.at, len(line.head)), line.head]
    payload = b"".join(parts)
    return _ENTRY.pack(len(payload), zlib.crc32(payload)) + payload


def _entries(data: bytes) -> Iterator[tuple[Checkpoint, int]]:
    """With the offset after each."""
    position = _START.size
    while position + _ENTRY.size <= len(data):
        length, crc = _ENTRY.unpack_from(data, position)
        payload = data[position + _ENTRY.size : position + _ENTRY.size + length]
        if len(payload) < length or length < _NUMBERS.size + 2 * _OPEN.size or zlib.crc32(payload) != crc:
            return
        place, lines = _NUMBERS.size, []
        for _ in range(2):
            size, begin, at, head = _OPEN.unpack_from(payload, place)
            place += _OPEN.size
            lines.append(OpenLine(payload[place : place + head], size, begin, at))
            place += head
            if len(lines[-1].head) != min(size, HEAD) or place > length - (0 if len(lines) == 2 else _OPEN.size):
                return
        position += _ENTRY.size + length
        offset, raw, shown, aligned = _NUMBERS.unpack_from(payload)
        yield Checkpoint(offset, raw, shown, lines[0], lines[1], bool(aligned)), position


_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ: int = os.O_RDONLY | _FLAGS
_WRITE: int = os.O_WRONLY | os.O_CREAT | _FLAGS
