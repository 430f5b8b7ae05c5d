"""From Python's values to the well-known messages, refusing what would arrive changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from google.protobuf import struct_pb2, timestamp_pb2

from toban.sdk.errors import InvalidArgument, Violation

# Numbers of a Struct are doubles: a larger integer would arrive as its neighbour.
_LARGEST_INTEGER: Final = 2**53


def to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Parameters as a Struct. Raises InvalidArgument for a value that JSON does not have."""
    wrong: list[Violation] = []
    for key, value in values.items():
        _check(value, key, wrong)
    if wrong:
        raise InvalidArgument("a parameter cannot be sent", violations=wrong)
    struct = struct_pb2.Struct()
    struct.update(values)
    return struct


def to_timestamp(at: datetime) -> timestamp_pb2.Timestamp:
    """An aware time as a Timestamp. Raises InvalidArgument for a naive one."""
    if at.tzinfo is None:
        raise InvalidArgument(f"the time {at.isoformat()} has no time zone")
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromDatetime(at)
    return timestamp


def _check(value: object, path: str, wrong: list[Violation]) -> None:
    match value:
        case None | bool() | str() | float():
            pass
        case int():
            if abs(value) > _LARGEST_INTEGER:
                wrong.append(
                    Violation(
                        field=path,
                        description=f"{value} is too large to be sent exactly; send it as a string",
                    )
                )
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    wrong.append(Violation(field=path, description=f"the key {key!r} is no string"))
                _check(item, f"{path}.{key}", wrong)
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", wrong)
        case _:
            wrong.append(
                Violation(field=path, description=f"{type(value).__name__} is no JSON value")
            )
