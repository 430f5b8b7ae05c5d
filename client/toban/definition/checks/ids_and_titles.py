"""Ids and titles of workflows and steps, `id`, `name` and `title`, and the order of listed steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban.definition.scalars.derived_ids import derive_id
from toban.definition.scalars.names import valid_name
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt
from toban.definition.schema.unsupported_fields import STEP_ALIASES
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node

_STEP = "step"
_WORKFLOW = "workflow"


def workflow_identity(
    root: Node, fields: Mapping[str, FieldAt], values: Mapping[str, Any], report: Reporter
) -> tuple[str, str]:
    """The id and the title; the id is empty after reporting that there is none."""
    name, title = values.get("name", ""), values.get("title", "")
    if "id" in fields:
        check_one_title(fields, report)
        own = values.get("id", "")
        return own, title or name or own
    if "name" not in fields:
        report.at(root, "name", 'the workflow has no name: add "name"')
    elif name and not valid_name(name):
        at = fields["name"]
        derived = derive_id(name, _WORKFLOW)
        message = f'{describe(name)} is not a valid id: add an id, such as "id: {derived}", and the name is the title'
        report.at(at.value, at.path, message)
        name = ""
    return name, title or name


def check_keyed(key: str, path: str, fields: Mapping[str, FieldAt], values: Mapping[str, Any], report: Reporter) -> str:
    """The title of a step or job whose id is its `key`."""
    if "id" in values and values["id"] != key:
        at = fields["id"]
        message = f'the id is the key, "{key}": remove "id", or write {values["id"]} as the key'
        report.at(at.key, join(path, "id"), message)
    title: str = values.get("title", values.get("name", key))
    return title


def check_key(key: Node, path: str, step_id: str, report: Reporter) -> None:
    """Reports a key of a mapping of steps that is no id."""
    if not valid_name(step_id):
        example = derive_id(step_id, _STEP)
        message = (
            f"{describe(step_id)} is not a valid id: write an id as the key, such as {example}, and this as the name"
        )
        report.at(key, path, message)


def check_one_title(fields: Mapping[str, FieldAt], report: Reporter) -> None:
    """Where the name is not the id, it is the title."""
    if "name" in fields and "title" in fields:
        at = fields["title"]
        report.at(at.key, at.path, 'the title is given twice, as "name" and as "title": keep one')


class ListedIds:
    """Finds the ids of listed steps, one after another: `id`, `name`, an id derived from `name`, or that of the job."""

    def __init__(self, report: Reporter, *, default: str = "") -> None:
        """`default` is the id of a step that has none of these."""
        self._report = report
        self._default = default
        self._lines: dict[str, int] = {}

    def of(self, item: Node, place: str) -> tuple[str, bool]:
        """The id, and whether it was derived; the id is empty after reporting that there is none."""
        field = next((name for name in ("id", "name") if name in item.entries), "")
        if not field:
            field = next((name for name in item.entries if STEP_ALIASES.get(name, name) == "job"), "")
        if not field and self._default:
            return self._default, False
        if not field:
            self._report.at(item, place, 'a step in a list needs a "name", which is its id')
            return "", False
        at, where = item.entries[field].value, join(place, field)
        text = at.plain()
        if not isinstance(text, str) or not text.strip():
            return "", False  # reported with the other fields
        if field != "name" and not valid_name(text):
            return "", False
        derived = not valid_name(text)
        step_id = derive_id(text, _STEP) if derived else text
        if step_id in self._lines:
            self._duplicate(at, where, field, text, step_id)
            return "", False
        self._lines[step_id] = at.line + 1
        return step_id, derived

    def _duplicate(self, at: Node, where: str, field: str, text: str, step_id: str) -> None:
        line = self._lines[step_id]
        if text != step_id:
            message = f'the name gives the id "{step_id}", which is already defined on line {line}: add another "id"'
        else:
            message = f'duplicate step "{step_id}": already defined on line {line}'
            if field not in ("id", "name"):
                message += ': give this one a "name"'
        self._report.at(at, where, message)


def sequence(items: list[Node], path: str, report: Reporter) -> list[int]:
    """The indices of listed steps in the order in which they run: by `step_order`, if they have it."""
    orders = [_order(item) for item in items]
    given = [order for order in orders if order is not None]
    if not given:
        return list(range(len(items)))
    first: dict[int, int] = {}
    for index, (item, order) in enumerate(zip(items, orders, strict=True)):
        if order is None:
            if item.kind == "map" and "step_order" not in item.entries:
                message = 'the step has no "step_order", but others have: give it to every step, or to none'
                report.at(item, join(path, index), message)
        elif order in first:
            at = item.entries["step_order"].value
            line = items[first[order]].entries["step_order"].value.line + 1
            message = f"step_order {order} is already given on line {line}: give each step another number"
            report.at(at, join(path, index, "step_order"), message)
        else:
            first[order] = index
    if len(given) < len(items):
        return list(range(len(items)))
    return sorted(range(len(items)), key=lambda index: orders[index] or 0)


def _order(item: Node) -> int | None:
    entry = item.entries.get("step_order") if item.kind == "map" else None
    value = entry.value.plain() if entry is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
