"""Column types: how values of the domain are stored.

The hot path, which writes rows without SQLAlchemy, calls their functions directly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Dialect, String, Text
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Raw = dict[str, Any]
"""A row as the driver gets it."""
Values = Mapping[str, Any]
"""A row with the values that the types of its columns made."""

E = TypeVar("E", bound=StrEnum)


def to_micros(time: datetime) -> int:
    """Microseconds since the epoch. Raises ValueError for a time without a zone."""
    if time.tzinfo is None:
        raise ValueError(f"cannot store {time.isoformat()}: a time needs a zone")
    return (time - _EPOCH) // _MICROSECOND


def micros_or_none(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"cannot store a value of type {type(value).__name__} as JSON")


# Escapes everything beyond ASCII, so that no database refuses a character.
to_json = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
from_json = json.loads


def printable(text: str) -> str:
    """The text with U+FFFD for characters that a database refuses: NUL and unpaired surrogates."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Micros(TypeDecorator[datetime]):
    """A time as microseconds since the epoch. Reads as aware UTC; refuses naive times."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect | None) -> int | None:
        return micros_or_none(value)

    def process_result_value(self, value: Any, dialect: Dialect | None) -> datetime | None:
        return None if value is None else from_micros(value)


class JsonText(TypeDecorator[Any]):
    """JSON as text, the same in every database. None is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect | None) -> str | None:
        return None if value is None else to_json(value)

    def process_result_value(self, value: Any, dialect: Dialect | None) -> Any:
        return None if value is None else from_json(value)


class Prose(TypeDecorator[str]):
    """Text from any source, such as the output of a process."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect | None) -> str | None:
        return None if value is None else printable(value)


class Name(TypeDecorator[E], Generic[E]):
    """A member of an enum by its value."""

    impl = String
    cache_ok = True

    def __init__(self, members: type[E]) -> None:
        super().__init__()
        self.members = members

    def process_bind_param(self, value: E | None, dialect: Dialect | None) -> str | None:
        return None if value is None else value.value

    def process_result_value(self, value: Any, dialect: Dialect | None) -> E | None:
        return None if value is None else self.members(value)


# Sorted by code point everywhere, whatever the locale of the server.
Key = String().with_variant(String(collation="C"), "postgresql")
