"""The parameters of a workflow, from the signature of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints


class SecretMark:
    """Marks the type of a secret parameter."""


Secret = Annotated[str, SecretMark()]
"""The type of a parameter whose values are secret: `def login(password: Secret) -> None`."""

# `bool` before `int`, of which it is a subclass.
_TYPES: Final[Mapping[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "list",
    Sequence: "list",
    dict: "mapping",
    Mapping: "mapping",
}
_KNOWN: Final = "str, int, float, bool, list, dict or a Literal"


def workflow_params(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The `params` of the definition. Raises TypeError."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(f"cannot read the types of the parameters: {error}") from None
    params: dict[str, dict[str, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError(f"a workflow cannot have the parameter *{name}: name each of its parameters")
        made = _type(name, hints.get(name, str))
        if parameter.default is inspect.Parameter.empty:
            made["required"] = True
        elif parameter.default is not None:
            made["default"] = parameter.default
        params[name] = made
    return params


def _type(name: str, hint: Any) -> dict[str, Any]:
    """The type of a parameter, with its description from `Annotated[int, "how many"]`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        description = next((each for each in args[1:] if isinstance(each, str)), "")
        secret = {"secret": True} if any(isinstance(each, SecretMark) for each in args[1:]) else {}
        return _type(name, args[0]) | secret | ({"description": description} if description else {})
    if origin in (Union, UnionType):
        others = [each for each in args if each is not NoneType]
        if len(others) == 1:
            return _type(name, others[0])
    elif origin is Literal:
        kinds = {type(each) for each in args}
        if len(kinds) == 1 and (known := _TYPES.get(kinds.pop())):
            return {"type": known, "choices": list(args)}
    elif known := _TYPES.get(origin or hint):
        return {"type": known}
    raise TypeError(f"the parameter {name} has the type {inspect.formatannotation(hint)}: expected {_KNOWN}")
