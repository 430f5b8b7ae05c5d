"""Log view: turns the stored output of an attempt into the records that a reader gets.

By default structured lines are left out, `::log` lines become records with a level and a message, and each line of a
record that was held back has the time of its beginning. A raw view returns the bytes as stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from toband.domain.attempt_model import Progress
from toband.domain.structured_lines import LineFilter, LogLevel, LogMessage, Segment, shown
from toband.ports import LogKind, LogPage, LogPiece

Spot = tuple[int, int]
"""The offset of a piece, and how many bytes of it are before the spot."""

LEVELS: Final = {LogKind.STDOUT: LogLevel.INFO, LogKind.STDERR: LogLevel.WARNING, LogKind.SYSTEM: LogLevel.WARNING}
"""What a record without a level counts as."""

_IN_TEXT: Final = (-1, 0)
_LETTERS: Final = {LogKind.STDOUT: "o", LogKind.STDERR: "e"}
_SPOT = r"[0-9]{1,18}(?:\+[0-9]{1,18})?"
PLACE: Final = rf"{_SPOT}(?:l(?:o(?:{_SPOT})?)?(?:e(?:{_SPOT})?)?)?"
"""The text of a place: see `LogPlace`."""
_PLACE: Final = re.compile(rf"({_SPOT})(l)?(?:(o)({_SPOT})?)?(?:(e)({_SPOT})?)?")


class LogRecord(NamedTuple):
    """Bytes of one stream, or a `::log` line: then `data` is its message and a newline."""

    at: int
    kind: LogKind
    data: bytes
    level: LogLevel | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """How far the log of an attempt was returned.

    `lines` has each stream that is within a line: the spot where that line begins if it is held back, _IN_TEXT if it is
    ordinary text. None: unknown, because a raw view does not look at lines.

    As text: the spot, `l` if the lines are known, then `o` or `e` for a stream within a line, with the spot of a line
    that is held back.
    """

    spot: Spot = (0, 0)
    lines: tuple[tuple[LogKind, Spot], ...] | None = None

    def __str__(self) -> str:
        text = _spot_text(self.spot)
        if self.lines is None:
            return text
        parts = [_LETTERS[kind] + ("" if begin == _IN_TEXT else _spot_text(begin)) for kind, begin in self.lines]
        return f"{text}l{''.join(parts)}"

    @classmethod
    def parse(cls, text: str) -> LogPlace:
        """Of a text that matches PLACE. Raises ValueError."""
        match = _PLACE.fullmatch(text)
        assert match is not None
        spot = _spot(match[1])
        if match[2] is None:
            return cls(spot)
        lines = [
            (kind, _spot(match[group + 1]) if match[group + 1] else _IN_TEXT)
            for kind, group in ((LogKind.STDOUT, 3), (LogKind.STDERR, 5))
            if match[group]
        ]
        if any(begin > spot for _, begin in lines):
            raise ValueError("a line begins behind the place")
        return cls(spot, tuple(lines))


class LogCursor:
    """Reads one attempt on from a place. Pass it every page that begins at `next`, in order."""

    def __init__(self, place: LogPlace, *, raw: bool) -> None:
        lines = () if place.lines is None else place.lines
        self._given = place
        self._filters = {} if raw else {kind: LineFilter(in_text=(kind, _IN_TEXT) in lines) for kind in _LETTERS}
        # Of a stream whose last line is held back: the time and the spot where that begins.
        self._held: dict[LogKind, tuple[int, Spot]] = {}
        self._begins: dict[LogKind, Spot] = {kind: begin for kind, begin in lines if begin != _IN_TEXT}
        self.learns = not raw and place.lines is None and place.spot != (0, 0)
        """A raw view returned everything before the place: its pages are read again first, to know where lines begin.

        They have no records.
        """
        self.next: Spot = (0, 0) if self.learns else min([place.spot, *self._begins.values()])

    @property
    def place(self) -> LogPlace:
        """What was returned up to now."""
        if self.next < self._given.spot:
            return self._given
        if not self._filters:
            return LogPlace(self.next)
        lines = []
        for kind, stream in self._filters.items():
            if kind in self._held:
                lines.append((kind, self._held[kind][1]))
            elif stream.in_text:
                lines.append((kind, _IN_TEXT))
        return LogPlace(self.next, tuple(lines))

    def returned(self, piece: LogPiece) -> bool:
        """Whether all of it was returned before this cursor began."""
        return (piece.offset, piece.skip + len(piece.data)) <= self._given.spot

    def take(self, page: LogPage) -> list[LogRecord]:
        """The records of a page."""
        if self.learns:
            self._learn(page)
            return []
        records: list[LogRecord] = []
        for piece in page.pieces:
            _, rest = _cut(piece, self._begins.get(piece.kind, self._given.spot))
            if rest.data:
                records += self._records(rest)
        self.next = page.offset, page.skip
        return records

    def finish(self) -> list[LogRecord]:
        """The lines that are held back, after the last page: they have no end."""
        records = []
        for kind, stream in self._filters.items():
            for segment in stream.finish():
                records.append(LogRecord(self._held[kind][0], kind, segment.data))
        self._held.clear()
        return records

    def _learn(self, page: LogPage) -> None:
        for piece in page.pieces:
            before, _ = _cut(piece, self._given.spot)
            if before.data and before.kind in self._filters:
                self._filters[before.kind].feed(before.data)
        reached = page.offset, page.skip
        if self.next < reached < self._given.spot:
            self.next = reached
            return
        # The beginning of a line that is held back was returned, so the rest of it follows.
        for stream in self._filters.values():
            stream.settle()
        self.next, self.learns = self._given.spot, False

    def _records(self, piece: LogPiece) -> Iterator[LogRecord]:
        stream = self._filters.get(piece.kind)
        if stream is None:
            yield _system(piece) if piece.kind is LogKind.SYSTEM else LogRecord(piece.at, piece.kind, piece.data)
            return
        held = self._held.pop(piece.kind, None)
        for segment in stream.feed(piece.data):
            at = piece.at if held is None else held[0]
            held = None
            yield from _record(at, piece.kind, segment)
        if stream.held:
            began = piece.skip + len(piece.data) - len(stream.held)
            self._held[piece.kind] = held or (piece.at, (piece.offset, began))


def shows(record: LogRecord, kinds: frozenset[LogKind], level: LogLevel | None) -> bool:
    """Whether a reader of these streams wants the record. `level` is the lowest that it wants."""
    if record.kind not in kinds:
        return False
    return level is None or (record.level or LEVELS[record.kind]) >= level


def after_lines(records: Sequence[LogRecord], lines: int) -> tuple[list[LogRecord], int]:
    """The records without their first lines, and how many lines of later records are still to be left out."""
    for number, record in enumerate(records):
        found = record.data.count(b"\n")
        if found < lines:
            lines -= found
            continue
        start = 0
        for _ in range(lines):
            start = record.data.index(b"\n", start) + 1
        rest = record._replace(data=record.data[start:])
        return [*([rest] if rest.data else []), *records[number + 1 :]], 0
    return [], lines


def _record(at: int, kind: LogKind, segment: Segment) -> Iterator[LogRecord]:
    match segment.line:
        case None:
            yield LogRecord(at, kind, segment.data)
        case LogMessage(level, message):
            yield LogRecord(at, kind, shown(segment), level, message)
        case Progress():
            return


def _system(piece: LogPiece) -> LogRecord:
    message = piece.data.decode(errors="replace").rstrip()
    return LogRecord(piece.at, piece.kind, piece.data, LEVELS[piece.kind], message)


def _cut(piece: LogPiece, spot: Spot) -> tuple[LogPiece, LogPiece]:
    """The parts of a piece before and after the spot."""
    if piece.offset != spot[0]:
        none = piece._replace(data=b"")
        return (piece, none) if piece.offset < spot[0] else (none, piece)
    size = min(max(spot[1] - piece.skip, 0), len(piece.data))
    after = piece._replace(data=piece.data[size:], skip=piece.skip + size)
    return piece._replace(data=piece.data[:size]), after


def _spot(text: str) -> Spot:
    offset, _, skip = text.partition("+")
    return int(offset), int(skip or 0)


def _spot_text(spot: Spot) -> str:
    return f"{spot[0]}+{spot[1]}" if spot[1] else str(spot[0])
