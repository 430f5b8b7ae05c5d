"""Field types of event triggers: event types and watched paths."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from toban.definition.model.event_triggers import LONGEST_TYPE, check_event_type
from toban.definition.scalars.values import checked_text

MOST_TRIGGERS = 100
MOST_TYPES = 100
MOST_WATCHED = 20
_PATTERN_MARKS = "*?["


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
