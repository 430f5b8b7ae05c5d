"""Structured lines in the output of a step: `::progress 5/20 message` and `::log level=warning message`.

A structured line begins at the start of a line of standard output or standard error and ends with a line break, with or
without a carriage return. Anything that differs from the grammar is ordinary text, and so is a last line without a line
break.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from toband.domain.attempt_model import Progress

PROGRESS_MESSAGE_MOST = 200
"""Characters of a progress message that are kept."""
MESSAGE_BYTES = 4000
"""A line with a longer message is ordinary text."""

_NUMBER = rb"[0-9]{1,15}(?:\.[0-9]{1,15})?"
# No control characters except the tab.
_MESSAGE = rb"[^\x00-\x08\x0a-\x1f\x7f]{0,%d}" % MESSAGE_BYTES
_BREAK = rb"\r?\n"
_PROGRESS = rb"::progress (" + _NUMBER + rb")(?:/(" + _NUMBER + rb"))?(?: (" + _MESSAGE + rb"))?" + _BREAK
_LOG = rb"::log level=(debug|info|warning|error) (?=[^\r\n]*[^\s])(" + _MESSAGE + rb")" + _BREAK
_LINE = re.compile(rb"^(?:" + _PROGRESS + rb"|" + _LOG + rb")", re.MULTILINE)
# Possessive: without it, the position before each line would be remembered.
_PROGRESS_LINES = re.compile(rb"(?:" + _PROGRESS + rb")++")
_STARTS = (b"::progress ", b"::log level=")
_HELD_MOST = MESSAGE_BYTES + 100
"""Bytes of the longest structured line, at most."""


class LogLevel(IntEnum):
    DEBUG = 1
    INFO = 2
    WARNING = 3
    ERROR = 4


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A line `::log`."""

    level: LogLevel
    message: str


class Segment(NamedTuple):
    """Bytes of one stream: a structured line, or ordinary text if `line` is None.

    Progress lines in a row may be one segment: `line` is the last of them.
    """

    data: bytes
    line: Progress | LogMessage | None = None


class LineFilter:
    """Finds the structured lines of one stream, whose bytes come in parts.

    It holds back only the last, incomplete line, as long as that may become a structured one. `in_text`: the stream is
    within a line of ordinary text.
    """

    __slots__ = ("held", "in_text")

    def __init__(self, *, in_text: bool = False) -> None:
        self.held = b""
        self.in_text = in_text

    def feed(self, data: bytes) -> list[Segment]:
        """What is decided now, in order. A line that was held back is a segment of its own."""
        found: list[Segment] = []
        if self.held:
            end = data.find(b"\n") + 1
            line = self.held + (data[:end] if end else data)
            self.held = b""
            self._split(line, found)
            if not end or not data[end:]:
                return found
            data = data[end:]
        if data:
            self._split(data, found)
        return found

    def finish(self) -> list[Segment]:
        """The line that was held back: it has no end, so it is ordinary text."""
        held = self.settle()
        return [Segment(held)] if held else []

    def settle(self) -> bytes:
        """Makes the line that is held back ordinary text, and returns its bytes so far."""
        held, self.held = self.held, b""
        self.in_text = self.in_text or bool(held)
        return held

    def _split(self, data: bytes, found: list[Segment]) -> None:
        start = position = 0
        if self.in_text:
            position = data.find(b"\n") + 1
            if not position:
                found.append(Segment(data))
                return
        # A match may begin in the middle of a line only at the start of `data`, which is before `position` then.
        while (match := _LINE.search(data, position)) is not None:
            if match.start() > start:
                found.append(Segment(data[start : match.start()]))
            start = match.start()
            if match[1] is not None and (several := _PROGRESS_LINES.match(data, start)) is not None:
                last = data.rfind(b"\n", start, several.end() - 1) + 1
                match = _LINE.match(data, max(last, start)) or match
            found.append(Segment(data[start : match.end()], _meaning(match)))
            start = position = match.end()
        last = max(data.rfind(b"\n") + 1, position)
        self.in_text = False
        if _may_become(data, last):
            self.held = data[last:]
        else:
            self.in_text = last < len(data)
            last = len(data)
        if last > start:
            found.append(Segment(data[start:last]))


def shown(segment: Segment) -> bytes:
    """The text that people get: of a `::log` line its message, of a progress line nothing."""
    match segment.line:
        case None:
            return segment.data
        case LogMessage(message=message):
            return f"{message}\n".encode()
        case Progress():
            return b""


def last_progress(data: bytes, *, at_line_start: bool) -> tuple[int, Progress] | None:
    """The last progress line, with the position of its end. `at_line_start`: a line begins where `data` does."""
    mark = _STARTS[0]
    position = data.rfind(mark)
    while position >= 0:
        begins = data[position - 1] == 10 if position else at_line_start
        if begins and (match := _LINE.match(data, position)) is not None:
            progress = _meaning(match)
            assert isinstance(progress, Progress)
            return match.end(), progress
        position = data.rfind(mark, 0, position)
    return None


def _may_become(data: bytes, start: int) -> bool:
    """Whether the bytes from there on may be the start of a structured line."""
    size = len(data) - start
    if not 0 < size < _HELD_MOST:
        return False
    return any(data.startswith(mark, start) or mark.startswith(data[start : start + 20]) for mark in _STARTS)


def _meaning(match: re.Match[bytes]) -> Progress | LogMessage:
    current, total, reported, level, message = match.groups()
    if current is None:
        return LogMessage(LogLevel[level.decode().upper()], _text(message))
    text = _text(reported or b"")[:PROGRESS_MESSAGE_MOST]
    return Progress(current=float(current), total=float(total or 0), message=text)


def _text(data: bytes) -> str:
    return data.decode(errors="replace").strip()
