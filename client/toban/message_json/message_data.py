"""Messages of the API as plain data, for JSON and YAML.

The rule, which `message_schema` writes as a JSON Schema and `message_reader` reads: fields have the names and the order
of the proto. A value of an enum is its word (`RUN_STATE_SUCCEEDED` of RunState is `succeeded`), or null if it is
unspecified. Times are RFC 3339 in UTC, durations numbers of seconds, integers numbers. A message, or an `optional`
field, that is not set is left out.
"""

from __future__ import annotations

import base64
import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
STRUCT: Final = "google.protobuf.Struct"

# Of google.protobuf.descriptor.FieldDescriptor, which is slow to load.
TYPE_BYTES: Final = 12
TYPE_ENUM: Final = 14

_WORD: Final = re.compile(r"[A-Z][a-z]*")


def to_dict(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    return {
        field.name: _value(cast("FieldDescriptor", field), getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


@cache
def enum_words(kind: EnumDescriptor) -> dict[int, str | None]:
    """The word of each number; None for the value 0 if it means that there is none."""
    prefix = f"{'_'.join(_WORD.findall(kind.name)).upper()}_"
    words = {number: value.name.removeprefix(prefix).lower() for number, value in kind.values_by_number.items()}
    return {number: None if word == "unspecified" else word for number, word in words.items()}


def is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def map_value(field: FieldDescriptor) -> FieldDescriptor:
    """The field for the values of a map."""
    assert field.message_type is not None
    return field.message_type.fields_by_name["value"]


def _value(field: FieldDescriptor, value: Any) -> Any:
    if is_map(field):
        inner = map_value(field)
        return {str(key): _one(inner, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_one(field, each) for each in value]
    return _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    kind = field.message_type
    if kind is not None:
        match kind.full_name:
            case name if name == TIMESTAMP:
                return value.ToJsonString()
            case name if name == DURATION:
                return number(value.seconds + value.nanos / 1e9) if value.nanos else value.seconds
            case name if name == STRUCT:
                return _struct(value)
            case _:
                return to_dict(value)
    if field.type == TYPE_ENUM:
        # A daemon may be newer than this client: what it does not know stays a number.
        return enum_words(field.enum_type).get(value, value)
    if field.type == TYPE_BYTES:
        return base64.b64encode(value).decode()
    return number(value) if isinstance(value, float) else value


def number(value: float) -> float | int | None:
    """Whole numbers as integers; JSON has no infinity."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _struct(value: Any) -> dict[str, Any]:
    return {key: _any(value.fields[key]) for key in sorted(value.fields)}


def _any(value: Any) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return [_any(each) for each in value.list_value.values]
        case "number_value":
            return number(value.number_value)
        case "null_value" | None:
            return None
        case kind:
            return getattr(value, kind)
