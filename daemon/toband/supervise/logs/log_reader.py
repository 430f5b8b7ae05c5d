"""Reads the output of attempts: at any offset, whole frames only, while they are still being written."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from toband.domain.attempt_model import Attempt, Progress
from toband.domain.structured_lines import LineFilter, Segment, shown
from toband.ports import PAGE, LogKind, LogPage, LogPiece, OutputEnd, OutputTooLargeError
from toband.supervise.files.run_files import RunFiles
from toband.supervise.logs.compressed_log import Indexes
from toband.supervise.logs.log_sources import all_frames, opened, read_frames
from toband.supervise.logs.progress_tail import progress_before
from toband.supervise.shim import frames

PIECE_WEIGHT = 128
"""Overhead of a piece beside its bytes: a page of tiny pieces has fewer bytes."""
POLL = 0.1
_KINDS = {
    frames.STDOUT: LogKind.STDOUT,
    frames.STDERR: LogKind.STDERR,
    frames.NOTE: LogKind.SYSTEM,
}


class LogReader:
    """Implements `ports.Logs` over attempt files, compressed or not."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._indexes = Indexes()
        if sys.platform == "linux":
            from toband.supervise.logs.log_notify import DirectoryWatcher

            self._watcher = DirectoryWatcher()

    async def read(self, attempt: Attempt, offset: int, skip: int = 0, size: int = PAGE) -> LogPage:
        return await asyncio.to_thread(self._read, self._files.log(attempt), offset, skip, size)

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for _, segment in self._segments(self._files.log(attempt), {kind}):
            if segment.line is None:
                size += len(segment.data)
                if size > limit:
                    raise OutputTooLargeError
                parts.append(segment.data)
        return b"".join(parts)

    def _segments(self, path: str, kinds: Collection[LogKind]) -> Iterator[tuple[LogKind, Segment]]:
        """What these streams printed, with structured lines as segments; nothing if there is no log."""
        lines = {kind: LineFilter() for kind in kinds if kind is not LogKind.SYSTEM}
        with contextlib.suppress(FileNotFoundError), opened(path, self._indexes) as source:
            for frame in all_frames(source):
                kind = _KINDS.get(frame.kind)
                if kind in lines:
                    yield from ((kind, segment) for segment in lines[kind].feed(bytes(frame.payload)))
                elif kind in kinds:
                    yield LogKind.SYSTEM, Segment(bytes(frame.payload))
        for kind, stream in lines.items():
            yield from ((kind, segment) for segment in stream.finish())

    async def ends(self, attempt: Attempt, limit: int) -> Mapping[LogKind, OutputEnd]:
        return await asyncio.to_thread(self._ends, self._files.log(attempt), limit)

    def _ends(self, path: str, limit: int) -> dict[LogKind, OutputEnd]:
        """Scans the file once, keeping only the last pieces of each stream."""
        found: dict[LogKind, deque[bytes]] = {}
        sizes: Counter[LogKind] = Counter()
        left_out: set[LogKind] = set()
        for kind, segment in self._segments(path, list(LogKind)):
            if not (text := shown(segment)):
                continue
            kept = found.setdefault(kind, deque())
            kept.append(text)
            sizes[kind] += len(text)
            while sizes[kind] - len(kept[0]) >= limit:
                sizes[kind] -= len(kept.popleft())
                left_out.add(kind)
        return {
            kind: OutputEnd(b"".join(kept)[-limit:], truncated=kind in left_out or sizes[kind] > limit)
            for kind, kept in found.items()
        }

    async def progress(self, attempts: Sequence[Attempt]) -> Sequence[Progress | None]:
        paths = [self._files.log(attempt) for attempt in attempts]
        return await asyncio.to_thread(lambda: [self._progress(path) for path in paths])

    def _progress(self, path: str) -> Progress | None:
        try:
            with opened(path, self._indexes) as source:
                return progress_before(source.size, source.read)
        except (OSError, ValueError):
            # Progress is a hint: a log that cannot be read now must not fail the call that shows the run.
            return None

    @contextlib.contextmanager
    def watching(self, run_id: str, event: asyncio.Event) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            watched = False
            if sys.platform == "linux":
                with contextlib.suppress(OSError):
                    path = self._files.attempts(run_id)
                    stack.enter_context(self._watcher.watching(path, event))
                    watched = True
            if not watched:
                # No directory yet, or no watches left: check from time to time.
                stack.callback(asyncio.get_running_loop().create_task(_tick(event)).cancel)
            yield

    def close(self) -> None:
        if sys.platform == "linux":
            self._watcher.close()

    def _read(self, path: str, offset: int, skip: int, most: int) -> LogPage:
        try:
            with opened(path, self._indexes) as source:
                size = source.size
                if offset > size:
                    if source.torn:
                        return LogPage(pieces=(), offset=offset, damaged=True)
                    raise ValueError("the position lies behind the end of the log")
                found = _some(read_frames(source, offset, most), most)
                last = found.frames[-1].kind if found.frames else None
                over = last == frames.END or (last is None and offset == size and source.ended())
        except FileNotFoundError:
            return LogPage(pieces=(), offset=offset, skip=skip, missing=True)
        first = found.frames[0] if found.frames else None
        if first is not None and first.kind in _KINDS and (skip or len(first.payload) > most):
            return _part(first, skip, most)
        return LogPage(
            pieces=[
                LogPiece(frame.at, _KINDS[frame.kind], bytes(frame.payload), frame.offset)
                for frame in found.frames
                if frame.kind in _KINDS
            ],
            offset=found.end,
            skip=0 if found.frames else skip,
            over=over,
            damaged=found.damaged,
        )


def _some(found: frames.Scan, size: int) -> frames.Scan:
    """The frames that a page of that size has room for."""
    most = max(size // PIECE_WEIGHT, 1)
    if len(found.frames) <= most:
        return found
    first = found.frames[:most]
    return frames.Scan(first, first[-1].end, False)


def _part(frame: frames.Frame, skip: int, size: int) -> LogPage:
    """A single frame that is larger than a page, or was read partly before. Raises ValueError for a wrong `skip`."""
    if skip > len(frame.payload):
        raise ValueError("the position lies behind the end of a piece")
    data = bytes(frame.payload[skip : skip + size])
    reached = skip + len(data)
    whole = reached == len(frame.payload)
    return LogPage(
        pieces=[LogPiece(frame.at, _KINDS[frame.kind], data, frame.offset, skip)] if data else [],
        offset=frame.end if whole else frame.offset,
        skip=0 if whole else reached,
    )


async def _tick(event: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(POLL)
        event.set()
