"""Reads lines of a log by their numbers, and looks for a text in them. Blocks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from toband.domain.attempt_model import Attempt
from toband.ports import FoundLines, LinePage, LineQuery, NumberedLine, TextQuery
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.compressed_log import Indexes
from toband.supervise.logs.line_index import KnownLines, LineIndexes
from toband.supervise.logs.line_scan import Checkpoint, LineScan, Needle, ScannedLine
from toband.supervise.logs.log_sources import CHUNK, LogSource, opened, read_frames
from toband.supervise.shim import frames

PAGE_BYTES = 2 * 1024 * 1024
"""Bytes of lines that one answer has."""
SEARCH_SECONDS = 1.5
"""After that a search answers with what it has found."""


class LineReader:
    """`ports.LogLineReader` over attempt files, compressed or not."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._members = Indexes()
        self._indexes = LineIndexes()

    def read(self, attempt: Attempt, query: LineQuery) -> LinePage:
        path = self._files.log(attempt)
        try:
            with opened(path, self._members) as source:
                lines = self._indexes.of(path).updated(source)
                return _page(source, lines, query)
        except FileNotFoundError:
            return LinePage(lines=(), total=0, over=False, damaged=False, missing=True)

    def search(self, attempt: Attempt, query: TextQuery) -> FoundLines:
        path = self._files.log(attempt)
        try:
            with opened(path, self._members) as source:
                lines = self._indexes.of(path).updated(source)
                return _found(source, lines, query, time.monotonic() + SEARCH_SECONDS)
        except FileNotFoundError:
            return FoundLines(lines=(), missing=True)


def _page(source: LogSource, lines: KnownLines, query: LineQuery) -> LinePage:
    total, first = lines.ended(raw=query.raw), query.first
    if first < 0:
        first = max(1, total + 1 + first)
    by_offset = query.offset is not None
    start = lines.before_offset(query.offset) if query.offset is not None else lines.before_line(first, raw=query.raw)
    scan = LineScan(lines.checkpoints[start], raw=query.raw, keep=query.line_bytes)
    found: list[NumberedLine] = []
    size = 0
    for line in _all(source, lines, scan):
        if (line.begin < (query.offset or 0)) if by_offset and not found else (line.number < first):
            continue
        if len(found) >= query.count or (found and size + len(line.data) > PAGE_BYTES):
            break
        first = min(first, line.number) if by_offset else first
        found.append(_line(line, lines, query.line_bytes, raw=query.raw))
        size += len(found[-1].data)
    return LinePage(lines=found, total=total, over=lines.over, damaged=lines.damaged)


def _all(source: LogSource, lines: KnownLines, scan: LineScan) -> Iterator[ScannedLine]:
    """The lines from a checkpoint up to the end that the index knows, and those that have not ended there."""
    while scan.offset < lines.end.offset:
        found = read_frames(source, scan.offset, CHUNK // 4)
        for frame in found.frames:
            if frame.end > lines.end.offset:
                break
            yield from scan.lines(frame)
        if not found.frames:
            return
    yield from scan.rest()


def _line(line: ScannedLine, lines: KnownLines, most: int, *, raw: bool) -> NumberedLine:
    unfinished = not lines.over and line.number > lines.end.lines(raw=raw)
    return NumberedLine(
        number=line.number,
        offset=line.begin,
        at=line.at,
        kind=line.kind,
        data=line.data[:most],
        size=line.size,
        level=line.level,
        unfinished=unfinished,
    )


def _found(source: LogSource, lines: KnownLines, query: TextQuery, until: float) -> FoundLines:
    """Segments between checkpoints that do not have the text are skipped as a whole."""
    needle = Needle(query.text.encode(), ignore_case=query.ignore_case)
    number = lines.before_line(query.after + 1, raw=query.raw)
    scan = LineScan(lines.checkpoints[number], raw=query.raw, needle=needle)
    tails: dict[int, bytes] = {}
    found: list[NumberedLine] = []
    while True:
        start = lines.checkpoints[number]
        last = number + 1 == len(lines.checkpoints)
        end = lines.end if last else lines.checkpoints[number + 1]
        if time.monotonic() > until and start.lines(raw=query.raw) > query.after:
            return FoundLines(lines=found, resume=start.lines(raw=query.raw))
        data = source.read(end.offset - start.offset, start.offset)
        if scan.found or _may_have(data, end, tails, needle, scan):
            for line in _scanned(scan, _frames(data, start.offset), rest=last):
                if line.found and line.number > query.after:
                    if len(found) >= query.count:
                        return FoundLines(lines=found, resume=found[-1].number)
                    found.append(_line(line, lines, query.line_bytes, raw=query.raw))
        elif not last:
            scan = scan.skipped_to(end, tails)
        if last:
            return FoundLines(lines=found)
        number += 1


def _scanned(scan: LineScan, segment: Iterable[frames.Frame], *, rest: bool) -> Iterator[ScannedLine]:
    for frame in segment:
        yield from scan.lines(frame)
    if rest:
        yield from scan.rest()


def _frames(data: bytes, start: int) -> Iterator[frames.Frame]:
    """Those from an offset on, which the index has checked."""
    for position, at, kind, payload in _walk(data):
        yield frames.Frame(start + position, start + position + frames.HEADER.size + len(payload), at, kind, payload)


def _walk(data: bytes) -> Iterator[tuple[int, int, int, memoryview]]:
    view, position, unpack, size = memoryview(data), 0, frames.HEADER.unpack_from, frames.HEADER.size
    while position + size <= len(view):
        length, _, at, kind = unpack(view, position)
        begin = position + size
        if begin + length > len(view):
            return
        yield position, at, kind, view[begin : begin + length]
        position = begin + length


def _may_have(data: bytes, end: Checkpoint, tails: dict[int, bytes], needle: Needle, scan: LineScan) -> bool:
    """Whether any stream may have the text there. Leaves the ends of the streams in `tails`."""
    if end.aligned and not needle.is_in(data):
        tails.clear()
        return False
    parts: dict[int, list[bytes | memoryview]] = {
        kind: [scan.tail_of(kind)] for kind in (frames.STDOUT, frames.STDERR, frames.NOTE)
    }
    for _, _, kind, payload in _walk(data):
        if kind in parts:
            parts[kind].append(payload)
    has = False
    for kind, each in parts.items():
        text = b"".join(each)
        has = has or needle.is_in(text)
        tails[kind] = text[-needle.overlap :] if needle.overlap else b""
    return has
