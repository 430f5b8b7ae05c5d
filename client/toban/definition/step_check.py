"""Checks one step by itself and merges the workflow's defaults into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toban.definition.cmd_text import check_text
from toban.definition.expressions import parse_template
from toban.definition.languages import LANGUAGES
from toban.definition.model import (
    DEFAULT_KILL_GRACE,
    FailurePolicy,
    JobType,
    OnLost,
    Resources,
    Step,
)
from toban.definition.reporting import Reporter, join
from toban.definition.schema import DefaultsInput, StepInput
from toban.definition.shape import FieldAt, check_fields, read_fields
from toban.definition.supported import (
    NOT_IN_DEFAULTS,
    STEP_ALIASES,
    UNSUPPORTED_KIND_FIELDS,
    UNSUPPORTED_STEP_FIELDS,
)
from toban.definition.template_check import TemplateCheck
from toban.definition.yaml_source import Node

_PYTHON_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_WHAT_RUNS = ("run", "job_type", "target")


@dataclass(slots=True)
class StepDraft:
    """A step on its way from the file to the model."""

    id: str
    path: str
    node: Node
    fields: dict[str, FieldAt]
    values: dict[str, Any]
    depends_on: list[str] = field(default_factory=list)
    job_type: JobType | None = None
    inherited: list[FieldAt] = field(default_factory=list)  # entries merged into own mappings

    @property
    def target_field(self) -> FieldAt | None:
        return self.fields.get("run") or self.fields.get("target")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What every step inherits."""

    fields: Mapping[str, FieldAt]
    values: Mapping[str, Any]


def read_defaults(node: Node | None, report: Reporter) -> Defaults:
    """The `defaults` of a workflow."""
    if node is None:
        return Defaults({}, {})
    if node.kind != "map":
        report.at(node, "defaults", "expected a mapping of step fields")
        return Defaults({}, {})
    for name in sorted(NOT_IN_DEFAULTS & node.entries.keys()):
        message = f'"{name}" cannot be inherited: give it in each step'
        report.at(node.entries[name].key, join("defaults", name), message)
    fields = read_fields(
        node,
        "defaults",
        report,
        known={**DefaultsInput.model_fields, **dict.fromkeys(NOT_IN_DEFAULTS)},
        aliases=STEP_ALIASES,
        unsupported=UNSUPPORTED_STEP_FIELDS,
    )
    fields = {name: found for name, found in fields.items() if name not in NOT_IN_DEFAULTS}
    return Defaults(fields, check_fields(DefaultsInput, fields, report, skip=frozenset()))


def read_step(
    step_id: str, path: str, node: Node, defaults: Defaults, report: Reporter
) -> StepDraft:
    """One step with its defaults; `node` must be a mapping."""
    fields = read_fields(
        node,
        path,
        report,
        known=StepInput.model_fields,
        aliases=STEP_ALIASES,
        unsupported=UNSUPPORTED_STEP_FIELDS,
    )
    values = check_fields(StepInput, fields, report, skip=frozenset())
    draft = StepDraft(step_id, path, node, fields, values)
    _inherit(draft, defaults)
    _decide_kind(draft, report)
    return draft


def _inherit(draft: StepDraft, defaults: Defaults) -> None:
    own = set(draft.fields)
    if "run" in own:
        hidden = set(_WHAT_RUNS)
    elif own & set(_WHAT_RUNS):
        hidden = {"run"}
    else:
        hidden = set()
    for name, found in defaults.fields.items():
        if name in hidden or name not in defaults.values:
            continue
        inherited = defaults.values[name]
        if name not in own:
            draft.fields[name] = found
            draft.values[name] = inherited
        elif name in ("env", "kwargs") and name in draft.values:
            draft.inherited += [
                FieldAt(entry.key, entry.value, join(found.path, key))
                for key, entry in found.value.entries.items()
                if key in inherited and key not in draft.values[name]
            ]
            draft.values[name] = {**inherited, **draft.values[name]}
        elif name == "resources" and name in draft.values:
            draft.values[name] = {**inherited, **draft.values[name]}


def _decide_kind(draft: StepDraft, report: Reporter) -> None:
    fields, values = draft.fields, draft.values
    if "run" in fields:
        for name in ("target", "job_type"):
            if name in fields and values.get(name) is not JobType.SHELL:
                message = f'"run" is short for job_type: shell and target: remove "{name}"'
                report.at(fields[name].key, fields[name].path, message)
        draft.job_type = JobType.SHELL
    elif "job_type" in fields:
        draft.job_type = values.get("job_type")
        if "target" not in fields:
            message = 'the step has no target: add "target", or use "run"'
            report.at(fields["job_type"].key, draft.path, message)
    elif not any(STEP_ALIASES.get(n, n) in UNSUPPORTED_KIND_FIELDS for n in draft.node.entries):
        message = 'cannot tell what runs: give "run", or "job_type" and "target"'
        report.at(draft.node, draft.path, message)
    if draft.job_type is JobType.CMD:
        _check_cmd_arguments(draft, report)
    if draft.job_type is JobType.PYTHON:
        _check_python_target(draft, report)
    elif draft.job_type is not None and "kwargs" in fields:
        if fields["kwargs"].path.startswith(draft.path):
            message = f"only python steps have kwargs: use args for job_type {draft.job_type}"
            report.at(fields["kwargs"].key, fields["kwargs"].path, message)
        else:
            del fields["kwargs"]
            values.pop("kwargs", None)


def _check_cmd_arguments(draft: StepDraft, report: Reporter) -> None:
    """What the author wrote; values are looked at when they are known."""
    found = draft.fields.get("args")
    if found is None or "args" not in draft.values:
        return
    for index, node in enumerate(found.value.items):
        path = join(found.path, index)
        if node.kind != "scalar":
            message = "a list or a mapping cannot be an argument of cmd: its JSON has quotes"
            report.at(node, path, message)
            continue
        try:
            for part in parse_template(node.text).parts:
                if isinstance(part, str):
                    check_text(part)
        except ValueError as error:
            report.at(node, path, str(error))


def _check_python_target(draft: StepDraft, report: Reporter) -> None:
    found = draft.fields.get("target")
    target = draft.values.get("target")
    if found is None or target is None or _PYTHON_TARGET.fullmatch(target):
        return
    if "{{" in target:
        message = "a template cannot choose the function that runs: write package.module:function"
    else:
        message = f'expected package.module:function, found "{target}"'
    report.at(found.value, found.path, message)


def check_step_templates(draft: StepDraft, check: TemplateCheck) -> None:
    """Every field of a step that may hold templates."""
    target = draft.target_field
    if target is not None and ("run" in draft.values or "target" in draft.values):
        language = LANGUAGES.get(draft.job_type) if draft.job_type is not None else None
        if language is not None:
            check.script(target.value, target.path, language.read(target.value.text))
        elif draft.job_type is JobType.EXEC:
            check.text(target.value, target.path)
    for name in ("args", "kwargs", "env", "workspace"):
        if name in draft.fields and name in draft.values:
            check.value(draft.fields[name].value, draft.fields[name].path)
    for inherited in draft.inherited:
        check.value(inherited.value, inherited.path)


def build_step(draft: StepDraft) -> Step:
    """The step of the model; only for a document without errors."""
    values = draft.values
    assert draft.job_type is not None
    return Step(
        id=draft.id,
        name=values.get("name", draft.id),
        description=values.get("description", ""),
        job_type=draft.job_type,
        target=values["run"] if "run" in values else values["target"],
        args=tuple(values.get("args", ())),
        kwargs=values.get("kwargs", {}),
        env=values.get("env", {}),
        workspace=values.get("workspace"),
        depends_on=tuple(dict.fromkeys(draft.depends_on)),
        timeout=values.get("timeout"),
        kill_grace=values.get("kill_grace", DEFAULT_KILL_GRACE),
        success_codes=frozenset(values.get("success_codes", (0,))),
        on_failure=values.get("on_failure", FailurePolicy.ABORT),
        on_lost=values.get("on_lost", OnLost.FAIL),
        user=values.get("user", ""),
        resources=Resources(**values["resources"]) if "resources" in values else None,
    )
