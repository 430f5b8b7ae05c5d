"""Pages of lists: a bounded size, and an opaque token for the end of the last page."""

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
"""Rows of a list that are read at once, so that the memory of a call does not grow with its page."""
ROOM = MAX_MESSAGE_BYTES - MIB
"""Bytes for the parts of one answer; the rest of a message is for the fields around them."""
LIST_ROOM = MIB
"""Bytes of a page of a list: many pages may be in memory at once."""
_NUMBER = re.compile("[0-9]{1,18}")

Row = TypeVar("Row")
Part = TypeVar("Part", bound=Message)


def size(asked: int, default: int, field: str = "page_size") -> int:
    """Raises InvalidFieldError."""
    if asked < 0:
        raise InvalidFieldError(field, f"must be 0 or more, found {asked}")
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
    """`last` is the row of its last part; `more`: more rows follow."""

    parts: list[Part]
    last: Row | None

    def token(self, key: Callable[[Row], object]) -> str:
        return token(str(key(self.last))) if self.last is not None else ""


async def filled(
    limit: int,
    read: Callable[[Row | None, int], Awaitable[Sequence[Row]]],
    make: Callable[[Row], Awaitable[Part]],
) -> Page[Row, Part]:
    """A page of at most `limit` parts, as many as fit into it. `read` returns a number of rows after a row."""
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
    """The text in a token. Raises InvalidFieldError."""
    if len(given) > MAX_NOTE_CHARS:
        raise InvalidFieldError(field, "must be a token of this list")
    try:
        text = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    # Decoding ignores unknown characters: only a token that `token` would make is valid.
    if token(text) != given or "\0" in text:
        raise InvalidFieldError(field, "must be a token of this list")
    return text


def number(given: str, field: str = "page_token") -> int:
    """As `last`, for lists in order of a number."""
    text = last(given, field)
    if not _NUMBER.fullmatch(text):
        raise InvalidFieldError(field, "must be a token of this list")
    return int(text)
