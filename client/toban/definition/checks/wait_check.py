"""Checks what a step with `job_type: wait` waits for."""

from __future__ import annotations

from typing import Any

from toban.definition.checks.event_check import read_event_types
from toban.definition.checks.step_layers import StepDraft
from toban.definition.checks.template_check import TemplateCheck
from toban.definition.expressions.template_names import TemplateNames, ValueKind
from toban.definition.model.event_triggers import DEFAULT_SETTLE, DEFINITION_CHANGED
from toban.definition.model.wait_spec import Wait
from toban.definition.scalars.values import describe
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields
from toban.definition.schema.step_schema import WaitInput
from toban.definition.source.problem_collector import Reporter
from toban.definition.source.yaml_source import Node

_AWAITED = ("for", "until", "event", "file")
_BELONGS_TO = {"condition": "event", "settle": "file"}
_FORMS = "{for: 10m}, {until: '09:30'}, {event: order.paid} or {file: data.csv}"


def read_wait(found: FieldAt, report: Reporter) -> Wait | None:
    """None after reporting what is wrong."""
    node = found.value
    if node.wrong:
        return None
    if node.kind != "map":
        report.at(node, found.path, f"expected a mapping such as {_FORMS}, found {describe(node.plain())}")
        return None
    fields = read_fields(
        node,
        found.path,
        report,
        known={name.removesuffix("_"): field for name, field in WaitInput.model_fields.items()},
        aliases={},
        unsupported=frozenset(),
    )
    given = [name for name in _AWAITED if name in fields]
    for name in given[1:]:
        at = fields[name]
        message = f'a step waits for one thing, and "{given[0]}" is given already: remove "{name}", or use two steps'
        report.at(at.key, at.path, message)
    for name, needed in _BELONGS_TO.items():
        if name in fields and needed not in fields:
            at = fields[name]
            report.at(at.key, at.path, f'"{name}" belongs to "{needed}": add "{needed}", or remove it')
    if not node.entries:
        report.at(node, found.path, f"it does not say what to wait for: write {_FORMS}")
    model = {("for_" if name == "for" else name): field for name, field in fields.items()}
    values = check_fields(WaitInput, model, report, skip=frozenset({"event"}))
    condition = values.get("condition", "").strip()
    events: tuple[str, ...] = ()
    if "event" in fields:
        events = read_event_types(fields["event"], condition, report)
        if DEFINITION_CHANGED in events:
            at = fields["event"]
            message = f"no step can wait for {DEFINITION_CHANGED}: start a workflow by it, with on"
            report.at(at.value, at.path, message)
    return Wait(
        duration=values.get("for_"),
        until=values.get("until", ""),
        events=events,
        condition=condition,
        file=values.get("file", ""),
        settle=values.get("settle", DEFAULT_SETTLE),
    )


def check_wait_templates(draft: StepDraft, report: Reporter, names: TemplateNames, barred: dict[str, Any]) -> None:
    """Names and types in the templates and in the condition, in which `event` is the event that is awaited."""
    found = draft.fields.get("wait")
    if found is None or "wait" not in draft.values or found.value.kind != "map":
        return
    reports = draft.reports(found, report)
    check = TemplateCheck(reports, names.without(barred))

    def entry(name: str) -> tuple[Node, str] | None:
        node = found.value.entries.get(name)
        return None if node is None else (node.value, f"{found.path}.{name}")

    for name in ("for", "until", "file"):
        if (at := entry(name)) is not None:
            check.value(*at)
    if draft.values["wait"].condition and (at := entry("condition")) is not None:
        check.bare(*at, ValueKind.BOOL)
