"""Converts Python values to well-known protobuf messages; refuses values that would change on the way."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2

from toban.limits import SizeError, check_params
from toban.safe_text import sendable, whole
from toban.sdk.errors import InvalidArgument, Violation

# Numbers of a Struct are doubles: a larger integer would be rounded.
_LARGEST_INTEGER: Final = 2**53
_NOT_UNICODE: Final = "a text in it is not valid Unicode"


def to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Parameters as a Struct. Raises InvalidArgument for a value that is not JSON, and for too many."""
    try:
        check_params(values)
    except SizeError as error:
        raise InvalidArgument(f"cannot send the parameters: {error}") from None
    wrong: list[Violation] = []
    for key, value in values.items():
        if not whole(key):
            wrong.append(Violation(field=sendable(key), description=_NOT_UNICODE))
        _check(value, key, wrong)
    if wrong:
        raise InvalidArgument("a parameter cannot be sent", violations=wrong)
    struct = struct_pb2.Struct()
    struct.update(values)
    return struct


def to_json(value: Any, name: str) -> str:
    """A value as JSON text. Raises InvalidArgument, with its `name`, for a value that is not JSON."""
    wrong: list[Violation] = []
    text = ""
    try:
        _check(value, name, wrong, largest=None)
        if not wrong:
            # Mappings other than dicts are also allowed.
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=dict)
            text.encode()
    except RecursionError:
        wrong.append(Violation(field=name, description="it is nested too deeply"))
    except UnicodeEncodeError:
        wrong.append(Violation(field=name, description=_NOT_UNICODE))
    except ValueError:
        wrong.append(Violation(field=name, description="a number in it is not finite"))
    if wrong:
        first = wrong[0]
        raise InvalidArgument(f"cannot send the {name}: {first.field}: {first.description}", violations=wrong)
    return text


def to_duration(span: timedelta | float) -> duration_pb2.Duration:
    """Seconds, or a timedelta, as a Duration. Raises InvalidArgument for anything else."""
    made = duration_pb2.Duration()
    try:
        if not isinstance(span, timedelta):
            if not math.isfinite(span):
                raise ValueError
            span = timedelta(seconds=span)
        made.FromTimedelta(span)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{span} is not a span of time") from None
    return made


def to_timestamp(at: datetime) -> timestamp_pb2.Timestamp:
    """An aware time as a Timestamp. Raises InvalidArgument for a naive one."""
    if at.tzinfo is None:
        raise InvalidArgument(f"the time {at.isoformat()} has no time zone")
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromDatetime(at)
    return timestamp


def _check(value: object, path: str, wrong: list[Violation], largest: int | None = _LARGEST_INTEGER) -> None:
    match value:
        case None | bool() | float():
            pass
        case str():
            if not whole(value):
                wrong.append(Violation(field=sendable(path), description=_NOT_UNICODE))
        case int():
            if largest is not None and abs(value) > largest:
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
                elif not whole(key):
                    wrong.append(Violation(field=path, description=_NOT_UNICODE))
                _check(item, f"{path}.{key}", wrong, largest)
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", wrong, largest)
        case _:
            wrong.append(Violation(field=path, description=f"{type(value).__name__} is no JSON value"))
