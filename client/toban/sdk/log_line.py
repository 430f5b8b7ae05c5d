"""Lines of a log, put together from the pieces in which the daemon sends the output of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from toban.sdk.states import LogLevel, LogStream, from_number, maybe_from_number
from toban.v1 import run_pb2

# A longer line is split.
_LONGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a step printed, without its end; `at` is when it began.

    `level` is that of a `::log` line or of a note of Toban (`stream` is SYSTEM then); other lines have none. Bytes that
    are not UTF-8 are replaced in `text`.
    """

    text: str
    step: str
    attempt: int
    at: datetime
    stream: LogStream
    level: LogLevel | None = None
    process_execution_id: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class _Rest:
    """The beginning of a line whose end has not arrived."""

    step: str
    attempt: int
    at: datetime
    stream: int
    process: str
    data: bytearray = field(default_factory=bytearray)

    def line(self) -> LogLine:
        return _line(bytes(self.data), self.step, self.attempt, self.at, self.stream, self.process)


class LogLines:
    """Chunks of several steps arrive interleaved, and may end within a line."""

    def __init__(self) -> None:
        self._rests: dict[tuple[str, int], _Rest] = {}

    def feed(self, chunk: run_pb2.LogChunk) -> Iterator[LogLine]:
        """The lines that are complete now."""
        for record in chunk.records:
            at = record.at.ToDatetime(tzinfo=UTC)
            if record.level:
                level = maybe_from_number(LogLevel, record.level)
                text = record.message.encode()
                yield _line(text, chunk.step, chunk.attempt, at, record.stream, chunk.process_execution_id, level)
                continue
            process = chunk.process_execution_id
            key = (process, record.stream)
            rest = self._rests.pop(key, None) or _Rest(chunk.step, chunk.attempt, at, record.stream, process)
            *lines, last = record.data.split(b"\n")
            for line in lines:
                rest.data += line
                yield rest.line()
                rest = _Rest(chunk.step, chunk.attempt, at, record.stream, process)
            rest.data += last
            if len(rest.data) >= _LONGEST:
                yield rest.line()
            elif rest.data:
                self._rests[key] = rest

    @property
    def pending(self) -> bool:
        """Whether the beginning of a line is kept, which has no end yet."""
        return bool(self._rests)

    def finish(self) -> Iterator[LogLine]:
        """The last lines, which have no end."""
        rests, self._rests = self._rests, {}
        for rest in rests.values():
            yield rest.line()


def _line(
    data: bytes, step: str, attempt: int, at: datetime, stream: int, process: str, level: LogLevel | None = None
) -> LogLine:
    return LogLine(
        text=data.decode("utf-8", "replace"),
        step=step,
        attempt=attempt,
        at=at,
        stream=from_number(LogStream, stream),
        level=level,
        process_execution_id=process,
    )
