"""What attempts printed, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, Protocol

from toband.domain.run_model import Attempt, Progress
from toband.ports.records import RunSize

PAGE = 32 * 1024
"""Bytes of a log that are read at once, unless more are asked for."""


class LogKind(IntEnum):
    """Which stream a piece of a log is of; SYSTEM is what Toban itself had to say."""

    STDOUT = 1
    STDERR = 2
    SYSTEM = 3


class LogPiece(NamedTuple):
    """Bytes that were read at once from one stream; `at` is in microseconds since the epoch."""

    at: int
    kind: LogKind
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """Pieces from one offset on. `over`: the log is complete, nothing will ever follow. `damaged`: cut off here.

    `missing`: there is no log; not yet, or not any more. What follows begins at `offset`, with the byte `skip` of the
    piece there: a large piece is given in parts.
    """

    pieces: Sequence[LogPiece]
    offset: int
    skip: int = 0
    over: bool = False
    damaged: bool = False
    missing: bool = False


class OutputTooLargeError(Exception):
    """A stream holds more than may be taken at once."""


class Logs(Protocol):
    """What attempts printed. Offsets stay valid for ever; a reader never slows a writer."""

    async def read(self, attempt: Attempt, offset: int, skip: int = 0, size: int = PAGE) -> LogPage:
        """What is there from that offset on, without the first bytes of its first piece; about `size` bytes at most.

        Raises ValueError for a wrong offset.
        """
        ...

    async def tail(self, attempt: Attempt, lines: int, kinds: Collection[LogKind]) -> tuple[int, int]:
        """Where the last lines begin: the offset of a piece, and how many bytes of it to pass over."""
        ...

    def printed(self, attempt: Attempt, kind: LogKind, limit: int) -> bytes:
        """All of a stream. Raises OutputTooLargeError if it is more than `limit`."""
        ...

    async def progress(self, attempt: Attempt) -> Progress | None:
        """The last progress that an attempt reported, if it is near the end of its log."""
        ...

    def watching(self, run_id: str, event: asyncio.Event) -> AbstractContextManager[None]:
        """Sets `event` whenever an attempt of the run has printed something."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A directory that has the name of a run. `condemned`: its run was about to be removed."""

    run_id: str
    condemned: bool
    changed_at: datetime


class Archive(Protocol):
    """The files of runs that have ended. All of it is done beside the event loop, one thing at a time, at leisure."""

    async def close(self) -> None:
        """Breaks off what is under way; nothing is left half done."""
        ...

    async def compressible(self, run_id: str) -> int:
        """How many logs are large enough, and not compressed yet."""
        ...

    async def compress(self, attempts: Sequence[Attempt]) -> int:
        """Compresses the logs of attempts that have ended; how many. Positions in them stay valid.

        Raises OSError, also when the supervisor of one has not gone yet: try again later.
        """
        ...

    async def tidy(self, run_id: str) -> int:
        """Removes half-made files that a crash left in a run that has ended; how many."""
        ...

    async def measure(self, run_id: str) -> RunSize: ...

    async def log_bytes(self, run_ids: Collection[str]) -> int:
        """What the logs of these runs take now, together."""
        ...

    async def condemn(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Marks directories, durably, as those of runs that are about to be removed; those that are marked now.

        A run without a directory needs no mark and is among them.
        """
        ...

    async def remove(self, run_id: str) -> None:
        """Removes a directory and all in it, never what links in it lead to. Raises OSError if something is left."""
        ...

    async def directories(self) -> Sequence[Stray]:
        """All that there are, of whatever run."""
        ...

    async def hold_output(self, full: bool) -> None:
        """While it is True, what steps print is counted and dropped. Raises OSError."""
        ...
