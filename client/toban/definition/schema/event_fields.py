"""Field types of event triggers: event types and watched paths."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from toban.definition.model.event_triggers import LONGEST_TYPE, check_event_type
from toban.definition.scalars.durations import parse_duration
from toban.definition.scalars.values import checked_text
from toban.definition.schema.field_types import DURATION_SCHEMA

MOST_TRIGGERS = 100
MOST_TYPES = 100
MOST_WATCHED = 20
MOST_STARTS = 1000
DEFAULT_WAITS = 10
"""Quiet periods that a debounced run waits at most."""
_LEAST_PACE, LONGEST_PACE = 0.1, 86400.0
_PATTERN_MARKS = "*?["
_KEY_PATTERN = r"event(\.[A-Za-z_][A-Za-z0-9_]*)+"
_KEY = re.compile(_KEY_PATTERN)


def check_watched_path(value: str) -> str:
    """A path whose changes are events; raises ValueError with its problem."""
    if not value.strip():
        raise ValueError("expected a path, found an empty string")
    if "{{" in value:
        raise ValueError("a template is not allowed here: write a fixed path")
    if any(mark in value for mark in _PATTERN_MARKS):
        raise ValueError(
            f'"{value}" is a pattern: name a directory, which is watched with all that is below it, '
            "and choose by event.payload.path in a condition"
        )
    return checked_text(value)


def _pace(value: float) -> float:
    if not _LEAST_PACE <= value <= LONGEST_PACE:
        raise ValueError("expected a duration from 100ms to 1d")
    return value


def check_event_key(value: str) -> str:
    """A field of an event, such as `event.payload.id`; raises ValueError with its problem."""
    if not _KEY.fullmatch(value):
        raise ValueError(f'expected a field of the event such as event.payload.id, found "{value}"')
    return value


PaceTime = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_pace), WithJsonSchema(DURATION_SCHEMA)]
EventKey = Annotated[
    str,
    AfterValidator(check_event_key),
    WithJsonSchema({"type": "string", "pattern": f"^{_KEY_PATTERN}$", "examples": ["event.payload.id"]}),
]
EventType = Annotated[
    str,
    AfterValidator(check_event_type),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\S+$",
            "maxLength": LONGEST_TYPE,
            "examples": ["DATA_CHANGED", "RUN_FAILED", "DEFINITION_CHANGED"],
        }
    ),
]
WatchedPath = Annotated[
    str,
    AfterValidator(check_watched_path),
    WithJsonSchema({"type": "string", "pattern": r"^[^*?\[]+$", "examples": ["/srv/incoming"]}),
]
