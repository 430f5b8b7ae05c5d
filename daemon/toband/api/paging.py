"""Pages: a size within bounds, and an opaque token that says what the last page ended with."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from google.protobuf.message import Message

from toband.api.errors import InvalidFieldError

MOST = 1000
ROOM = 3 * 1024 * 1024
"""For the parts of one answer: clients take 4 MiB unless they were told otherwise."""
_NUMBER = re.compile("[0-9]{1,18}")


def size(asked: int, default: int, field: str = "page_size") -> int:
    """Raises InvalidFieldError."""
    if asked < 0:
        raise InvalidFieldError(field, f"found {asked}, expected 0 or more")
    return min(asked or default, MOST)


def fitting(parts: Sequence[Message], room: int = ROOM) -> int:
    """How many of them, from the first on, fit into one answer; one does in any case."""
    size = 0
    for count, part in enumerate(parts):
        size += part.ByteSize()
        if size > room and count:
            return count
    return len(parts)


def token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def last(given: str, field: str = "page_token") -> str:
    """What `token` was made of. Raises InvalidFieldError."""
    try:
        text = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    # Decoding passes over what it does not know: only what `token` would have made is taken.
    if token(text) != given or "\0" in text:
        raise InvalidFieldError(field, "it is not one that a list gave")
    return text


def number(given: str, field: str = "page_token") -> int:
    """As `last`, for lists that are ordered by number."""
    text = last(given, field)
    if not _NUMBER.fullmatch(text):
        raise InvalidFieldError(field, "it is not one that this list gave")
    return int(text)
