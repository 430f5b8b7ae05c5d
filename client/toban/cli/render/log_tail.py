"""The last lines of a log, however long they are: of a long line its beginning and its end are kept, and its length."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from toban.cli.human_text import cut, last_state, plain

_SHOWN: Final = 1000
"""Characters of a line."""
# A character has at most four bytes, and escapes for colours take some more.
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
            # Drawn over itself, as progress bars do: the last state is all that is to be seen.
            return _shown(bytes(self.tail), 0)
        return _shown(bytes(self.head), self.characters - _characters(self.head))


def _characters(data: bytes | bytearray) -> int:
    """Of UTF-8, which may be cut anywhere."""
    return len(data.translate(None, _CONTINUATION))


def _shown(data: bytes, left_out: int) -> str:
    return cut(plain(last_state(data.decode("utf-8", "replace"))), left_out, _SHOWN)


class LastLines:
    """So many of them, of what is fed."""

    def __init__(self, count: int) -> None:
        self._lines: deque[_Line] = deque(maxlen=count)
        self._open = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the log."""
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
        """The lines as they can be shown, each cut."""
        return [line.shown() for line in self._lines]
