"""Checks the parameters of a run against the workflow's declarations."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from toban.definition.errors import ParamError
from toban.definition.expressions.template_names import suggestion
from toban.definition.model.workflow import Param, ParamType, Workflow
from toban.definition.scalars.values import MAX_INTEGER, MIN_INTEGER, checked_text, describe
from toban.limits import SizeError, check_params

_MAX_DEPTH = 64
_EXACT_IN_FLOAT = 2**53
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ARTICLES = {ParamType.INTEGER: "an integer"}


def bind_params(workflow: Workflow, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every declared parameter; raises ParamError with all problems.

    Text is parsed for types other than string. Whole floats count as integers, because numbers in a protobuf Struct are
    always floats.
    """
    problems: list[tuple[str, str]] = []
    bound: dict[str, Any] = {}
    _check_size(given)
    for name in given:
        if name not in workflow.params:
            hint = suggestion(str(name), workflow.params) or _declared(workflow)
            problems.append((str(name), f"unknown parameter{hint}"))
    for name, param in workflow.params.items():
        try:
            bound[name] = _bind(param, given)
        except ValueError as error:
            problems.append((name, str(error)))
    if problems:
        raise ParamError(problems)
    _check_size(bound)  # with the defaults
    return bound


def _check_size(params: Mapping[str, Any]) -> None:
    try:
        check_params(params)
    except SizeError as error:
        raise ParamError([("", str(error))]) from None


def _declared(workflow: Workflow) -> str:
    if not workflow.params:
        return f" ({workflow.name} takes no parameters)"
    return f" (known: {', '.join(workflow.params)})"


def _bind(param: Param, given: Mapping[str, Any]) -> Any:
    if param.name not in given:
        if param.required:
            raise ValueError(f"missing: expected {_expected(param.type)}")
        return param.default
    value = given[param.name]
    if value is not None:
        value = coerce(param.type, parse_text(param.type, value))
    return fitting(param, value)


def fitting(param: Param, value: Any) -> Any:
    """The value as the parameter's type; does not parse text. Raises ValueError with the expected and found value."""
    if value is None:
        if param.nullable:
            return None
        raise ValueError(f"expected {_expected(param.type)}, found null")
    value = coerce(param.type, value)
    if param.choices and value not in param.choices:
        raise ValueError(f"expected one of {shown_choices(param.choices)}, found {describe(value)}")
    return value


def shown_choices(choices: tuple[Any, ...]) -> str:
    return ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def parse_text(kind: ParamType, value: Any) -> Any:
    """The value of a text for a parameter that is not a string."""
    if not isinstance(value, str) or kind is ParamType.STRING:
        return value
    match kind:
        case ParamType.INTEGER:
            return int(value) if _INTEGER.fullmatch(value) else value
        case ParamType.NUMBER:
            return float(value) if _NUMBER.fullmatch(value) else value
        case ParamType.BOOLEAN:
            return {"true": True, "false": False}.get(value.lower(), value)
        case ParamType.LIST | ParamType.MAPPING:
            try:
                return json.loads(value)
            except (ValueError, RecursionError):
                return value


def coerce(kind: ParamType, value: Any) -> Any:
    """The value as its type; raises ValueError with the expected and the found value."""
    match kind:
        case ParamType.STRING:
            if isinstance(value, str):
                return checked_text(value)
        case ParamType.INTEGER:
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool):
                return _checked_integer(value)
        case ParamType.NUMBER:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return _checked_float(value)
        case ParamType.BOOLEAN:
            if isinstance(value, bool):
                return value
        case ParamType.LIST:
            if isinstance(value, (list, tuple)):
                return _plain(value, _MAX_DEPTH)
        case ParamType.MAPPING:
            if isinstance(value, Mapping):
                return _plain(value, _MAX_DEPTH)
    raise ValueError(f"expected {_expected(kind)}, found {describe(value)}")


def _expected(kind: ParamType) -> str:
    return _ARTICLES.get(kind, f"a {kind.value}")


def _checked_integer(value: int) -> int:
    if not MIN_INTEGER <= value <= MAX_INTEGER:
        raise ValueError("expected an integer of 64 bits, found one that is out of range")
    return value


def _checked_float(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("expected a finite number")
    return number


def _plain(value: Any, depth: int) -> Any:
    """Plain data with whole numbers as integers, however they were sent."""
    if depth == 0:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    match value:
        case None | bool():
            return value
        case str():
            return checked_text(value)
        case int():
            return _checked_integer(value)
        case float():
            number = _checked_float(value)
            return int(number) if number.is_integer() and abs(number) <= _EXACT_IN_FLOAT else number
        case list() | tuple():
            return [_plain(item, depth - 1) for item in value]
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise ValueError("the keys of a mapping must be strings")
            return {checked_text(key): _plain(item, depth - 1) for key, item in value.items()}
        case _:
            raise ValueError(f"expected plain data, found {describe(value)}")
