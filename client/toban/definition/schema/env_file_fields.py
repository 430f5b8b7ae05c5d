"""Field type of `env_file`: one file or several, each a path or a mapping."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from toban.definition.model.step_model import EnvFile
from toban.definition.scalars.values import checked_text, describe

MOST_ENV_FILES = 20
_FORMS = "write a path, {path: PATH, optional: true}, or a list of these"
_PATH_SCHEMA = {"type": "string", "minLength": 1, "examples": [".env"]}
_FILE_SCHEMA = {
    "anyOf": [
        _PATH_SCHEMA,
        {
            "type": "object",
            "properties": {"path": _PATH_SCHEMA, "optional": {"type": "boolean"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    ]
}


def _env_files(value: Any) -> tuple[EnvFile, ...]:
    """Raises ValueError with its problem."""
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise ValueError(f"expected at least one file: {_FORMS}")
    if len(entries) > MOST_ENV_FILES:
        raise ValueError(f"found {len(entries)} files: at most {MOST_ENV_FILES} are allowed")
    return tuple(map(_env_file, entries))


def _env_file(value: Any) -> EnvFile:
    if isinstance(value, str):
        return EnvFile(path=_path(value))
    if not isinstance(value, dict):
        raise ValueError(f"expected a path, found {describe(value)}: {_FORMS}")
    for name in value:
        if name not in ("path", "optional"):
            raise ValueError(f'unknown field "{name}": {_FORMS}')
    path, optional = value.get("path"), value.get("optional", False)
    if not isinstance(path, str):
        raise ValueError(f"a file of env_file has no path: {_FORMS}")
    if not isinstance(optional, bool):
        raise ValueError(f"expected optional to be true or false, found {describe(optional)}")
    return EnvFile(path=_path(path), optional=optional)


def _path(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a path, found an empty string")
    if "{{" in text:
        raise ValueError("a template is not allowed here: write a fixed path")
    return checked_text(text)


EnvFiles = Annotated[
    tuple[EnvFile, ...],
    BeforeValidator(_env_files),
    WithJsonSchema({"anyOf": [*_FILE_SCHEMA["anyOf"], {"type": "array", "items": _FILE_SCHEMA, "minItems": 1}]}),
]
