"""The last progress in an attempt file, found from its end: a report costs the daemon nothing until it is read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

from toband.domain import structured_lines
from toband.domain.attempt_model import Progress
from toband.supervise.shim import frames

TAIL = 64 * 1024
"""Bytes at the end of a log that are searched."""
_LONGEST_TAIL = 600 * 1024
"""Is longer than two frames that a shim writes: a whole frame begins in it."""
_CANDIDATES = 1000
# Of a frame of output: a length up to 16 MiB, the checksum, and a time between 2005 and 2112.
_HEADER = re.compile(rb"(?=[\s\S]{3}[\x00\x01][\s\S]{10}[\x04-\x0f]\x00[\x01-\x03])")


def progress_before(end: int, read: Callable[[int, int], bytes]) -> Progress | None:
    """The last progress before the offset `end` of an attempt file. `read` takes a size and an offset."""
    for size in (TAIL, _LONGEST_TAIL):
        start = max(0, end - size)
        data = read(end - start, start)
        first = 0 if start == 0 else _first_frame(data)
        if first is None:
            continue
        found = frames.scan(memoryview(data)[first:]).frames
        progress = _last(found, line_starts=start == 0)
        # Whether a line begins at the first frame is known only from the frames before it.
        if size == _LONGEST_TAIL or progress == _last(found, line_starts=True):
            return progress
    return None


def _first_frame(data: bytes) -> int | None:
    """The position of the first whole frame; None if there is none."""
    for number, match in enumerate(_HEADER.finditer(data)):
        if number == _CANDIDATES:
            break
        position = match.start()
        length = frames.size_of_first(data[position : position + frames.HEADER.size])
        if position + length <= len(data) and frames.scan(memoryview(data)[position : position + length]).frames:
            return position
    return None


def _last(found: list[frames.Frame], *, line_starts: bool) -> Progress | None:
    """The progress line that ends last, of both streams."""
    latest: tuple[int, Progress] | None = None
    for kind in (frames.STDOUT, frames.STDERR):
        pieces = [frame for frame in found if frame.kind == kind]
        ends, size = [], 0
        for frame in pieces:
            size += len(frame.payload)
            ends.append(size)
        line = structured_lines.last_progress(b"".join(frame.payload for frame in pieces), at_line_start=line_starts)
        if line is None:
            continue
        offset = pieces[bisect_left(ends, line[0])].offset
        if latest is None or offset > latest[0]:
            latest = offset, line[1]
    return latest[1] if latest is not None else None
