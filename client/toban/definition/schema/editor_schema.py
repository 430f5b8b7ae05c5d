"""JSON Schema of the format, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from toban.definition.scalars.names import NAME_PATTERN
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.definition_schema import JobInput, JobsInput, WorkflowInput
from toban.definition.schema.start_schema import ScheduleInput, TriggerInput, TriggerScheduleInput, TriggersInput
from toban.definition.schema.step_schema import DefaultsInput, ListedStepInput, StepInput
from toban.definition.schema.unsupported_fields import (
    JOB_ALIASES,
    STEP_ALIASES,
    TRIGGER_ALIASES,
    WORKFLOW_ALIASES,
)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the format, for editors."""
    models: list[tuple[type[DefinitionPart], Literal["validation"]]] = [
        (WorkflowInput, "validation"),
        (JobsInput, "validation"),
    ]
    schema: dict[str, Any] = _without_null(models_json_schema(models)[1])
    definitions = schema["$defs"]
    for model, aliases in (
        (WorkflowInput, WORKFLOW_ALIASES),
        (DefaultsInput, STEP_ALIASES),
        (StepInput, STEP_ALIASES),
        (ListedStepInput, STEP_ALIASES),
        (JobInput, JOB_ALIASES),
        (TriggerInput, TRIGGER_ALIASES),
    ):
        _add_aliases(definitions[model.__name__]["properties"], aliases)
    definitions[WorkflowInput.__name__]["anyOf"] = [
        {"required": ["id"]},
        {"required": ["name"], "properties": {"name": {"pattern": f"^{NAME_PATTERN}$"}}},
    ]
    definitions[ListedStepInput.__name__]["anyOf"] = [{"required": [name]} for name in ("id", "name", "job", "job_id")]
    when = ("cron", "every", "at", "when")
    definitions[ScheduleInput.__name__]["oneOf"] = [{"required": [name]} for name in when]
    definitions[TriggerScheduleInput.__name__]["oneOf"] = [{"required": [name]} for name in (*when, "interval")]
    definitions[TriggerInput.__name__]["oneOf"] = [{"required": [name]} for name in ("event", *TRIGGER_ALIASES)]
    both = definitions[TriggersInput.__name__]
    both["properties"] |= dict.fromkeys(TRIGGER_ALIASES, both["properties"]["event"])
    both["anyOf"] = [{"required": [name]} for name in ("schedule", "event", *TRIGGER_ALIASES)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Toban definition",
        "description": "A workflow, or a document of jobs.",
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model, _ in models],
        "$defs": definitions,
    }


def _add_aliases(properties: dict[str, Any], aliases: Mapping[str, str]) -> None:
    """Adds the old field names, which are accepted, so that editors do not complain about them."""
    for alias, name in aliases.items():
        if name in properties:
            properties[alias] = {
                **properties[name],
                "description": f"Older name of {name}.",
                "deprecated": True,
                # Shown by editors as the reason why the field is not offered.
                "deprecationMessage": f"older name of {name}",
            }


def _without_null(schema: Any) -> Any:
    """Optional fields may be omitted, but not null."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {
        name: _without_null(value) for name, value in schema.items() if not (name == "default" and value is None)
    }
    if {"type": "null"} in cleaned.get("anyOf", ()):
        choices = [choice for choice in cleaned.pop("anyOf") if choice != {"type": "null"}]
        cleaned |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    return cleaned
