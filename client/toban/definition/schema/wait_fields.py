"""Field types of what a step waits for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from toban.definition.scalars.durations import parse_duration
from toban.definition.scalars.values import checked_text
from toban.definition.schema.field_types import DURATION_SCHEMA
from toban.definition.timing.wait_time import parse_wait_time


def _duration(value: Any) -> float | str:
    return value if isinstance(value, str) and "{{" in value else parse_duration(value)


def _time(value: str) -> str:
    if "{{" not in value:
        parse_wait_time(value)
    return value.strip()


def _path(value: str) -> str:
    if not value.strip():
        raise ValueError("expected a path, found an empty string")
    return checked_text(value)


WaitDuration = Annotated[
    float | str,
    BeforeValidator(_duration),
    WithJsonSchema({"anyOf": [DURATION_SCHEMA, {"type": "string", "pattern": "{{"}]}),
]
WaitTime = Annotated[
    str,
    AfterValidator(_time),
    WithJsonSchema({"type": "string", "examples": ["09:30", "2026-12-01T09:30:00+09:00", "{{ params.at }}"]}),
]
AwaitedPath = Annotated[
    str,
    AfterValidator(_path),
    WithJsonSchema({"type": "string", "examples": ["incoming/data.csv", "{{ run.dir }}/done"]}),
]
