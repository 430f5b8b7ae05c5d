"""Holds what a command writes with -o json to the schema that `toban schema` prints for it."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from toban.cli.render.output_schema import output_schema


def check_output(verb: str, data: Any) -> None:
    Draft202012Validator(strict(output_schema(verb))).validate(data)


def strict(schema: Any) -> Any:
    """No other properties than those of the schema, which allows those of later versions."""
    match schema:
        case {"allOf": [{"$ref": _}, further]}:
            return {**schema, "allOf": [schema["allOf"][0], further], "unevaluatedProperties": False}
        case {"properties": inner}:
            closed = {name: strict(each) for name, each in inner.items()}
            return {**schema, "properties": closed, "unevaluatedProperties": False}
        case {"$defs": inner}:
            return {**{key: strict(each) for key, each in schema.items()}, "$defs": inner}
        case dict():
            return {key: strict(each) for key, each in schema.items()}
        case list():
            return [strict(each) for each in schema]
        case _:
            return schema
