"""The shape of a definition as pydantic models: what editors complete and what `shape` checks by.

Only the shape: what depends on other fields (references, kinds of steps, cycles) is checked elsewhere.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from toban.definition.durations import parse_duration
from toban.definition.model import FailurePolicy, JobType, OnLost, Overlap, ParamType
from toban.definition.sizes import parse_size
from toban.definition.values import describe

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_NAME = re.compile(NAME_PATTERN)
_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_ENV = "TOBAN_"
_NAME_FORM = "a letter or digit, then up to 63 letters, digits, _ or -"
_USER_PATTERN = r"[A-Za-z_][A-Za-z0-9_.@-]{0,62}\$?"
_USER_ID_PATTERN = r"0|[1-9][0-9]{0,9}"
_USER = re.compile(_USER_PATTERN)
_USER_ID = re.compile(_USER_ID_PATTERN)
_MAX_USER_ID = 2**32 - 2
# Less memory holds no program; with 100 ms per period the kernel refuses less than 0.01 cores.
_LEAST_MEMORY = 1 << 20
_LEAST_CPU, _MOST_CPU = 0.01, 10_000
_MOST_PIDS = 1 << 22  # what Linux can count


def check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f'"{value}" is not a valid name: use {_NAME_FORM}')
    return value


def check_param_name(value: str) -> str:
    if not _PARAM_NAME.fullmatch(value):
        form = "a letter or _, then up to 63 letters, digits, _ or -"
        raise ValueError(f'"{value}" is not a valid name of a parameter: use {form}')
    return value


def _check_env_name(value: str) -> str:
    if not _ENV_NAME.fullmatch(value):
        form = "letters, digits and _, not starting with a digit"
        raise ValueError(f'"{value}" is not a valid name of an environment variable: use {form}')
    if value.startswith(_RESERVED_ENV):
        raise ValueError(f'"{value}": names starting with {_RESERVED_ENV} belong to the daemon')
    return value


def _more_than_zero(value: float) -> float:
    if value <= 0:
        raise ValueError("expected more than zero: leave the field out for no limit")
    return value


def _enough_memory(value: int) -> int:
    if value < _LEAST_MEMORY:
        raise ValueError(f"expected at least 1MiB, found {value:,} bytes")
    return value


def _some_cores(value: float) -> float:
    if not _LEAST_CPU <= value <= _MOST_CPU:
        raise ValueError(f"expected a number of cores from 0.01 to 10,000, found {value}")
    return value


def _check_user(value: str) -> str:
    if "{{" in value:
        raise ValueError("a template cannot choose the user: write a fixed name")
    if _USER.fullmatch(value) or (_USER_ID.fullmatch(value) and int(value) <= _MAX_USER_ID):
        return value
    raise ValueError(f"expected the name or the number of a user, found {describe(value)}")


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("expected a text, found an empty one")
    return value


_DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$|^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"},
    ],
    "examples": ["30s", "5m", "1h30m"],
}
_SIZE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB)?$"},
    ],
    "examples": ["64KiB", "512MiB", "2GiB"],
}
_USER_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": _MAX_USER_ID},
        {"type": "string", "pattern": f"^({_USER_PATTERN}|{_USER_ID_PATTERN})$"},
    ]
}
_SCALARS = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
_FREE = WithJsonSchema({})

Name = Annotated[
    str,
    AfterValidator(check_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
]
Duration = Annotated[float, BeforeValidator(parse_duration), WithJsonSchema(_DURATION_SCHEMA)]
Timeout = Annotated[
    float,
    BeforeValidator(parse_duration),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_DURATION_SCHEMA),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    AfterValidator(_more_than_zero),
    WithJsonSchema(_SIZE_SCHEMA),
]
Memory = Annotated[
    int,
    BeforeValidator(parse_size),
    AfterValidator(_enough_memory),
    WithJsonSchema(_SIZE_SCHEMA),
]
Cores = Annotated[
    float,
    AfterValidator(_some_cores),
    WithJsonSchema({"type": "number", "minimum": _LEAST_CPU, "maximum": _MOST_CPU}),
]
User = Annotated[str, AfterValidator(_check_user), WithJsonSchema(_USER_SCHEMA)]
Text = Annotated[str, AfterValidator(_not_blank)]
# A number or a boolean in the file stands for its text, as the author wrote it.
ScalarText = Annotated[str, WithJsonSchema(_SCALARS)]
Env = dict[Annotated[str, AfterValidator(_check_env_name)], ScalarText]
Count = Annotated[int, Field(ge=1)]
# Enumerations arrive as their text, which the strict mode would refuse.
Lax = Field(strict=False)


class Shape(BaseModel):
    """Base of the models: nothing is converted silently, nothing unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class ParamInput(Shape):
    """A parameter of the workflow."""

    type: Annotated[ParamType, Lax] = ParamType.STRING
    default: Annotated[Any, _FREE] = Field(None, description="Value when the run gives none.")
    required: bool = Field(False, description="Whether every run must give it.")
    choices: Annotated[list[Any], Field(min_length=1)] | None = Field(
        None, description="The only values allowed."
    )
    description: str = ""


class ResourcesInput(Shape):
    """Limits of the step's process tree; at least one."""

    memory: Memory | None = Field(None, description="Bytes that all processes together may use.")
    cpu: Cores | None = Field(None, description="Cores that all processes together may use.")
    pids: Annotated[int, Field(ge=1, le=_MOST_PIDS)] | None = Field(
        None, description="Processes and threads at the same time."
    )
    nice: Annotated[int, Field(ge=-20, le=19)] | None = Field(
        None, description="Scheduling priority: 19 gives way to all others, -20 to none."
    )


class RetentionInput(Shape):
    """How long ended runs are kept; at least one."""

    age: Timeout | None = Field(None, description="Runs that ended longer ago may go.")
    runs: Count | None = Field(None, description="How many of the newest runs stay.")
    bytes: Size | None = Field(None, description="What runs and logs together may take.")


class DefaultsInput(Shape):
    """Fields that every step inherits."""

    description: str = Field("", description="Shown to people.")
    run: Text | None = Field(None, description="Short for job_type: shell and target.")
    job_type: Annotated[JobType, Lax] | None = Field(
        None,
        description="shell (/bin/sh -c), exec (no shell), cmd (Windows only), powershell "
        "or python (package.module:function).",
    )
    target: Text | None = Field(None, description="The script, program or function that runs.")
    args: list[Any] = Field(
        default=[],
        description="shell: $1, $2…; exec, cmd, powershell: arguments; python: positional arguments.",
    )
    kwargs: dict[str, Any] = Field(default={}, description="Keyword arguments of a python step.")
    env: Env = Field(default={}, description="Environment, on top of the workflow's.")
    workspace: Text | None = Field(None, description="Working directory.")
    timeout: Timeout | None = Field(None, description="Of one attempt.")
    kill_grace: Duration = Field(10.0, description="TERM to the whole tree, KILL after this.")
    success_codes: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)] = (
        Field(default=[0], description="Exit codes that count as success.")
    )
    on_failure: Annotated[FailurePolicy, Lax] = Field(
        FailurePolicy.ABORT, description="abort ends the run, continue goes on."
    )
    on_lost: Annotated[OnLost, Lax] = Field(
        OnLost.FAIL,
        description="When its process vanished without a result: fail, or rerun if it may be repeated.",
    )
    user: User = Field("", description="Whom it runs as; the daemon must be root for another user.")
    resources: ResourcesInput | None = Field(None, description="Limits of its processes.")


class StepInput(DefaultsInput):
    """One step of a mapping; its key is its id."""

    name: Text | None = Field(None, description="Shown to people.")
    depends_on: list[str] | None = Field(None, description="Ids of the steps that come before.")


class ListedStepInput(StepInput):
    """One step of a sequence; it follows the one before unless it has its own depends_on."""

    name: Name = Field(description="The id of the step.")


class WorkflowInput(Shape):
    """A Toban workflow."""

    name: Name = Field(description="Unique id of the workflow.")
    title: Text | None = Field(None, description="Shown to people; any text.")
    version: Annotated[Literal["1"], WithJsonSchema({"enum": ["1", 1]})] = Field(
        "1", description="Version of the format."
    )
    description: str = ""
    labels: dict[str, ScalarText] = {}
    enabled: bool = Field(True, description="Whether schedules and events may start it.")
    params: dict[Annotated[str, AfterValidator(check_param_name)], ParamInput] = {}
    env: Env = Field(default={}, description="Environment of every step.")
    timeout: Timeout | None = Field(None, description="Of the whole run, from its start.")
    concurrency: Count | None = Field(None, description="Steps of one run at the same time.")
    max_active_runs: Count = Field(1, description="Runs of this workflow at the same time.")
    overlap: Annotated[Overlap, Lax] = Field(
        Overlap.SKIP, description="What a run beyond max_active_runs meets."
    )
    priority: Annotated[int, Field(ge=-100, le=100)] = Field(
        0, description="Order among what waits: higher goes first."
    )
    retention: RetentionInput | None = Field(None, description="How long ended runs are kept.")
    defaults: DefaultsInput | None = None
    steps: (
        Annotated[dict[Name, StepInput], Field(min_length=1)]
        | Annotated[list[ListedStepInput], Field(min_length=1)]
    ) = Field(description="A mapping ordered by depends_on, or a list that runs in order.")


def json_schema() -> dict[str, Any]:
    """JSON Schema of the format, for editors."""
    schema: dict[str, Any] = _without_null(WorkflowInput.model_json_schema())
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Toban workflow"
    return schema


def _without_null(schema: Any) -> Any:
    """Optional fields may be left out, but not be null."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {
        name: _without_null(value)
        for name, value in schema.items()
        if not (name == "default" and value is None)
    }
    if {"type": "null"} in cleaned.get("anyOf", ()):
        choices = [choice for choice in cleaned.pop("anyOf") if choice != {"type": "null"}]
        cleaned |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    return cleaned
