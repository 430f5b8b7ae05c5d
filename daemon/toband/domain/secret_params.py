"""Secret parameters of runs, as runs have them: sealed.

A sealed value is a mapping with one key, in place of the text. No secret parameter can have such a value otherwise,
because its type is string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban.definition import MASK, Workflow

_SEALED = "toban:sealed"


def sealed_value(data: str) -> dict[str, str]:
    return {_SEALED: data}


def is_sealed(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {_SEALED} and isinstance(value[_SEALED], str)


def sealed_data(value: Mapping[str, str]) -> str:
    return value[_SEALED]


def sealed_names(params: Mapping[str, Any]) -> list[str]:
    return [name for name, value in params.items() if is_sealed(value)]


def shown_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as people, steps and templates may see them: `***` for secrets."""
    return {name: MASK if is_sealed(value) else value for name, value in params.items()}


def secret_params(workflow: Workflow) -> frozenset[str]:
    return frozenset(name for name, param in workflow.params.items() if param.secret)
