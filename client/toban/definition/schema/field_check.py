"""Checks one mapping of a definition field by field, so that one invalid field hides no other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from toban.definition.expressions.template_names import suggestion
from toban.definition.scalars.values import describe
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.definition_schema import WorkflowInput
from toban.definition.schema.foreign_fields import beside_steps, instead_of
from toban.definition.schema.unsupported_fields import UNSUPPORTED_VALUES, UNSUPPORTED_WORKFLOW_FIELDS, VALUE_ALIASES
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node

_TEXT_FIELDS = frozenset({"version", "user", "when", "condition"})
_TEXT_MAPPINGS = frozenset({"env", "labels"})
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
}


_WORKFLOW_FIELDS = frozenset(
    info.alias or name
    for name, info in WorkflowInput.model_fields.items()
    if name not in {*UNSUPPORTED_WORKFLOW_FIELDS, "steps"}
)


class FieldOrigin(Enum):
    """Where a field of a step was given."""

    OWN = auto()
    JOB = auto()
    DEFAULTS = auto()


@dataclass(frozen=True, slots=True)
class FieldAt:
    """One field as written: its key, its value, and its path for messages."""

    key: Node
    value: Node
    path: str
    origin: FieldOrigin = FieldOrigin.OWN


def read_fields(
    node: Node,
    path: str,
    report: Reporter,
    *,
    known: Mapping[str, Any],
    aliases: Mapping[str, str],
    unsupported: frozenset[str],
    refused: Collection[str] = (),
) -> dict[str, FieldAt]:
    """The known fields by their real names; reports the unknown and the unsupported ones.

    `refused` are known fields that the caller reports; like the unsupported ones, none of them is suggested.
    """
    fields: dict[str, FieldAt] = {}
    spelt: dict[str, str] = {}
    for written, entry in node.entries.items():
        name = aliases.get(written, written)
        place = join(path, written)
        if name in unsupported:
            report.at(entry.key, place, f'the field "{written}" is not supported yet: remove it')
        elif name not in known:
            _report_unknown(entry.key, place, written, _allowed(known, unsupported, refused), aliases, report)
        elif name in fields:
            message = f'"{name}" is given twice, as "{spelt[name]}" and as "{written}": keep one'
            report.at(entry.key, place, message)
        else:
            fields[name] = FieldAt(entry.key, entry.value, place)
            spelt[name] = written
    return fields


def _allowed(known: Mapping[str, Any], unsupported: frozenset[str], refused: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in known if name not in unsupported and name not in refused)


def _report_unknown(
    key: Node, path: str, written: str, allowed: tuple[str, ...], aliases: Mapping[str, str], report: Reporter
) -> None:
    hint = instead_of(written, allowed, aliases)
    if not hint and "depends_on" in allowed:
        hint = beside_steps(written, _WORKFLOW_FIELDS)
    if not hint:
        hint = suggestion(written, [*allowed, *(alias for alias, name in aliases.items() if name in allowed)])
    if hint:
        report.at(key, path, f'unknown field "{written}"{hint}')
    else:
        report.at(key, path, f'unknown field "{written}": remove it', known=allowed)


def check_fields(
    model: type[DefinitionPart], fields: Mapping[str, FieldAt], report: Reporter, *, skip: frozenset[str]
) -> dict[str, Any]:
    """The values of the valid fields; reports the others."""
    return {
        name: value
        for name, field in fields.items()
        if name not in skip and (value := check_field(model, name, field, report)) is not None
    }


def check_field(model: type[DefinitionPart], name: str, field: FieldAt, report: Reporter) -> Any:
    """The value of one field, or None after reporting its problem.

    Only invalid entries are removed from a mapping.
    """
    if field.value.wrong:
        return None
    if field.value.kind == "scalar" and field.value.value is None and field.value.style == "":
        report.at(field.key, field.path, "the field has no value: give it one or remove it")
        return None
    if (nested := _nested(model, name)) is not None:
        check = _check_entries if nested.many else _check_nested
        return check(nested.model, field, report)
    adapter = _adapter(model, name)
    data = _data(name, field.value)
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
    for problem in wrong:
        _report(name, field, problem, report)
    if not isinstance(data, dict) or not all(problem["loc"] for problem in wrong):
        return None
    bad = {problem["loc"][0] for problem in wrong}
    return adapter.validate_python({key: value for key, value in data.items() if key not in bad})


def _check_nested(model: type[DefinitionPart], field: FieldAt, report: Reporter) -> dict[str, Any] | None:
    """The valid fields of a mapping that has a model and needs at least one field."""
    node, known = field.value, model.model_fields
    if node.kind != "map":
        message = f"expected a mapping with {', '.join(known)}, found {describe(node.plain())}"
        report.at(node, field.path, message)
        return None
    if not node.entries:
        report.at(node, field.path, f"expected at least one of {', '.join(known)}, found none")
        return None
    fields = read_fields(node, field.path, report, known=known, aliases={}, unsupported=frozenset())
    return check_fields(model, fields, report, skip=frozenset())


def _check_entries(model: type[DefinitionPart], field: FieldAt, report: Reporter) -> list[Any] | None:
    """The entries of a list of mappings, each with its valid fields; an entry that is no mapping is empty."""
    node = field.value
    if node.kind != "seq":
        report.at(node, field.path, f"expected a list of mappings, found {describe(node.plain())}")
        return None
    return [_check_entry(model, item, join(field.path, index), report) for index, item in enumerate(node.items)]


def _check_entry(model: type[DefinitionPart], node: Node, path: str, report: Reporter) -> dict[str, Any]:
    known = written_names(model)
    if node.wrong:
        return {}
    if node.kind != "map":
        message = f"expected a mapping with {', '.join(known)}, found {describe(node.plain())}"
        report.at(node, path, message)
        return {}
    found = read_fields(node, path, report, known=known, aliases={}, unsupported=frozenset())
    for written, name in known.items():
        if model.model_fields[name].is_required() and written not in found:
            report.at(node, path, f'the entry has no {written}: add "{written}"')
    fields = {known[written]: at for written, at in found.items()}
    return check_fields(model, fields, report, skip=frozenset())


def written_names(model: type[DefinitionPart]) -> dict[str, str]:
    """The fields of a model as they are written in a file, with their names in the model."""
    return {info.alias or name: name for name, info in model.model_fields.items()}


@dataclass(frozen=True, slots=True)
class _Nested:
    """The model of a field whose value is a mapping, or a list of mappings."""

    model: type[DefinitionPart]
    many: bool


@lru_cache(maxsize=128)
def _nested(model: type[DefinitionPart], name: str) -> _Nested | None:
    annotation = model.model_fields[name].annotation
    for choice in get_args(annotation):
        if isinstance(choice, type) and issubclass(choice, DefinitionPart):
            return _Nested(choice, get_origin(annotation) is list)
    return None


def _data(name: str, node: Node) -> Any:
    if name in _TEXT_FIELDS and node.kind == "scalar":
        return node.text
    if name in _TEXT_MAPPINGS and node.kind == "map":
        return {key: _as_written(entry.value) for key, entry in node.entries.items()}
    value = node.plain()
    if name in VALUE_ALIASES and isinstance(value, str):
        return VALUE_ALIASES[name].get(value, value)
    return value


def _as_written(node: Node) -> Any:
    """`1.10` and `true` as the author wrote them, not as parsed values."""
    return node.text if node.kind == "scalar" and node.value is not None else node.plain()


@lru_cache(maxsize=128)
def _adapter(model: type[DefinitionPart], name: str) -> TypeAdapter[Any]:
    info = model.model_fields[name]
    annotation: Any = info.annotation
    for extra in info.metadata:
        annotation = Annotated[annotation, extra]
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def _report(name: str, field: FieldAt, problem: Any, report: Reporter) -> None:
    loc = [part for part in problem["loc"] if part != "[key]"]
    node, path, depth = field.value, field.path, 0
    for depth, part in enumerate(loc, start=1):
        if isinstance(part, int) and node.kind == "seq":
            node = node.items[part]
        elif node.kind == "map" and part in node.entries:
            entry = node.entries[part]
            is_key = problem["loc"][-1] == "[key]" and depth == len(loc)
            node = entry.key if is_key else entry.value
        else:
            break
        path = join(path, part)
    report.at(node, path, message_of(name, problem))


def message_of(name: str, problem: Any) -> str:
    """The found and the expected value, for one error of pydantic."""
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    found = describe(value)
    if kind == "value_error":
        return str(context["error"])
    if kind in ("enum", "literal_error"):
        return _choice(name, value, str(context["expected"]).replace("'", ""))
    if kind in _EXPECTED:
        hint = ""
        if kind == "string_type":
            if value is None:
                hint = ': write "" for an empty text'
            elif isinstance(value, (bool, int, float)):
                hint = (
                    ": remove it if a database made it, or put it in quotes" if name == "id" else ": put it in quotes"
                )
        elif kind == "list_type" and isinstance(value, str):
            hint = f": write [{value}]"
        return f"expected {_EXPECTED[kind]}, found {found}{hint}"
    if kind == "greater_than_equal":
        return f"expected at least {context['ge']}, found {found}"
    if kind == "less_than_equal":
        return f"expected at most {context['le']}, found {found}"
    if kind == "too_short":
        return "expected at least one entry, found none"
    return f"{problem['msg']}, found {found}"


def _choice(name: str, value: Any, expected: str) -> str:
    if isinstance(value, str) and value in UNSUPPORTED_VALUES.get(name, ()):
        return f'{name} "{value}" is not supported yet: expected {expected}'
    hint = ""
    if isinstance(value, str):
        hint = suggestion(value, expected.replace(" or ", ", ").split(", "))
    return f"expected {expected}, found {describe(value)}{hint}"
