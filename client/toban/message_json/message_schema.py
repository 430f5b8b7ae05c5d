"""The JSON Schema of messages: what `message_data` writes, and what `message_reader` reads."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from toban.message_json.message_data import (
    DURATION,
    STRUCT,
    TIMESTAMP,
    TYPE_BYTES,
    TYPE_ENUM,
    enum_words,
    is_map,
    map_value,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

TEXT: Final = {"type": "string"}
FLAG: Final = {"type": "boolean"}
INTEGER: Final = {"type": "integer"}
TIME: Final = {"type": "string", "format": "date-time"}

# Of google.protobuf.descriptor.FieldDescriptor.cpp_type.
CPP_BOOL: Final = 7
CPP_TEXT: Final = 9
_NUMBER: Final = {"type": "number"}
_CPP_TYPES: Final = {1: INTEGER, 2: INTEGER, 3: INTEGER, 4: INTEGER, 5: _NUMBER, 6: _NUMBER}


def object_of(fields: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required}


def array_of(kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": kind}


@cache
def message_kinds() -> dict[str, Descriptor]:
    """Every message of the API by its name, those inside of others too."""
    from toban import v1

    modules = [each.name for each in pkgutil.iter_modules(v1.__path__) if each.name.endswith("_pb2")]
    files = [importlib.import_module(f"toban.v1.{name}").DESCRIPTOR for name in modules]
    return {kind.name: kind for file in files for kind in _all(file.message_types_by_name.values())}


def schemas_of(shape: Any, prefix: str = "#/$defs/", *, apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schemas of all messages that a schema needs, by name, except those `apart`, which are no messages.

    `prefix` is that of a reference to one of them.
    """
    needed: dict[str, dict[str, Any]] = {}
    waiting = list(references(shape))
    while waiting:
        name = waiting.pop()
        if name not in needed and name not in apart:
            needed[name] = schema_of_message(message_kinds()[name], prefix)
            waiting += references(needed[name])
    return dict(sorted(needed.items()))


def references(schema: Any) -> Iterator[str]:
    """The names of the messages that a schema refers to."""
    match schema:
        case {"$ref": str(target)}:
            yield target.rpartition("/")[2]
        case dict():
            for each in schema.values():
                yield from references(each)
        case list():
            for each in schema:
                yield from references(each)
        case _:
            return


def schema_of_message(kind: Descriptor, prefix: str = "#/$defs/") -> dict[str, Any]:
    optional = tuple(field.name for field in kind.fields if field.has_presence)
    return object_of({field.name: schema_of_field(field, prefix) for field in kind.fields}, optional=optional)


def schema_of_field(field: FieldDescriptor, prefix: str = "#/$defs/") -> dict[str, Any]:
    if is_map(field):
        return {"type": "object", "additionalProperties": _of_one(map_value(field), prefix)}
    return array_of(_of_one(field, prefix)) if field.is_repeated else _of_one(field, prefix)


def _all(kinds: Any) -> Iterator[Descriptor]:
    """Messages and those inside of them."""
    for kind in kinds:
        yield kind
        yield from _all(kind.nested_types)


def _of_one(field: FieldDescriptor, prefix: str) -> dict[str, Any]:
    if field.message_type is not None:
        match field.message_type.full_name:
            case name if name == TIMESTAMP:
                return TIME
            case name if name == DURATION:
                return _NUMBER
            case name if name == STRUCT:
                return {"type": "object"}
            case _:
                return {"$ref": f"{prefix}{field.message_type.name}"}
    if field.type == TYPE_ENUM:
        return {"enum": list(enum_words(field.enum_type).values())}
    if field.type == TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    if field.cpp_type == CPP_BOOL:
        return FLAG
    return _CPP_TYPES.get(field.cpp_type, TEXT)
