"""The workflow definition format: parsing with positions, validation, parameters and templates.

Pure: nothing here opens a file, looks at a clock or starts anything. Used by `toban validate` offline
and by the daemon alike.
"""

from __future__ import annotations

from typing import Any

from toban.definition.durations import format_duration, parse_duration
from toban.definition.errors import DefinitionError, ParamError, RenderError
from toban.definition.evaluate import Scope
from toban.definition.model import (
    FailurePolicy,
    JobType,
    OnLost,
    Overlap,
    Param,
    ParamType,
    Resources,
    Retention,
    Step,
    Workflow,
)
from toban.definition.params import bind_params
from toban.definition.parsing import parse
from toban.definition.problems import Document, Parsed, Problem
from toban.definition.render import Rendered, command_line, references, render
from toban.definition.sizes import format_size, parse_size

__all__ = [
    "DefinitionError",
    "Document",
    "FailurePolicy",
    "JobType",
    "OnLost",
    "Overlap",
    "Param",
    "ParamError",
    "ParamType",
    "Parsed",
    "Problem",
    "RenderError",
    "Rendered",
    "Resources",
    "Retention",
    "Scope",
    "Step",
    "Workflow",
    "bind_params",
    "command_line",
    "format_duration",
    "format_size",
    "json_schema",
    "parse",
    "parse_duration",
    "parse_size",
    "references",
    "render",
]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the format, for editors."""
    from toban.definition.schema import json_schema as build

    return build()
