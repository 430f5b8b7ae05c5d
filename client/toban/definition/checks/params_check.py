"""Checks the parameters that a workflow declares."""

from __future__ import annotations

from typing import Any

from toban.definition.checks.run_params import coerce, shown_choices
from toban.definition.model.workflow import Param, ParamType
from toban.definition.scalars.values import describe
from toban.definition.schema.definition_schema import ParamInput
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields
from toban.definition.schema.field_types import check_param_name
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Entry, Node


def read_params(found: FieldAt | None, report: Reporter) -> dict[str, Param | None]:
    """Parameters by name; None for an invalid one."""
    if found is None:
        return {}
    if found.value.kind != "map":
        message = f"expected a mapping of parameters, found {describe(found.value.plain())}"
        report.at(found.value, found.path, message)
        return {}
    return {
        name: _read_param(name, entry, join(found.path, name), report) for name, entry in found.value.entries.items()
    }


def _read_param(name: str, entry: Entry, path: str, report: Reporter) -> Param | None:
    node = entry.value
    try:
        check_param_name(name)
    except ValueError as error:
        report.at(entry.key, path, str(error))
        return None
    if node.wrong:
        return None
    if node.kind != "map":
        found = describe(node.plain())
        message = f"expected a mapping such as {{type: string}}, found {found}"
        report.at(node, path, message)
        return None
    fields = read_fields(node, path, report, known=ParamInput.model_fields, aliases={}, unsupported=frozenset())
    values = check_fields(ParamInput, fields, report, skip=frozenset({"default"}))
    if "type" in fields and "type" not in values:
        return None
    kind: ParamType = values.get("type", ParamType.STRING)
    choices = _typed_list(kind, fields, values, report)
    default = _default(kind, choices, fields, report)
    required = values.get("required", False)
    secret = values.get("secret", False)
    if secret:
        _check_secret(kind, node, path, fields, report)
    if required and "default" in fields:
        message = "a required parameter cannot have a default: remove one of the two"
        report.at(fields["default"].key, fields["default"].path, message)
    return Param(
        name=name,
        type=kind,
        default=default,
        has_default="default" in fields,
        required=required,
        choices=choices,
        description=values.get("description", ""),
        secret=secret,
    )


def _check_secret(kind: ParamType, node: Node, path: str, fields: dict[str, FieldAt], report: Reporter) -> None:
    if kind is not ParamType.STRING:
        report.at(node, path, f"a secret parameter is a string, found type: {kind.value}")
    for name in ("default", "choices"):
        if name in fields:
            message = f"a secret parameter has no {name}, which all viewers could read: remove it, or use a secret"
            report.at(fields[name].key, fields[name].path, message)


def _typed_list(
    kind: ParamType, fields: dict[str, FieldAt], values: dict[str, Any], report: Reporter
) -> tuple[Any, ...]:
    typed = []
    for index, choice in enumerate(values.get("choices", ())):
        try:
            typed.append(coerce(kind, choice))
        except ValueError as error:
            node = fields["choices"].value.items[index]
            report.at(node, join(fields["choices"].path, index), str(error))
    return tuple(typed)


def _default(kind: ParamType, choices: tuple[Any, ...], fields: dict[str, FieldAt], report: Reporter) -> Any:
    found = fields.get("default")
    if found is None or (value := found.value.plain()) is None:
        return None
    try:
        value = coerce(kind, value)
        if choices and value not in choices:
            raise ValueError(f"expected one of {shown_choices(choices)}, found {describe(value)}")
    except ValueError as error:
        report.at(found.value, found.path, str(error))
    return value
