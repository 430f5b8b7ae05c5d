"""The output of steps on a terminal: colors pass, every other control sequence is escaped.

A step could otherwise set the title of the terminal, move the cursor over the lines of other steps, or make the
terminal type something.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from toban.cli.human_text import last_state
from toban.safe_text import CONTROLS, written_out

# SGR sequences, which select colors and weights. Longer ones than any program writes are escaped.
_SGR: Final = r"\x1b\[(?P<colors>[0-9;:]{0,64})m"
_FOUND: Final = re.compile(rf"{_SGR}|(?P<end>\r*\n)|(?P<again>\r+(?!\n))|(?![\t])[{CONTROLS}]")
# What may continue in the next chunk.
_UNFINISHED: Final = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,64})?|\r+)\Z")
_OFF: Final = re.compile(r"[0;:]*\Z")

_RESET: Final = "\x1b[0m"
# A line that begins again, as progress bars do: it may only replace itself.
_BEGIN_AGAIN: Final = "\r\x1b[K"


class TerminalText:
    """Takes the pieces of several streams as they come; `key` names the stream. Colors end with their line."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._colored = False
        self._key: object = None
        self._decoders: dict[object, codecs.IncrementalDecoder] = {}
        # By stream: the beginning of a sequence.
        self._rests: dict[object, str] = {}

    def feed(self, data: bytes, key: object = None) -> bytes:
        """What to write now."""
        decoder = self._decoders.get(key)
        if decoder is None:
            decoder = self._decoders[key] = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        text = self._rests.pop(key, "") + decoder.decode(data)
        if unfinished := _UNFINISHED.search(text):
            self._rests[key] = unfinished[0]
            text = text[: unfinished.start()]
        before = self._end_colors() if key != self._key else ""
        self._key = key
        return (before + _FOUND.sub(self._shown, text)).encode()

    def finish(self) -> bytes:
        """The rest, and the end of all colors."""
        rests = "".join(rest.replace("\r", "") for rest in self._rests.values())
        rests += "".join(decoder.decode(b"", True) for decoder in self._decoders.values())
        self._rests.clear()
        return (_FOUND.sub(self._shown, rests) + self._end_colors()).encode()

    def _shown(self, found: re.Match[str]) -> str:
        if found["colors"] is not None:
            if self._color:
                self._colored = not _OFF.match(found["colors"])
            return found[0] if self._color else ""
        if found["end"]:
            return f"{self._end_colors()}\n"
        return _BEGIN_AGAIN if found["again"] else written_out(found)

    def _end_colors(self) -> str:
        colored, self._colored = self._colored, False
        return _RESET if colored else ""


def terminal_line(data: bytes, *, color: bool) -> bytes:
    """A whole line without its end. Of a line that overwrites itself only the last state is shown."""
    shown = TerminalText(color=color)
    line = last_state(data.decode("utf-8", "backslashreplace"))
    return shown.feed(line.encode()) + shown.finish()
