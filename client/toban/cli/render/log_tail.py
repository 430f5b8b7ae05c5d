"""The last lines of a log in bounded memory: of a long line only the beginning, the end and the length are kept."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from toban.cli.human_text import cut, last_state, plain

_SHOWN: Final = 1000
"""Characters of a line."""
# A character has at most four bytes, and color escapes take some more.
_KEPT: Final = 8 * _SHOWN
_CONTINUATION: Final = bytes(range(0x80, 0xC0))


@dataclass(slots=True)
class _Line:
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    size: int = 0
    characters: int = 0

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        self.characters += _characters(data)
        room = _KEPT - len(self.head)
        self.head += data[:room]
        self.tail += data[room:][-_KEPT:]
        del self.tail[:-_KEPT]

    def shown(self) -> str:
        if self.size == len(self.head) + len(self.tail):
            return _shown(bytes(self.head + self.tail), 0)
        if b"\r" in self.tail.rstrip(b"\r"):
            # The line overwrites itself, as progress bars do: only its last state is visible.
            return _shown(bytes(self.tail), 0)
        return _shown(bytes(self.head), self.characters - _characters(self.head))


def _characters(data: bytes | bytearray) -> int:
    """The number of characters in UTF-8 that may be cut anywhere."""
    return len(data.translate(None, _CONTINUATION))


def _shown(data: bytes, left_out: int) -> str:
    return cut(plain(last_state(data.decode("utf-8", "replace"))), left_out, _SHOWN)


class LastLines:
    """Keeps the last lines of the bytes that are fed."""

    def __init__(self, count: int) -> None:
        self._lines: deque[_Line] = deque(maxlen=count)
        self._open = False

    def feed(self, data: bytes) -> None:
        """Adds the next bytes of the log."""
        start = 0
        while start < len(data):
            if not self._open:
                self._lines.append(_Line())
                self._open = True
            end = data.find(b"\n", start)
            self._lines[-1].feed(data[start : end if end >= 0 else len(data)])
            if end < 0:
                return
            self._open = False
            start = end + 1

    def shown(self) -> list[str]:
        """The lines, escaped and cut."""
        return [line.shown() for line in self._lines]
