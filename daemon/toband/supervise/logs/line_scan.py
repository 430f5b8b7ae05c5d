"""The lines of an attempt file, in the order in which they end.

A line belongs to one stream, and may come in several frames, between those of the other stream. Its number never
changes once it has ended, however the file grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from toband.domain.attempt_model import Progress
from toband.domain.structured_lines import LineFilter, LogLevel, LogMessage
from toband.ports import LogKind
from toband.supervise.shim import frames

HEAD: Final = 8 * 1024
"""Bytes of a line that has not ended that a checkpoint has. No structured line is longer."""
_KINDS: Final = {frames.STDOUT: LogKind.STDOUT, frames.STDERR: LogKind.STDERR, frames.NOTE: LogKind.SYSTEM}
_BREAK: Final = 10
_PROGRESS: Final = b"::progress "
_LOG: Final = b"::log "
_MAY_BE_PROGRESS: Final = re.compile(rb"^::progress [^\n]*\n", re.MULTILINE)


class OpenLine(NamedTuple):
    """A line that has not ended: its first bytes, its size, and where and when it began."""

    head: bytes = b""
    size: int = 0
    begin: int = 0
    at: int = 0


class Checkpoint(NamedTuple):
    """How many lines have ended before an offset, which is that of a frame, and the lines that are within it."""

    offset: int = 0
    raw: int = 0
    shown: int = 0
    out: OpenLine = OpenLine()
    err: OpenLine = OpenLine()
    aligned: bool = False
    """Whether the lines since the checkpoint before it are in one frame each."""

    def lines(self, *, raw: bool) -> int:
        return self.raw if raw else self.shown

    @property
    def whole(self) -> bool:
        """Whether it has all bytes of the lines within it."""
        return self.out.size <= len(self.out.head) and self.err.size <= len(self.err.head)


class ScannedLine(NamedTuple):
    """A line that has ended, without its line break. `data` is cut at the limit of the scan, `size` is that of all.

    `found`: the scan looks for something, and it is in the line.
    """

    number: int
    kind: LogKind
    data: bytes
    size: int
    begin: int
    at: int
    level: LogLevel | None = None
    found: bool = False


class Needle:
    """A text to look for, with its case or, for letters of ASCII, without."""

    def __init__(self, text: bytes, *, ignore_case: bool) -> None:
        self._ignores = ignore_case
        self._text = text.lower() if ignore_case else text
        self.overlap = len(text) - 1
        """Bytes before a piece in which an occurrence may begin that ends in the piece."""

    def is_in(self, data: bytes) -> bool:
        return self._text in (data.lower() if self._ignores else data)

    def find(self, data: bytes, start: int, end: int) -> int:
        return (data.lower() if self._ignores else data).find(self._text, start, end)


class _Stream:
    """The line that one stream is within."""

    __slots__ = ("at", "begin", "found", "head", "size", "tail")

    def __init__(self, line: OpenLine) -> None:
        self.head, self.size, self.begin, self.at = line
        self.tail = b""
        self.found = False

    @property
    def open(self) -> OpenLine:
        return OpenLine(self.head[:HEAD], self.size, self.begin, self.at) if self.size else OpenLine()


class LineScan:
    """Goes on from a checkpoint. Give it every frame from there on, to `count` or to `lines`.

    With a needle, `lines` returns those that have it, and perhaps others.
    """

    def __init__(self, start: Checkpoint, *, raw: bool = True, keep: int = HEAD, needle: Needle | None = None) -> None:
        self.offset, self.raw, self.shown = start.offset, start.raw, start.shown
        self._streams = {LogKind.STDOUT: _Stream(start.out), LogKind.STDERR: _Stream(start.err)}
        self.aligned = True
        """Whether all lines that were counted since the last checkpoint are in one frame each."""
        self._view_is_raw = raw
        self._keep = max(keep, HEAD)
        self._needle = needle
        if needle is not None:
            for stream in self._streams.values():
                stream.tail = stream.head[-needle.overlap :] if needle.overlap else b""
                stream.found = needle.is_in(stream.head)

    def now(self) -> Checkpoint:
        out, err = (self._streams[kind].open for kind in (LogKind.STDOUT, LogKind.STDERR))
        return Checkpoint(self.offset, self.raw, self.shown, out, err, self.aligned)

    def checkpoint(self) -> Checkpoint:
        """The one of now; the next is about what is counted from now on."""
        made = self.now()
        self.aligned = True
        return made

    @property
    def found(self) -> bool:
        """Whether a line that has not ended has what is looked for."""
        return any(stream.found for stream in self._streams.values())

    def tail_of(self, kind: int) -> bytes:
        """The end of the line that a stream is within, where what is looked for may begin. `kind` is one of frames."""
        stream = self._streams.get(_KINDS[kind])
        return stream.tail if stream is not None else b""

    def skipped_to(self, checkpoint: Checkpoint, tails: Mapping[int, bytes]) -> LineScan:
        """The scan that goes on there, after a part in which nothing is found. `tails` are the ends of that part."""
        scan = LineScan(checkpoint, raw=self._view_is_raw, keep=self._keep)
        scan._needle = self._needle
        for kind, name in _KINDS.items():
            stream = scan._streams.get(name)
            if stream is not None and stream.size:
                tail = tails.get(kind, b"")
                stream.tail = tail[tail.rfind(b"\n") + 1 :]
        return scan

    def count(self, batch: Sequence[frames.Frame]) -> None:
        """Counts the lines that end in some frames, without looking at most of them."""
        if not batch:
            return
        self.aligned = self.aligned and not any(stream.size for stream in self._streams.values())
        for code, kind in _KINDS.items():
            of_kind = [frame for frame in batch if frame.kind == code]
            stream = self._streams.get(kind)
            if stream is None:
                ended = sum(len(_note_lines(bytes(frame.payload))) for frame in of_kind)
                self.raw, self.shown = self.raw + ended, self.shown + ended
            elif of_kind:
                self.aligned = self.aligned and all(frame.payload and frame.payload[-1] == _BREAK for frame in of_kind)
                self._count(stream, of_kind)
        self.offset = batch[-1].end

    def _count(self, stream: _Stream, batch: Sequence[frames.Frame]) -> None:
        data = b"".join([frame.payload for frame in batch])
        ended = data.count(b"\n")
        if not ended:
            self._extend(stream, data, batch[0], 0)
            return
        first, last = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        self.raw += ended
        self.shown += ended
        if stream.size:
            self._extend(stream, data[:first], batch[0], 0)
            self.shown -= _is_progress(stream.head, stream.size)
        elif data.startswith(_PROGRESS):
            self.shown -= _is_progress(data[:first], first)
        if last > first and _PROGRESS in data:
            whole = _MAY_BE_PROGRESS.findall(data[first:last])
            self.shown -= sum(_is_progress(line, len(line)) for line in whole)
        self._close(stream)
        if last < len(data):
            left, number = len(data) - last, len(batch)
            while left > 0:
                number -= 1
                left -= len(batch[number].payload)
            self._extend(stream, data[last:], batch[number], -left)

    def lines(self, frame: frames.Frame) -> Iterator[ScannedLine]:
        """The lines that end in a frame; in the default view without progress."""
        self.offset = frame.end
        kind = _KINDS.get(frame.kind)
        if kind is None:
            return
        data = bytes(frame.payload)
        if kind is LogKind.SYSTEM:
            for note in _note_lines(data):
                yield self._made(kind, note, len(note), frame.offset + frames.HEADER.size, frame.at, found=None)
            return
        stream, start = self._streams[kind], 0
        if stream.size and (start := data.find(b"\n") + 1):
            self._extend(stream, data[:start], frame, 0)
            yield from self._closed(kind, stream)
        last = data.rfind(b"\n", start) + 1 or start
        if self._needle is not None and b"::" not in data:
            yield from self._hits(kind, data, start, last, frame)
            start = last
        while start < last:
            end = data.find(b"\n", start) + 1
            self._extend(stream, data[start:end], frame, start)
            yield from self._closed(kind, stream)
            start = end
        if start < len(data):
            self._extend(stream, data[start:], frame, start)

    def _hits(self, kind: LogKind, data: bytes, start: int, last: int, frame: frames.Frame) -> Iterator[ScannedLine]:
        """Only the lines with what is looked for, of whole lines of ordinary text."""
        assert self._needle is not None
        while (at := self._needle.find(data, start, last)) >= 0:
            begin, end = data.rfind(b"\n", start, at) + 1 or start, data.find(b"\n", at)
            before = data.count(b"\n", start, begin)
            self.raw, self.shown = self.raw + before, self.shown + before
            place = frame.offset + frames.HEADER.size + begin
            line = data[begin : min(end, begin + self._keep)]
            yield self._made(kind, line, end - begin, place, frame.at, found=True)
            start = end + 1
        rest = data.count(b"\n", start, last)
        self.raw, self.shown = self.raw + rest, self.shown + rest

    def rest(self) -> Iterator[ScannedLine]:
        """The lines that have not ended, at the end of the file."""
        for kind, stream in self._streams.items():
            if stream.size:
                found = stream.found if self._needle is not None else None
                yield self._made(kind, stream.head, stream.size, stream.begin, stream.at, found=found)

    def _extend(self, stream: _Stream, data: bytes, frame: frames.Frame, skip: int) -> None:
        if not stream.size:
            stream.begin = frame.offset + frames.HEADER.size + skip
            stream.at = frame.at
        if len(stream.head) < self._keep:
            stream.head += data[: self._keep - len(stream.head)]
        stream.size += len(data)
        if self._needle is not None and not stream.found:
            near = stream.tail + data
            stream.found = self._needle.is_in(near)
            stream.tail = near[-self._needle.overlap :] if self._needle.overlap else b""

    def _close(self, stream: _Stream) -> None:
        stream.head, stream.size, stream.tail, stream.found = b"", 0, b"", False

    def _closed(self, kind: LogKind, stream: _Stream) -> Iterator[ScannedLine]:
        line = self._ended(kind, stream)
        self._close(stream)
        if line is not None:
            yield line

    def _ended(self, kind: LogKind, stream: _Stream) -> ScannedLine | None:
        head, size = stream.head, stream.size
        line = _meaning(head, size)
        found = stream.found if self._needle is not None else None
        if isinstance(line, Progress):
            if not self._view_is_raw:
                self.raw += 1
                return None
            self.shown -= 1
        if isinstance(line, LogMessage) and not self._view_is_raw:
            data = line.message.encode()
            return self._made(kind, data, len(data), stream.begin, stream.at, found=None, level=line.level)
        text = head[:-1] if size == len(head) else head
        return self._made(kind, text, size - 1, stream.begin, stream.at, found=found)

    def _made(
        self,
        kind: LogKind,
        data: bytes,
        size: int,
        begin: int,
        at: int,
        *,
        found: bool | None,
        level: LogLevel | None = None,
    ) -> ScannedLine:
        """`found` None: look into the data."""
        self.raw += 1
        self.shown += 1
        number = self.raw if self._view_is_raw else self.shown
        if found is None:
            found = self._needle is not None and self._needle.is_in(data)
        return ScannedLine(number, kind, data[: self._keep], size, begin, at, level, found)


def _note_lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def _meaning(head: bytes, size: int) -> Progress | LogMessage | None:
    """What a structured line says; None for ordinary text. `head` ends with the line break if it is the whole line."""
    if size != len(head) or not head.startswith((_PROGRESS, _LOG)):
        return None
    segments = LineFilter().feed(head)
    return segments[0].line if len(segments) == 1 else None


def _is_progress(head: bytes, size: int) -> bool:
    return isinstance(_meaning(head, size), Progress)
