"""The workflow definition format: parsing with positions, validation, parameters and templates.

Pure: no module here opens a file, reads a clock or starts a process. Shared by `toban validate`, offline, and the
daemon.
"""

from __future__ import annotations

from typing import Any

from toban.definition.checks.run_params import bind_params
from toban.definition.definition_text import parse
from toban.definition.errors import CostlyError, DefinitionError, ParamError, RenderError
from toban.definition.expressions.evaluation import (
    MASK,
    NO_EVENT,
    NO_ITEM,
    Scope,
    evaluate_items,
    evaluate_when,
)
from toban.definition.expressions.event_conditions import EventView, judge_conditions
from toban.definition.expressions.wait_values import RenderedWait, judge_wait, render_wait
from toban.definition.model.event_triggers import (
    BUILT_IN,
    DAEMON_STARTED,
    DEFINITION_CHANGED,
    FILE_CHANGED,
    RUN_FAILED,
    RUN_SUCCEEDED,
    SCHEDULE_TRIGGERED,
    STEP_FAILED,
    EventTrigger,
    check_event_type,
)
from toban.definition.model.grant import AuthorLimits, Grant, GrantRole
from toban.definition.model.step_model import (
    ErrorClass,
    FailurePolicy,
    Input,
    JobType,
    OnLost,
    Output,
    Resources,
    Retry,
    Step,
    StepSandbox,
)
from toban.definition.model.wait_spec import Wait
from toban.definition.model.workflow import DefinitionKind, Overlap, Param, ParamType, Retention, Workflow
from toban.definition.scalars.artifact_paths import is_directory
from toban.definition.scalars.durations import format_duration, parse_duration
from toban.definition.scalars.sizes import format_size, parse_size
from toban.definition.scalars.values import to_text
from toban.definition.scripts.command_text import command_line, preview
from toban.definition.scripts.step_rendering import (
    Rendered,
    SecretReferences,
    check_references,
    condition_references,
    references,
    render,
    secret_references,
)
from toban.definition.source.problems import Document, Parsed, Problem
from toban.definition.timing.schedule_spec import Fold, Gap, Misfire, Schedule
from toban.definition.timing.wait_time import wait_end
from toban.limits import MAX_ITEMS

__all__ = [
    "BUILT_IN",
    "DAEMON_STARTED",
    "DEFINITION_CHANGED",
    "FILE_CHANGED",
    "MASK",
    "MAX_ITEMS",
    "NO_EVENT",
    "NO_ITEM",
    "RUN_FAILED",
    "RUN_SUCCEEDED",
    "SCHEDULE_TRIGGERED",
    "STEP_FAILED",
    "AuthorLimits",
    "CostlyError",
    "DefinitionError",
    "DefinitionKind",
    "Document",
    "ErrorClass",
    "EventTrigger",
    "EventView",
    "FailurePolicy",
    "Fold",
    "Gap",
    "Grant",
    "GrantRole",
    "Input",
    "JobType",
    "Misfire",
    "OnLost",
    "Output",
    "Overlap",
    "Param",
    "ParamError",
    "ParamType",
    "Parsed",
    "Problem",
    "RenderError",
    "Rendered",
    "RenderedWait",
    "Resources",
    "Retention",
    "Retry",
    "Schedule",
    "Scope",
    "SecretReferences",
    "Step",
    "StepSandbox",
    "Wait",
    "Workflow",
    "bind_params",
    "check_event_type",
    "check_references",
    "command_line",
    "condition_references",
    "evaluate_items",
    "evaluate_when",
    "format_duration",
    "format_size",
    "is_directory",
    "json_schema",
    "judge_conditions",
    "judge_wait",
    "parse",
    "parse_duration",
    "parse_size",
    "preview",
    "references",
    "render",
    "render_wait",
    "secret_references",
    "to_text",
    "wait_end",
]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the format, for editors."""
    from toban.definition.schema.editor_schema import json_schema as build

    return build()
