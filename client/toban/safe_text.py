"""Escapes for untrusted text, so that it can be sent in messages and shown on terminals.

Standard library only: the SDK, the command line and the daemon share it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HALVES: Final = re.compile("[\ud800-\udfff]")

# C0, DEL and C1; marks, embeddings, overrides and isolates of text direction; line and paragraph separators.
CONTROLS: Final = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROLS: Final = re.compile(f"[{CONTROLS}]")
_BLANKS: Final = re.compile("[\t\n\v\f\r]")


def whole(text: str) -> bool:
    """Whether the text is valid Unicode: without lone surrogates, which neither messages nor files can contain."""
    return text.isascii() or not _HALVES.search(text)


def joined(text: str) -> str:
    """The text with each surrogate pair replaced by its character; lone surrogates stay."""
    if whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def sendable(text: str) -> str:
    r"""The text with lone surrogates escaped: as `\xff` if they represent a byte that is not UTF-8."""
    return text if text.isascii() else _HALVES.sub(_byte_written_out, text)


def escaped(text: str) -> str:
    """The text with control characters and characters that change its display escaped."""
    return text if text.isprintable() else _CONTROLS.sub(written_out, text)


def safe(text: str) -> bool:
    """Whether the lines of the text can be shown without escapes."""
    return not _CONTROLS.search(text.replace("\n", ""))


def escaped_line(text: str) -> str:
    """Like `escaped`, with a space for each tab and line break."""
    return text if text.isprintable() else escaped(_BLANKS.sub(" ", text))


def json_escaped(text: str) -> str:
    """The same JSON, safe to show. Line breaks between values stay."""
    return _CONTROLS.sub(_in_json, text)


def json_text(value: Any) -> str:
    """JSON; all of it escaped if it has lone surrogates, such as those from the output of a process."""
    text = json.dumps(value, ensure_ascii=False)
    return text if whole(text) else json.dumps(value)


def written_out(found: re.Match[str]) -> str:
    """The escape for a character."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _in_json(found: re.Match[str]) -> str:
    return found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


def _byte_written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
