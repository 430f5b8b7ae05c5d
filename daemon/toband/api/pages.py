"""Pages: a size within bounds, and an opaque token that says what the last page ended with."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from toban.limits import MAX_MESSAGE_BYTES, MAX_NOTE_CHARS, MIB
from toband.api.request_errors import InvalidFieldError

MOST = 1000
PORTION = 50
"""Rows of a list that are read together: what is in memory for one call does not grow with its page."""
ROOM = MAX_MESSAGE_BYTES - MIB
"""For the parts of one answer; the rest is for what stands around them."""
LIST_ROOM = MIB
"""For a page of a list, of which many may be on their way at once."""
_NUMBER = re.compile("[0-9]{1,18}")

Row = TypeVar("Row")
Part = TypeVar("Part", bound=Message)


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


@dataclass(frozen=True, slots=True)
class Page(Generic[Row, Part]):
    """`last` is the row of its last part, if `more` of them follow."""

    parts: list[Part]
    last: Row | None

    def token(self, key: Callable[[Row], object]) -> str:
        return token(str(key(self.last))) if self.last is not None else ""


async def filled(
    limit: int,
    read: Callable[[Row | None, int], Awaitable[Sequence[Row]]],
    make: Callable[[Row], Awaitable[Part]],
) -> Page[Row, Part]:
    """A page of at most `limit` parts, and of no more than fit. `read` gives so many rows behind a row."""
    parts: list[Part] = []
    size, last = 0, None
    while len(parts) < limit:
        count = min(PORTION, limit - len(parts))
        rows = await read(last, count + 1)
        for row in rows[:count]:
            part = await make(row)
            size += part.ByteSize()
            if size > LIST_ROOM and parts:
                return Page(parts, last)
            parts.append(part)
            last = row
        if len(rows) <= count:
            return Page(parts, None)
    return Page(parts, last)


def token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def last(given: str, field: str = "page_token") -> str:
    """What `token` was made of. Raises InvalidFieldError."""
    if len(given) > MAX_NOTE_CHARS:
        raise InvalidFieldError(field, "it is not one that a list gave")
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
