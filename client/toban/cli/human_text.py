"""Text for people: times, enum values, and untrusted text cut and escaped. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from toban.quantity_text import duration_text
from toban.safe_text import escaped, escaped_line

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper as EnumType
    from google.protobuf.timestamp_pb2 import Timestamp


LONGEST: Final = 5000
"""Characters of one text that are shown: somewhat more than an error message has."""

_WORD: Final = re.compile(r"[A-Z][a-z]*")

_ABBREVIATION: Final = re.compile(r"[A-Za-z]{2,5}")

_NO_WIDTH: Final = frozenset({"Mn", "Me", "Cf"})

_COLOUR: Final = re.compile(r"\x1b\[[0-9;:]*m")


def moment(at: Timestamp | None) -> datetime | None:
    """An aware UTC time; None for an absent or empty one."""
    if at is None or (at.seconds == 0 and at.nanos == 0):
        return None
    return at.ToDatetime(tzinfo=UTC)


def local(at: datetime) -> datetime:
    """The time in the local time zone. A time at the end of the calendar stays in UTC."""
    with suppress(OverflowError):
        return at.astimezone()
    return at


def zone_name(at: datetime) -> str:
    """The abbreviation of the time's zone, such as `JST`; its offset, such as `+09:00`, if it has none."""
    name = at.tzname() or ""
    return name if _ABBREVIATION.fullmatch(name) else at.isoformat()[-6:]


def clock(at: Timestamp | None, *, absent: str = "-") -> str:
    """Date and time in the local time zone, with the zone."""
    when = moment(at)
    return absent if when is None else zoned(when)


def zoned(at: datetime) -> str:
    """Date and time in the local time zone, with the zone."""
    at = local(at)
    return f"{at:%Y-%m-%d %H:%M:%S} {zone_name(at)}"


def stamp(at: datetime) -> str:
    """Date and time in the local time zone, to the millisecond, with the zone."""
    at = local(at)
    return f"{at.isoformat(sep=' ', timespec='milliseconds')[:23]} {zone_name(at)}"


def span(started: Timestamp | None, finished: Timestamp | None, now: datetime) -> str:
    """The time from start to finish, or until now."""
    begin = moment(started)
    if begin is None:
        return "-"
    return duration_text((moment(finished) or now) - begin)


def took(value: Duration) -> str:
    """A duration message as text."""
    return duration_text(value.ToTimedelta())


def enum_word(kind: EnumType[Any], number: int) -> str:
    """`EVENT_STATE_CUT` of `EventState` as `cut`; the number of a value that this client does not know."""
    known = kind.DESCRIPTOR.values_by_number
    if number not in known:
        return str(number)
    prefix = "_".join(_WORD.findall(kind.DESCRIPTOR.name)).upper()
    return known[number].name.removeprefix(f"{prefix}_").lower().replace("_", " ")


def one_line(text: str) -> str:
    """Untrusted text, escaped and cut for one line."""
    return cut(escaped_line(text[: 2 * LONGEST]).strip(), len(text) - len(text[: 2 * LONGEST]))


def cut(text: str, left_out: int = 0, most: int = LONGEST) -> str:
    """The text, or its beginning and the number of missing characters, `left_out` of which are missing already."""
    left_out += max(len(text) - most, 0)
    return f"{text[:most]}… ({left_out:,} more characters)" if left_out else text


def indented(text: str) -> str:
    """Like `one_line`, with leading spaces."""
    return " " * (len(text) - len(text.lstrip(" "))) + one_line(text)


def plain(text: str) -> str:
    """One line of output without colors, other control characters escaped, tabs expanded."""
    return escaped(_COLOUR.sub("", text).replace("\t", "        "))


def last_state(line: str) -> str:
    """The visible part of a line that overwrites itself, as progress bars do."""
    return line.rstrip("\r").rpartition("\r")[2]


def width(text: str) -> int:
    """The width in columns: wide characters take two, combining and invisible ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(char) in _NO_WIDTH else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def labels_text(labels: Mapping[str, str]) -> str:
    """All labels in one line, sorted."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
