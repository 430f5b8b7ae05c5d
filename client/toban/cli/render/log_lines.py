"""Splits the output of steps into lines, each with the name of its step.

Chunks of several steps arrive interleaved, and a chunk may end within a line: an incomplete line waits for its rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Final

from toban.cli.human_text import stamp
from toban.cli.render.terminal_text import terminal_line
from toban.safe_text import escaped_line

if TYPE_CHECKING:
    from toban.v1 import run_pb2

# A longer line is split.
_LONGEST: Final = 1024 * 1024

# The number of an instance, and the suffix of a completion check.
_PART: Final = re.compile(r"(\[[0-9]+\])?(\.check)?\Z")

# run_pb2.LOG_STREAM_SYSTEM, without importing run_pb2.
_SYSTEM: Final = 3

# By run_pb2.LogLevel.
LEVELS: Final = {1: "debug", 2: "info", 3: "warning", 4: "error"}
_COLORS: Final = {1: "2", 3: "33", 4: "31"}


def line_of(record: run_pb2.LogRecord, *, color: bool) -> bytes:
    """The bytes of a record of output; of a `::log` line its level and message."""
    if not record.level:
        return record.data
    word = f"{LEVELS.get(record.level, str(record.level))}:"
    if color and (code := _COLORS.get(record.level)):
        word = f"\x1b[{code}m{word}\x1b[0m"
    return f"{word} {record.message}\n".encode()


def attempt_mark(attempt: int) -> str:
    """What follows the name of a step: ` (attempt 2)`; nothing for a first attempt."""
    return f" (attempt {attempt})" if attempt > 1 else ""


@dataclass(slots=True)
class _Rest:
    prefix: bytes
    data: bytearray = field(default_factory=bytearray)


class Prefixer:
    """Puts the name of the step, with its attempt from the second one on, and optionally the time before each line.

    For a `terminal`, control sequences other than colors are escaped.
    """

    def __init__(self, *, steps: bool, timestamps: bool, color: bool = False, terminal: bool = False) -> None:
        self._color = color
        self._terminal = terminal
        self._steps = steps
        self._timestamps = timestamps
        self._rests: dict[tuple[str, int], _Rest] = {}
        self._titles: dict[str, str] = {}

    def feed(self, chunk: run_pb2.LogChunk) -> bytes:
        """The lines that are complete now."""
        out = bytearray()
        for record in chunk.records:
            key = (chunk.process_execution_id or f"{chunk.step}/{chunk.attempt}", record.stream)
            rest = self._rests.get(key)
            if record.stream == _SYSTEM:
                # A message of Toban, which may contain untrusted text.
                data = f"{escaped_line(record.data.decode('utf-8', 'replace').rstrip())}\n".encode()
            else:
                data = line_of(record, color=self._color)
            prefix = self._prefix(f"{self._name(chunk)}{attempt_mark(chunk.attempt)}", record)
            if rest is not None:
                end = data.find(b"\n") + 1
                if not end and len(rest.data) + len(data) < _LONGEST:
                    rest.data += data
                    continue
                # A line has the time of its beginning.
                out += self._lines(rest.prefix, bytes(rest.data) + (data[: end - 1] if end else data))
                data = data[end:] if end else b""
                del self._rests[key]
            cut = data.rfind(b"\n") + 1
            if cut:
                out += self._lines(prefix, data[: cut - 1])
            if cut < len(data):
                self._rests[key] = _Rest(prefix, bytearray(data[cut:]))
        return bytes(out)

    def finish(self) -> bytes:
        """The last, incomplete lines."""
        out = b"".join(self._lines(rest.prefix, bytes(rest.data)) for rest in self._rests.values())
        self._rests.clear()
        return out

    def _lines(self, prefix: bytes, body: bytes) -> bytes:
        """The lines of a body whose last line has no end."""
        if self._terminal:
            lines = (terminal_line(line, color=self._color) for line in body.split(b"\n"))
            return b"".join(prefix + line + b"\n" for line in lines)
        return prefix + body.replace(b"\n", b"\n" + prefix) + b"\n"

    def _name(self, chunk: run_pb2.LogChunk) -> str:
        """The title, with the number of an instance; with the id too if another step has the same title."""
        if not chunk.step_title:
            return chunk.step
        own = _PART.sub("", chunk.step)
        if self._titles.setdefault(chunk.step_title, own) != own:
            return f"{chunk.step_title} ({chunk.step})"
        return chunk.step_title + chunk.step.removeprefix(own)

    def _prefix(self, step: str, record: run_pb2.LogRecord) -> bytes:
        sign = "*" if record.stream == _SYSTEM else "|"
        text = ""
        if self._timestamps:
            text = f"{stamp(record.at.ToDatetime(tzinfo=UTC))} "
        if self._steps:
            text += f"{escaped_line(step)} {sign} "
        elif record.stream == _SYSTEM:
            text += "* "
        return text.encode()
