"""Reading what attempts printed: at any offset, whole frames only, while they are still being written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import Collection, Iterator

from toband.domain.model import Attempt
from toband.ports import LogKind, LogPage, LogPiece, OutputTooLargeError
from toband.supervise import frames
from toband.supervise.files import RunFiles

PAGE = 1024 * 1024
POLL = 0.1
_KINDS = {
    frames.STDOUT: LogKind.STDOUT,
    frames.STDERR: LogKind.STDERR,
    frames.NOTE: LogKind.SYSTEM,
}


class LogFiles:
    """Implements `ports.Logs` over attempt files."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        if sys.platform == "linux":
            from toband.supervise.inotify import DirectoryWatcher

            self._watcher = DirectoryWatcher()

    async def read(self, attempt: Attempt, offset: int) -> LogPage:
        return await asyncio.to_thread(self._read, self._files.log(attempt), offset)

    async def tail(
        self, attempt: Attempt, lines: int, kinds: Collection[LogKind]
    ) -> tuple[int, int]:
        return await asyncio.to_thread(self._tail, self._files.log(attempt), lines, kinds)

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        with contextlib.suppress(FileNotFoundError), _opened(self._files.log(attempt)) as fd:
            for frame in frames.frames_of(fd):
                if frame.kind == kind:
                    size += len(frame.payload)
                    if size > limit:
                        raise OutputTooLargeError
                    parts.append(bytes(frame.payload))
        return b"".join(parts)

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
                # No directory yet, or no watches left: look now and then.
                stack.callback(asyncio.get_running_loop().create_task(_tick(event)).cancel)
            yield

    def close(self) -> None:
        if sys.platform == "linux":
            self._watcher.close()

    def _read(self, path: str, offset: int) -> LogPage:
        try:
            with _opened(path) as fd:
                size = os.fstat(fd).st_size
                if offset > size:
                    raise ValueError("the position lies behind the end of the log")
                found = frames.scan(frames.pread(fd, PAGE, offset), offset)
                if not found.frames and not found.damaged:
                    whole = frames.pread(fd, frames.HEADER.size + frames.MAX_PAYLOAD, offset)
                    found = frames.scan(whole, offset)
                if found.frames:
                    over = found.frames[-1].kind == frames.END
                else:
                    over = offset == size and frames.read_end(fd) is not None
        except FileNotFoundError:
            return LogPage(pieces=(), offset=offset)
        return LogPage(
            pieces=[
                LogPiece(frame.at, _KINDS[frame.kind], bytes(frame.payload))
                for frame in found.frames
                if frame.kind in _KINDS
            ],
            offset=found.end,
            over=over,
            damaged=found.damaged,
        )

    def _tail(self, path: str, lines: int, kinds: Collection[LogKind]) -> tuple[int, int]:
        """Goes through the file once, keeping only the places of the last pieces that hold enough lines."""
        kept: deque[tuple[int, int]] = deque()
        total = 0
        open_line = False
        try:
            with _opened(path) as fd:
                for frame in frames.frames_of(fd):
                    if _KINDS.get(frame.kind) not in kinds or not frame.payload:
                        continue
                    count = bytes(frame.payload).count(b"\n")
                    kept.append((frame.offset, count))
                    total += count
                    open_line = frame.payload[-1] != 10
                    while kept and total - kept[0][1] > lines:
                        total -= kept.popleft()[1]
                spare = total + open_line - lines
                if spare <= 0:
                    return 0, 0
                while kept[0][1] < spare:
                    spare -= kept.popleft()[1]
                start = kept[0][0]
                first = frames.pread(fd, frames.HEADER.size + frames.MAX_PAYLOAD, start)
                payload = bytes(frames.scan(first, start).frames[0].payload)
        except FileNotFoundError:
            return 0, 0
        skip = 0
        for _ in range(spare):
            skip = payload.index(b"\n", skip) + 1
        return start, skip


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


async def _tick(event: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(POLL)
        event.set()
