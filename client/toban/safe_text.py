"""Texts of others: what is wrong in them, written out so that they can be sent and shown.

Nothing but the standard library: the SDK, the command line and the daemon share it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HALVES: Final = re.compile("[\ud800-\udfff]")

# C0, DEL and C1; marks, embeddings, overrides and isolates of writing direction; separators of lines and paragraphs.
CONTROLS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS: Final = re.compile(f"[{CONTROLS}]")
_BLANKS: Final = re.compile("[\t\n\v\f\r]")


def whole(text: str) -> bool:
    """Whether it is Unicode: without halves of surrogate pairs, which no message and no file can have."""
    return text.isascii() or not _HALVES.search(text)


def joined(text: str) -> str:
    """The text with each pair of surrogates as the character that it stands for; halves without the other stay."""
    if whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def sendable(text: str) -> str:
    r"""The text with halves of surrogate pairs written out: as `\xff` if they stand for a byte that is not UTF-8."""
    return text if text.isascii() else _HALVES.sub(_byte_written_out, text)


def escaped(text: str) -> str:
    """The text with all that a terminal would obey, or that would show it other than it is, written out."""
    return text if text.isprintable() else _CONTROLS.sub(written_out, text)


def safe(text: str) -> bool:
    """Whether its lines can be shown as they are."""
    return not _CONTROLS.search(text.replace("\n", ""))


def escaped_line(text: str) -> str:
    """Like `escaped`, with a space for each tab and line end."""
    return text if text.isprintable() else escaped(_BLANKS.sub(" ", text))


def json_escaped(text: str) -> str:
    """JSON that says the same, and is safe to be shown. Line ends between its values stay."""
    return _CONTROLS.sub(_in_json, text)


def json_text(value: Any) -> str:
    """JSON, all of it escaped if it has halves of surrogate pairs, such as those from the words of a process."""
    text = json.dumps(value, ensure_ascii=False)
    return text if whole(text) else json.dumps(value)


def written_out(found: re.Match[str]) -> str:
    """A character, as the escape that stands for it."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _in_json(found: re.Match[str]) -> str:
    return found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


def _byte_written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
