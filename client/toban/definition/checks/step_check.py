"""Checks a single step with its inherited fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toban.definition.checks.artifacts_check import check_outputs
from toban.definition.checks.code_check import code_templates
from toban.definition.checks.condition_check import check_condition_templates, check_items
from toban.definition.checks.env_check import check_env_value, check_env_values
from toban.definition.checks.loop_check import check_loop, check_retries, read_check
from toban.definition.checks.start_check import START_FIELDS
from toban.definition.checks.step_kinds import decide_kind, without_meaning
from toban.definition.checks.step_layers import FoundJob, Layer, StepDraft, inherit
from toban.definition.checks.template_check import TemplateCheck
from toban.definition.checks.wait_check import check_wait_templates, read_wait
from toban.definition.expressions.template_names import TemplateNames
from toban.definition.model.step_model import JobType
from toban.definition.schema.definition_part import DefinitionPart
from toban.definition.schema.field_check import FieldAt, FieldOrigin, check_fields, read_fields
from toban.definition.schema.step_schema import DefaultsInput, StepInput
from toban.definition.schema.unsupported_fields import (
    NOT_IN_DEFAULTS,
    STEP_ALIASES,
    UNSUPPORTED_STEP_FIELDS,
)
from toban.definition.scripts.script_languages import LANGUAGES
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node

_READ_ELSEWHERE = frozenset({"completion_check", "wait"}) | START_FIELDS
_TEMPLATES = ("args", "kwargs", "env", "stdin", "secret_files")
_WITH_SECRETS = frozenset({"env", "stdin", "secret_files"})
_NO_ITEM = "item has a value only in steps with for_each"
_NO_LOOP = "{} has a value only in steps with a completion_check"
_BEFORE_ITEMS = "item has no value yet: when and for_each are evaluated before there are items"
_BEFORE_LOOP = "{} has no value yet: when and for_each are evaluated before the first iteration"
_NOT_IN_WORKSPACE = "the check works in the same workspace, so check cannot choose it"
_NOT_IN_CHECK = "check is what the last completion check left: only the step itself may use it"


def read_layer(
    model: type[DefinitionPart],
    node: Node,
    path: str,
    report: Reporter,
    *,
    aliases: Mapping[str, str],
    unsupported: frozenset[str],
    forbidden: frozenset[str] = frozenset(),
) -> Layer:
    """The fields of a step, a job or of `defaults` as written; `node` must be a mapping.

    `forbidden` fields were reported already. The caller checks the fields that start a job.
    """
    fields = read_fields(
        node,
        path,
        report,
        known={**model.model_fields, **dict.fromkeys(forbidden)},
        aliases=aliases,
        unsupported=unsupported,
        refused=forbidden | without_meaning(node),
    )
    fields = {name: found for name, found in fields.items() if name not in forbidden}
    values = check_fields(model, fields, report, skip=_READ_ELSEWHERE)
    if (found := fields.get("completion_check")) is not None:
        check = read_check(found, report)
        if check is not None:
            values["completion_check"] = check
    if (found := fields.get("wait")) is not None and (wait := read_wait(found, report)) is not None:
        values["wait"] = wait
    return Layer(fields, values)


def read_defaults(node: Node | None, report: Reporter) -> Layer:
    """The `defaults` of a workflow."""
    if node is None:
        return Layer()
    if node.kind != "map":
        report.at(node, "defaults", "expected a mapping of step fields")
        return Layer()
    for name, entry in node.entries.items():
        if STEP_ALIASES.get(name, name) in NOT_IN_DEFAULTS:
            message = f'"{name}" cannot be inherited: give it in each step'
            report.at(entry.key, join("defaults", name), message)
    return read_layer(
        DefaultsInput,
        node,
        "defaults",
        report,
        aliases=STEP_ALIASES,
        unsupported=UNSUPPORTED_STEP_FIELDS,
        forbidden=NOT_IN_DEFAULTS,
    ).of(FieldOrigin.DEFAULTS)


def read_step(
    model: type[StepInput],
    step_id: str,
    path: str,
    node: Node,
    defaults: Layer,
    find: Callable[[str], FoundJob],
    report: Reporter,
    *,
    workflow: str,
) -> StepDraft:
    """One step of a workflow with its inherited fields; `node` must be a mapping."""
    own = read_layer(
        model,
        node,
        path,
        report,
        aliases=STEP_ALIASES,
        unsupported=UNSUPPORTED_STEP_FIELDS,
    )
    draft = StepDraft(step_id, path, node, dict(own.fields), dict(own.values))
    if "job" in draft.fields:
        _take_job(draft, find, report)
    inherit(draft, defaults)
    settle(draft, report, choices='"run", "job"', name=workflow)
    return draft


def _take_job(draft: StepDraft, find: Callable[[str], FoundJob], report: Reporter) -> None:
    at = draft.fields["job"]
    draft.open = True
    if "job" not in draft.values:
        return
    draft.job = draft.values["job"]
    found = find(draft.job)
    if found.message:
        report.at(at.value, at.path, found.message, warning=found.warning)
    if found.layer is not None:
        draft.open = False
        inherit(draft, found.layer)


def settle(draft: StepDraft, report: Reporter, *, choices: str, name: str) -> None:
    """Checks fields of a step against each other; see `decide_kind`."""
    decide_kind(draft, report, choices=choices, name=name)
    check_retries(draft, report)
    check_loop(draft, report)
    check_items(draft, report)
    check_outputs(draft, report)


def check_step_templates(draft: StepDraft, report: Reporter, names: TemplateNames) -> None:
    """Every field of a step that may contain templates or is an expression."""
    no_item = {} if "for_each" in draft.fields else {"item": _NO_ITEM}
    no_loop = {root: _NO_LOOP.format(root) for root in ("iteration", "check")}
    if draft.has("completion_check"):
        no_loop = {}
    before = {root: _BEFORE_LOOP.format(root) for root in ("iteration", "check")}
    check_condition_templates(draft, TemplateCheck(report, names.without({"item": _BEFORE_ITEMS, **before})))
    _check_templates(draft, draft, report, names.without({**no_item, **no_loop}))
    check_wait_templates(draft, report, names, {**no_item, **no_loop})
    if (found := draft.fields.get("workspace")) is not None and "workspace" in draft.values:
        place = names.without({**no_item, "check": _NOT_IN_WORKSPACE, **no_loop})
        TemplateCheck(draft.reports(found, report), place).value(found.value, found.path)
    if draft.check is not None and "completion_check" in draft.fields:
        found = draft.fields["completion_check"]
        _check_templates(
            draft.check,
            draft,
            report,
            names.without({**no_item, "check": _NOT_IN_CHECK}),
            within=found,
        )


def _check_templates(
    draft: StepDraft,
    step: StepDraft,
    report: Reporter,
    names: TemplateNames,
    *,
    within: FieldAt | None = None,
) -> None:
    """The templates of a step, or of its completion check, which is `within` one of its fields."""

    def check(found: FieldAt, field: str = "") -> TemplateCheck:
        known = names
        if field in _WITH_SECRETS:
            known = names.with_secrets()
        elif field == "kwargs" and draft.job_type is JobType.WORKFLOW:
            # The parameters of a child: when it starts, the daemon checks that they are secret there too.
            known = names.with_secrets(("params",))
        return TemplateCheck(step.reports(within or found, report), known)

    code = code_templates(draft)
    target = draft.target_field
    if target is not None and ("run" in draft.values or "target" in draft.values):
        language = LANGUAGES.get(draft.job_type) if draft.job_type is not None else None
        if language is not None:
            check(target).script(target.value, target.path, language.read(target.value.text), code)
        elif draft.job_type is JobType.EXEC:
            check(target).text(target.value, target.path)
    for name in _TEMPLATES:
        if name in draft.fields and name in draft.values:
            found = draft.fields[name]
            if name == "args":
                check(found).arguments(found.value, found.path, code)
            else:
                check(found, name).value(found.value, found.path)
            if name == "env":
                check_env_values(found.value, found.path, step.reports(within or found, report))
    for name, found in draft.inherited:
        check(found, name).value(found.value, found.path)
        if name == "env":
            check_env_value(found.path.rpartition(".")[2], found.value, found.path, step.reports(found, report))
    outputs = draft.fields.get("outputs")
    for index, output in enumerate(draft.values.get("outputs", ())):
        if outputs is not None and "path" in output:
            node = outputs.value.items[index].entries["path"].value
            check(outputs).text(node, join(outputs.path, index, "path"))
