"""Texts of others: what is wrong in them, written out so that they can be sent and shown.

Nothing but the standard library: the SDK, the command line and the daemon share it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HALVES: Final = re.compile("[\ud800-\udfff]")


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
    return text if text.isascii() else _HALVES.sub(_written_out, text)


def json_text(value: Any) -> str:
    """JSON, all of it escaped if it has halves of surrogate pairs, such as those from the words of a process."""
    text = json.dumps(value, ensure_ascii=False)
    return text if whole(text) else json.dumps(value)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
