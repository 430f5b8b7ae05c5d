"""Types of fields: the form of each value, its error text, and its JSON Schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from toban.definition.expressions.templates import parse_template
from toban.definition.model.grant import ROLE_PREFIX, GrantRole
from toban.definition.model.step_model import RETRYABLE, ErrorClass, FailurePolicy
from toban.definition.scalars.artifact_paths import check_below, check_location, clean_path
from toban.definition.scalars.durations import parse_duration
from toban.definition.scalars.names import NAME_PATTERN, WORKFLOW_PATTERN, check_name, check_workflow_pattern
from toban.definition.scalars.sizes import parse_size
from toban.definition.scalars.values import describe
from toban.definition.scripts.shells import PATTERN as SHELL_PATTERN
from toban.definition.scripts.shells import check_shell
from toban.limits import MAX_TITLE_CHARS

_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_ENV = "TOBAN_"
_USER_PATTERN = r"[A-Za-z_][A-Za-z0-9_.@-]{0,62}\$?"
_USER_ID_PATTERN = r"0|[1-9][0-9]{0,9}"
_USER = re.compile(_USER_PATTERN)
_USER_ID = re.compile(_USER_ID_PATTERN)
_MAX_USER_ID = 2**32 - 2
# No program runs in less memory; with 100 ms per period the kernel refuses less than 0.01 cores.
_LEAST_MEMORY = 1 << 20
_LEAST_CPU, _MOST_CPU = 0.01, 10_000
MOST_PIDS = 1 << 22  # the maximum of Linux
MOST_RETRIES = 1000
MOST_ITERATIONS = 10_000
MOST_LOCKS = 32
_ITERATION = re.compile(r"iteration-[0-9]+", re.IGNORECASE)


def check_param_name(value: str) -> str:
    if not _PARAM_NAME.fullmatch(value):
        form = "a letter or _, then up to 63 letters, digits, _ or -"
        raise ValueError(f'"{value}" is not a valid name of a parameter: use {form}')
    return value


def check_item_name(value: str) -> str:
    """Of an entry of a mapping for which there are instances."""
    if not _PARAM_NAME.fullmatch(value):
        form = "a letter or _, then up to 63 letters, digits, _ or -"
        raise ValueError(f'"{value}" is not a valid name: use {form}')
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
        raise ValueError("must be greater than zero: leave the field out for no limit")
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


def _check_sandbox_path(value: str) -> str:
    if not _fixed(value).startswith("/") or ".." in value.split("/"):
        raise ValueError(f"expected an absolute path without .., found {describe(value)}")
    return value


def _fixed(value: str) -> str:
    if "{{" in value:
        raise ValueError("a template is not allowed here: write a fixed text")
    return value


def _check_approver(value: str) -> str:
    role = value.removeprefix(ROLE_PREFIX)
    if role != value and role not in set(GrantRole):
        raise ValueError(f'unknown role "{role}" (known: {", ".join(GrantRole)})')
    return value


def _check_secret_file(value: str) -> str:
    if not _FILE_NAME.fullmatch(value):
        raise ValueError(f'"{value}" is not a valid name of a file: use letters, digits, _, - and ., not first')
    return value


def _check_artifact_name(value: str) -> str:
    check_name(value)
    if value.isdigit() or _ITERATION.fullmatch(value):
        raise ValueError(f'"{value}" is not a valid name of an output: it is reserved for directories of steps')
    return value


def _check_output_path(value: str) -> str:
    """Checks the path with a plain word for each template; values are checked when they are known."""
    known = "".join(p if isinstance(p, str) else "x" for p in parse_template(value).parts)
    check_below(known)
    return clean_path(value)


def _check_input_path(value: str) -> str:
    return clean_path(check_below(_fixed(value))).rstrip("/")


def _check_watched(value: str) -> str:
    return value if value == "output" else _check_input_path(value)


def _check_context_dir(value: str) -> str:
    if ".." in re.split(r"[/\\]", _fixed(value)):
        raise ValueError('the path may not contain "..": write the real path of the directory')
    return check_location(value)


def _check_code(value: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,2}", value) or int(value) > 255:
        raise ValueError(f"expected an exit code from 1 to 255, found {describe(value)}")
    return value


def _check_retry_on(value: Any) -> ErrorClass | int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return value
    if value in set(ErrorClass) - RETRYABLE:
        raise ValueError(f"{value} is never retried: remove it")
    if value not in RETRYABLE:
        expected = " or ".join(sorted(RETRYABLE, reverse=True))
        raise ValueError(f"expected {expected}, or an exit code, found {describe(value)}")
    return ErrorClass(value)


def _policy(value: str) -> FailurePolicy:
    return FailurePolicy(value)


def _at_least_one(value: float) -> float:
    if not 1 <= value <= 1000:
        raise ValueError(f"expected a number from 1 to 1000, found {value}")
    return value


def _share(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"expected a number from 0 to 1, found {value}")
    return value


def _short(value: str) -> str:
    if len(value) > MAX_TITLE_CHARS:
        raise ValueError(f"it has {len(value):,} characters: at most {MAX_TITLE_CHARS} are allowed")
    return value


def _check_lock(value: str) -> str:
    if "{{" in value:
        raise ValueError("a template cannot name a lock: write a fixed name")
    return check_name(value)


def _no_lock_twice(value: list[str]) -> list[str]:
    for name in value:
        if value.count(name) > 1:
            raise ValueError(f'"{name}" is listed twice: remove it')
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("expected text, found an empty string")
    return value


DURATION_SCHEMA = {
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
FREE = WithJsonSchema({})
_EXPRESSION_OR_LIST = {"anyOf": [{"type": "string"}, {"type": "array"}]}
FOR_EACH_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array"},
        {"type": "object", "minProperties": 1, "additionalProperties": _EXPRESSION_OR_LIST},
    ],
}

Name = Annotated[
    str,
    AfterValidator(check_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
]
WorkflowPattern = Annotated[
    str,
    AfterValidator(check_workflow_pattern),
    WithJsonSchema({"type": "string", "pattern": f"^{WORKFLOW_PATTERN}$"}),
]
Duration = Annotated[float, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
Timeout = Annotated[
    float,
    BeforeValidator(parse_duration),
    AfterValidator(_more_than_zero),
    WithJsonSchema(DURATION_SCHEMA),
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
SandboxPath = Annotated[str, AfterValidator(_check_sandbox_path), WithJsonSchema({"type": "string", "pattern": "^/"})]
User = Annotated[str, AfterValidator(_check_user), WithJsonSchema(_USER_SCHEMA)]
Text = Annotated[str, AfterValidator(_not_blank)]
StepTitle = Annotated[
    str,
    AfterValidator(_not_blank),
    AfterValidator(_short),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_TITLE_CHARS}),
]
# A number or a boolean in the file means its text, as the author wrote it.
ScalarText = Annotated[str, WithJsonSchema(_SCALARS)]
Env = dict[Annotated[str, AfterValidator(_check_env_name)], ScalarText]
SecretFiles = dict[
    Annotated[
        str,
        AfterValidator(_check_secret_file),
        WithJsonSchema({"type": "string", "pattern": f"^{_FILE_NAME.pattern}$"}),
    ],
    str,
]
Count = Annotated[int, Field(ge=1)]
Priority = Annotated[int, Field(ge=-100, le=100)]
Labels = dict[str, ScalarText]
Lock = Annotated[str, AfterValidator(_check_lock), WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"})]
Locks = Annotated[list[Lock], Field(min_length=1, max_length=MOST_LOCKS), AfterValidator(_no_lock_twice)]
Version = Annotated[Literal["1"], WithJsonSchema({"enum": ["1", 1]})]
Fixed = Annotated[str, AfterValidator(_not_blank), AfterValidator(_fixed)]
Approver = Annotated[Fixed, AfterValidator(_check_approver)]
Shell = Annotated[
    str, AfterValidator(check_shell), WithJsonSchema({"type": "string", "pattern": f"^({SHELL_PATTERN})$"})
]
Backoff = Annotated[
    float,
    AfterValidator(_at_least_one),
    WithJsonSchema({"type": "number", "minimum": 1, "maximum": 1000}),
]
Jitter = Annotated[float, AfterValidator(_share), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
ExitCode = Annotated[int, Field(ge=0, le=255)]
RetryOn = Annotated[
    Any,
    AfterValidator(_check_retry_on),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": sorted(RETRYABLE)},
                {"type": "integer", "minimum": 0, "maximum": 255},
            ]
        }
    ),
]
ArtifactName = Annotated[
    str,
    AfterValidator(_check_artifact_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"}),
]
OutputPath = Annotated[str, AfterValidator(_check_output_path)]
InputPath = Annotated[str, AfterValidator(_check_input_path)]
Watched = Annotated[str, AfterValidator(_check_watched)]
Workspace = Annotated[str, AfterValidator(_not_blank), AfterValidator(check_location)]
ContextDir = Annotated[str, AfterValidator(_not_blank), AfterValidator(_check_context_dir)]
Condition = Annotated[
    str,
    AfterValidator(_not_blank),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "boolean"}]}),
]
# Enumerations arrive as text, which strict mode would refuse.
Lax = Field(strict=False)
ErrorClasses = dict[Annotated[str, AfterValidator(_check_code)], Annotated[ErrorClass, Lax]]
Policy = Annotated[
    FailurePolicy,
    Lax,
    WithJsonSchema({"enum": ["abort", "continue", "skip", "retry", "stop"]}),
]
Exhausted = Annotated[
    Literal["abort", "continue", "skip"],
    AfterValidator(_policy),
    WithJsonSchema({"enum": ["abort", "continue", "skip", "stop"]}),
]
LoopExhausted = Annotated[
    Literal["abort", "continue"],
    AfterValidator(_policy),
    WithJsonSchema({"enum": ["abort", "continue", "stop"]}),
]
