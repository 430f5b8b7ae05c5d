"""Logs of attempts, and the archive of ended runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, Protocol

from toband.domain.attempt_model import Attempt, Progress
from toband.domain.structured_lines import LogLevel
from toband.ports.records import RunSize

PAGE = 32 * 1024
"""Bytes of a log that one read returns by default."""


class LogKind(IntEnum):
    """The stream of a piece; SYSTEM is Toban's own messages."""

    STDOUT = 1
    STDERR = 2
    SYSTEM = 3


class LogPiece(NamedTuple):
    """Bytes that were read from one stream at once; `at` is in microseconds since the epoch.

    They begin at byte `skip` of the piece at `offset`.
    """

    at: int
    kind: LogKind
    data: bytes
    offset: int = 0
    skip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Pieces from one offset on. `over`: the log is complete. `damaged`: it is cut off here.

    `missing`: there is no log, not yet or not any more. The next page begins at `offset`, with byte `skip` of the piece
    there: a large piece comes in parts.
    """

    pieces: Sequence[LogPiece]
    offset: int
    skip: int = 0
    over: bool = False
    damaged: bool = False
    missing: bool = False


class NumberedLine(NamedTuple):
    """A line of a log, without its line break. `number` counts from 1 in the order in which lines end.

    `data` may be cut; `size` is that of the whole line. `offset` is where it begins in the attempt file. `unfinished`:
    it has not ended yet, and may get another number.
    """

    number: int
    offset: int
    at: int
    kind: LogKind
    data: bytes
    size: int
    level: LogLevel | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineQuery:
    """`count` lines from `first` on; a negative one counts from the end. With `offset`: from the first one that begins
    there or later.
    """

    first: int = 1
    count: int
    offset: int | None = None
    raw: bool = False
    line_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePage:
    """`total` is the number of lines that have ended. `over`: no more follow. `damaged`: the log is cut off."""

    lines: Sequence[NumberedLine]
    total: int
    over: bool
    damaged: bool
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """At most `count` lines with the text, after line `after`."""

    text: str
    ignore_case: bool = False
    after: int = 0
    count: int
    raw: bool = False
    line_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """`resume`: the line after which a further search begins; None: the log has no more."""

    lines: Sequence[NumberedLine]
    resume: int | None = None
    missing: bool = False


class LogLineReader(Protocol):
    """Lines of logs by their numbers. Blocks; may be called from several threads. Raises OSError."""

    def read(self, attempt: Attempt, query: LineQuery) -> LinePage: ...

    def search(self, attempt: Attempt, query: TextQuery) -> FoundLines: ...


class OutputEnd(NamedTuple):
    """The last bytes of a stream. `truncated`: there are more before them."""

    data: bytes = b""
    truncated: bool = False


class OutputTooLargeError(Exception):
    """A stream has more bytes than the limit of one read."""


class Logs(Protocol):
    """Logs of attempts. Offsets stay valid forever; a reader never slows a writer."""

    async def read(self, attempt: Attempt, offset: int, skip: int = 0, size: int = PAGE) -> LogPage:
        """The page at that offset, without the first `skip` bytes of its first piece; at most about `size` bytes.

        Raises ValueError for a wrong offset.
        """
        ...

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        """The whole stream without structured lines. Raises OutputTooLargeError if it has more than `limit` bytes."""
        ...

    async def ends(self, attempt: Attempt, limit: int) -> Mapping[LogKind, OutputEnd]:
        """At most the last `limit` bytes of each stream so far, without progress; only of streams that have some."""
        ...

    async def progress(self, attempts: Sequence[Attempt]) -> Sequence[Progress | None]:
        """The last progress that each attempt reported, if it is near the end of its log."""
        ...

    def watching(self, run_id: str, event: asyncio.Event) -> AbstractContextManager[None]:
        """Sets `event` whenever an attempt of the run has printed something."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A directory with the name of a run. `condemned`: its run was marked for removal."""

    run_id: str
    condemned: bool
    changed_at: datetime


class Archive(Protocol):
    """The files of ended runs. Works in the background, on one file at a time."""

    async def close(self) -> None:
        """Cancels the current work; it leaves no partial files."""
        ...

    async def compressible(self, run_id: str) -> int:
        """The number of logs that are large enough and not compressed yet."""
        ...

    async def compress(self, attempts: Sequence[Attempt]) -> int:
        """Compresses the logs of ended attempts; returns their number. Offsets in them stay valid.

        Raises OSError, also while the shim of one still runs: try again later.
        """
        ...

    async def tidy(self, run_id: str) -> int:
        """Removes partial files that a crash left in an ended run; returns their number."""
        ...

    async def measure(self, run_id: str) -> RunSize: ...

    async def log_bytes(self, run_ids: Collection[str]) -> int:
        """The size of all logs of these runs."""
        ...

    async def condemn(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Durably marks the directories of runs for removal; returns the marked runs.

        A run without a directory needs no mark and is included.
        """
        ...

    async def remove(self, run_id: str) -> None:
        """Removes a directory with its contents, but not the targets of links. Raises OSError if any of it remains."""
        ...

    async def directories(self) -> Sequence[Stray]:
        """All directories of runs, also of unknown ones."""
        ...

    async def hold_output(self, full: bool) -> None:
        """While True, the output of steps is counted and dropped. Raises OSError."""
        ...
