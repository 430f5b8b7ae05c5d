"""Checks `when` and `for_each`: whether a step runs, and for which items."""

from __future__ import annotations

from toban.definition.checks.step_layers import StepDraft
from toban.definition.checks.template_check import TemplateCheck
from toban.definition.expressions.evaluation import count_items, shown_count
from toban.definition.expressions.template_names import ValueKind
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt
from toban.definition.schema.field_types import check_item_name
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node
from toban.limits import MAX_ITEMS

_EXPECTED = "an expression that gives a list, a list, or a mapping of names to either"


def check_items(draft: StepDraft, report: Reporter) -> None:
    """Checks the shape of `for_each`, and the fields that need it."""
    found = draft.fields.get("for_each")
    if found is None:
        if "max_parallel" in draft.fields:
            message = '"max_parallel" applies only to steps with for_each'
            draft.refuse("max_parallel", message, report)
        return
    if "for_each" not in draft.values:
        return
    if not _has_shape(found, report):
        del draft.values["for_each"]
        return
    _check_count(found, report)


def check_condition_templates(draft: StepDraft, check: TemplateCheck) -> None:
    """Names and types in `when` and `for_each`."""
    found = draft.fields.get("when")
    if found is not None and "when" in draft.values:
        check.bare(found.value, found.path, ValueKind.BOOL)
    found = draft.fields.get("for_each")
    if found is None or "for_each" not in draft.values:
        return
    if found.value.kind != "map":
        _check_list(found.value, found.path, check)
        return
    for name, entry in found.value.entries.items():
        _check_list(entry.value, join(found.path, name), check)


def _check_list(node: Node, path: str, check: TemplateCheck) -> None:
    if node.kind == "scalar":
        check.bare(node, path, ValueKind.LIST)
    else:
        check.value(node, path)


def _has_shape(found: FieldAt, report: Reporter) -> bool:
    node, path = found.value, found.path
    if node.kind == "seq":
        return True
    if node.kind == "scalar":
        return _is_expression(node, path, _EXPECTED, report)
    if not node.entries:
        report.at(node, path, "expected at least one name with a list, found none")
        return False
    right = True
    for name, entry in node.entries.items():
        place = join(path, name)
        try:
            check_item_name(name)
        except ValueError as error:
            report.at(entry.key, place, str(error))
            right = False
        if entry.value.kind == "seq":
            continue
        expected = "a list, or an expression that gives one"
        right &= _is_expression(entry.value, place, expected, report)
    return right


def _is_expression(node: Node, path: str, expected: str, report: Reporter) -> bool:
    if node.wrong:
        return False
    if node.kind != "scalar" or not isinstance(node.value, str) or not node.text.strip():
        report.at(node, path, f"expected {expected}, found {describe(node.plain())}")
        return False
    return True


def _check_count(found: FieldAt, report: Reporter) -> None:
    """Checks the number of items that are written out."""
    node = found.value
    lists = [entry.value for entry in node.entries.values()] if node.kind == "map" else [node]
    if any(given.kind != "seq" for given in lists):
        return
    if (count := count_items(len(given.items) for given in lists)) > MAX_ITEMS:
        message = f"found {shown_count(count)} items: at most {MAX_ITEMS:,} are allowed"
        report.at(node, found.path, message)
