"""Turns the tree of one document into a workflow, or into its problems."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toban.definition.checks.artifacts_check import check_inputs
from toban.definition.checks.env_check import check_env_values
from toban.definition.checks.event_check import read_watch
from toban.definition.checks.ids_and_titles import (
    ListedIds,
    check_key,
    check_keyed,
    check_one_title,
    sequence,
    workflow_identity,
)
from toban.definition.checks.job_documents import Jobs
from toban.definition.checks.params_check import read_params
from toban.definition.checks.schedule_check import check_blackouts
from toban.definition.checks.start_check import START_FIELDS, read_start
from toban.definition.checks.step_builder import HANDLERS, build_step
from toban.definition.checks.step_check import check_step_templates, read_defaults, read_step
from toban.definition.checks.step_layers import STEPS, Layer, StepDraft
from toban.definition.checks.template_check import TemplateCheck
from toban.definition.expressions.template_names import TemplateNames, ValueKind, param_kind, step_suggestion
from toban.definition.expressions.templates import parse_template
from toban.definition.model.grant import Grant
from toban.definition.model.lock_order import lock_conflict
from toban.definition.model.step_graph import StepGraph
from toban.definition.model.step_model import FailurePolicy
from toban.definition.model.workflow import DEFAULT_FINALLY_TIMEOUT, EDITION, Overlap, Retention, Workflow
from toban.definition.scalars.values import describe
from toban.definition.schema.definition_schema import WorkflowInput
from toban.definition.schema.field_check import FieldAt, check_fields, read_fields, written_names
from toban.definition.schema.foreign_fields import instead_of
from toban.definition.schema.step_schema import ListedStepInput, StepInput
from toban.definition.schema.unsupported_fields import (
    STEP_ALIASES,
    UNSUPPORTED_WORKFLOW_FIELDS,
    WORKFLOW_ALIASES,
)
from toban.definition.source.problem_collector import Reporter, check_about, join
from toban.definition.source.yaml_source import Node

MAX_STEPS = 10_000
MAX_DESCRIPTION = 500
_NESTED = frozenset({"params", "defaults", "watch", "steps", *HANDLERS}) | START_FIELDS
_STEPS = "a step, or a mapping or a list of steps"
_POLICIES = frozenset(FailurePolicy) | {"stop"}
_IN_ENV = "the workflow's own env may use params, run, event and secrets only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The contents of one document: its name, the jobs that it uses, and the workflow, if it is valid.

    The workflow is also None, without an error, if a job that it uses is not known. `derived` are the names of steps by
    the ids that were derived from them.
    """

    name: str = ""
    uses: frozenset[str] = frozenset()
    derived: Mapping[str, str] = field(default_factory=dict)
    workflow: Workflow | None = None


def validate(root: Node, jobs: Jobs, report: Reporter) -> Checked:
    """Checks the workflow of one document and reports its problems."""
    if root.kind != "map":
        report.at(root, "", f"expected a mapping with name and steps, found {describe(root.plain())}")
        return Checked()
    fields = read_fields(
        root,
        "",
        report,
        known=written_names(WorkflowInput),
        aliases=WORKFLOW_ALIASES,
        unsupported=UNSUPPORTED_WORKFLOW_FIELDS,
    )
    values = check_fields(WorkflowInput, fields, report, skip=_NESTED)
    name, title = workflow_identity(root, fields, values, report)
    _check_about(root, fields, {**values, "title": title}, report)
    params = read_params(fields.get("params"), report)
    given = params if _readable(fields.get("params")) else None
    scopes = fields["scopes"].value.entries if "scopes" in fields else {}
    start = read_start(fields, values, report, params=given, scopes=scopes)
    check_blackouts(fields.get("blackout"), values.get("blackout", ()), report)
    watch = read_watch(fields.get("watch"), report)
    kinds = {name: param_kind(param) if param else None for name, param in params.items()}
    secret_params = frozenset(name for name, param in params.items() if param is not None and param.secret)
    env = _check_env(fields, kinds, secret_params, report)
    found = fields.get("defaults")
    defaults = read_defaults(found.value if found else None, report)
    drafts = list(_StepReader(defaults, jobs, report, name).read(root, fields))
    _check_order(drafts, kinds, secret_params, env, report)
    _check_scopes(fields.get("scopes"), values, drafts, report)
    _check_locks(values, drafts, report)
    uses = frozenset(draft.job for draft in drafts if draft.job)
    derived = {draft.id: draft.values["name"] for draft in drafts if draft.derived and "name" in draft.values}
    if report.failed or any(draft.open for draft in drafts):
        return Checked(name=name, uses=uses, derived=derived)
    listed = {group for group in (STEPS, *HANDLERS) if group in fields and fields[group].value.kind == "seq"}
    workflow = Workflow(
        name=name,
        title=title,
        version=values.get("version", "1"),
        description=values.get("description", ""),
        labels=values.get("labels", {}),
        enabled=values.get("enabled", True),
        params={name: param for name, param in params.items() if param},
        env=values.get("env", {}),
        env_files=values.get("env_file", ()),
        timeout=values.get("timeout"),
        finally_timeout=values.get("finally_timeout", DEFAULT_FINALLY_TIMEOUT),
        concurrency=values.get("concurrency"),
        max_active_runs=values.get("max_active_runs", 1),
        overlap=values.get("overlap", Overlap.SKIP),
        priority=values.get("priority", start.priority),
        retention=Retention(**values["retention"]) if "retention" in values else None,
        context_dir=values.get("context_dir", ""),
        scopes={scope: tuple(dict.fromkeys(names)) for scope, names in values.get("scopes", {}).items()},
        schedules=start.schedules,
        timezone=values.get("timezone", ""),
        calendar=values.get("calendar", {}),
        blackout=tuple(values.get("blackout", ())),
        triggers=start.triggers,
        event_overlap=values.get("overlap", Overlap.QUEUE),
        watch=watch,
        locks=tuple(values.get("locks") or ()),
        grants=tuple(map(Grant.from_dict, values.get("grants") or ())),
        steps={draft.id: build_step(draft, listed=draft.group in listed) for draft in drafts},
        edition=EDITION,
    )
    return Checked(name=name, uses=uses, derived=derived, workflow=workflow)


def _readable(params: FieldAt | None) -> bool:
    return params is None or params.value.kind == "map"


def _check_about(root: Node, fields: dict[str, FieldAt], values: dict[str, Any], report: Reporter) -> None:
    check_about(root, "", values, report)
    if "description" not in fields:
        message = 'the workflow has no description: add "description" to say what it is for'
        report.at(root, "description", message, warning=True)
    elif len(values.get("description", "")) > MAX_DESCRIPTION:
        length = len(values["description"])
        message = f"the description has {length} characters: keep it under {MAX_DESCRIPTION}"
        report.at(fields["description"].value, "description", message, warning=True)


def _check_env(
    fields: dict[str, FieldAt], kinds: dict[str, ValueKind | None], secret_params: Collection[str], report: Reporter
) -> dict[str, bool]:
    """Checks the workflow's own environment; returns the names that steps may use, and whether each has a secret."""
    found = fields.get("env")
    if found is None or found.value.kind != "map":
        return {}
    barred = {root: f"{_IN_ENV}, not {root}" for root in ("iteration", "check")}
    names = TemplateNames(params=kinds, env=None, steps=None, secret_params=secret_params, limit=_IN_ENV)
    TemplateCheck(report, names.without(barred).with_secrets()).value(found.value, found.path)
    check_env_values(found.value, found.path, report)
    return {name: _has_secret(entry.value, names) for name, entry in found.value.entries.items()}


def _has_secret(node: Node, names: TemplateNames) -> bool:
    if node.kind != "scalar" or "{{" not in node.text:
        return False
    return any(names.is_secret(ref) for each in parse_template(node.text).expressions for ref in each.refs)


# Steps.


class _StepReader:
    """Reads the steps of one workflow."""

    def __init__(self, defaults: Layer, jobs: Jobs, report: Reporter, workflow: str) -> None:
        self._defaults = defaults
        self._jobs = jobs
        self._report = report
        self._workflow = workflow

    def read(self, root: Node, fields: Mapping[str, FieldAt]) -> Iterator[StepDraft]:
        """The steps of `steps`, then those of `finally` and of the handlers, which share one namespace."""
        if STEPS not in fields:
            self._report.at(root, STEPS, 'the workflow has no steps: add "steps"')
        seen: dict[str, StepDraft] = {}
        for group in (STEPS, *HANDLERS):
            if group not in fields:
                continue
            for draft in self._group(group, fields[group]):
                draft.group = group
                first = seen.setdefault(draft.id, draft)
                if first is draft:
                    yield draft
                elif first.group != group:
                    message = f'duplicate step "{draft.id}": {first.group} has one on line {first.node.line + 1}'
                    self._report.at(draft.node, draft.path, message)
                if len(seen) > MAX_STEPS:
                    message = f"found more than {MAX_STEPS:,} steps with those of {group}: no more are allowed"
                    self._report.at(fields[group].value, group, message)
                    return

    def _group(self, group: str, found: FieldAt) -> Iterator[StepDraft]:
        node = found.value
        if node.kind == "scalar":
            self._report.at(node, found.path, _no_steps(group, node))
            return
        count = len(node.items) + len(node.entries)
        if count == 0:
            self._report.at(node, found.path, "expected at least one step, found none")
        elif count > MAX_STEPS:
            message = f"found {count:,} steps: at most {MAX_STEPS:,} are allowed"
            self._report.at(node, found.path, message)
            return
        if group != STEPS and _is_step(node):
            yield self._single(group, node, found.path)
        else:
            yield from (self._mapped if node.kind == "map" else self._listed)(node, found.path)

    def _single(self, group: str, node: Node, path: str) -> StepDraft:
        """The only step of its group, without a list around it; its id is its name, or that of the group."""
        step_id, derived = ListedIds(self._report, default=group).of(node, path)
        draft = self._listed_step(node, path, step_id or group, derived=derived)
        draft.depends_on = list(draft.values.get("depends_on", ()))
        return draft

    def _step(self, step_id: str, place: str, node: Node, model: type[StepInput]) -> StepDraft:
        return read_step(
            model,
            step_id,
            place,
            node,
            self._defaults,
            self._jobs.find,
            self._report,
            workflow=self._workflow,
        )

    def _mapped(self, node: Node, path: str) -> Iterator[StepDraft]:
        for step_id, entry in node.entries.items():
            place = join(path, step_id)
            check_key(entry.key, place, step_id, self._report)
            if entry.value.kind != "map":
                found = describe(entry.value.plain())
                message = f"expected a mapping such as {{run: ./work.sh}}, found {found}"
                self._report.at(entry.value, place, message)
                continue
            draft = self._step(step_id, place, entry.value, StepInput)
            check_one_title(draft.fields, self._report)
            draft.title = check_keyed(step_id, place, draft.fields, draft.values, self._report)
            draft.depends_on = list(draft.values.get("depends_on", ()))
            yield draft

    def _listed(self, node: Node, path: str) -> Iterator[StepDraft]:
        ids = ListedIds(self._report)
        before: list[str] = []
        for index in sequence(node.items, path, self._report):
            item = node.items[index]
            place = join(path, index)
            if item.kind != "map":
                message = f"expected a mapping with name and run, found {describe(item.plain())}"
                self._report.at(item, place, message)
                continue
            step_id, derived = ids.of(item, place)
            place = join(path, step_id) if step_id and not derived else place
            draft = self._listed_step(item, place, step_id or place, derived=derived)
            if "depends_on" in draft.fields:
                draft.depends_on = list(draft.values.get("depends_on", ()))
            else:
                draft.depends_on = before
            before = [draft.id]
            yield draft

    def _listed_step(self, item: Node, place: str, step_id: str, *, derived: bool) -> StepDraft:
        draft = self._step(step_id, place, item, ListedStepInput)
        if "id" in draft.fields:
            check_one_title(draft.fields, self._report)
        draft.derived = derived
        draft.title = draft.values.get("title", draft.values.get("name", draft.id))
        return draft


def _is_step(node: Node) -> bool:
    """Whether it is a step, and not a mapping of steps: those are all mappings."""
    return any(
        entry.value.kind != "map" and instead_of(name, ListedStepInput.model_fields, STEP_ALIASES)
        for name, entry in node.entries.items()
    )


def _no_steps(group: str, node: Node) -> str:
    found = describe(node.plain())
    if group == STEPS:
        return f"expected a mapping or a list of steps, found {found}"
    hint = ""
    if group == "on_failure" and node.value in _POLICIES:
        hint = ": for the policy of every step, write defaults: {on_failure: …}"
    return f"expected {_STEPS}, found {found}{hint}"


# Dependencies between steps.


def _check_order(
    drafts: list[StepDraft],
    kinds: dict[str, ValueKind | None],
    secret_params: Collection[str],
    env: Mapping[str, bool],
    report: Reporter,
) -> None:
    steps = {draft.id: draft for draft in drafts}
    titles = {draft.title: draft.id for draft in drafts}
    sound = True
    for draft in drafts:
        sound &= _check_dependencies(draft, steps, titles, report)
    graph = StepGraph({draft.id: draft.depends_on for draft in drafts})
    for cycle in graph.cycles():
        sound = False
        first = steps[cycle[0]]
        at = first.fields.get("depends_on")
        message = f"dependency cycle: {' -> '.join(cycle)}"
        report.at(at.value if at else first.node, join(first.path, "depends_on"), message)
    lists = frozenset(draft.id for draft in drafts if "for_each" in draft.fields)
    late = frozenset(draft.id for draft in drafts if draft.is_finally)
    for draft in drafts:
        check_inputs(draft, steps, titles, report)
        names = TemplateNames(
            params=kinds,
            env=env.keys(),
            steps=steps,
            titles=titles,
            ancestors=_Ancestors(graph, draft.id, steps, known=sound),
            late=() if draft.is_finally else late,
            step=draft.id,
            lists=lists,
            finally_step=draft.is_finally,
            secret_params=secret_params,
            secret_env=[name for name, secret in env.items() if secret],
        )
        check_step_templates(draft, report, names)


def _check_scopes(found: FieldAt | None, values: dict[str, Any], drafts: list[StepDraft], report: Reporter) -> None:
    """Checks that a scope names steps of the workflow."""
    if found is None:
        return
    steps = {draft.id for draft in drafts if not draft.is_finally}
    late = {draft.id for draft in drafts if draft.is_finally}
    titles = {draft.title: draft.id for draft in drafts if not draft.is_finally}
    for scope, names in values.get("scopes", {}).items():
        for index, name in enumerate(names):
            if name not in steps:
                node = found.value.entries[scope].value.items[index]
                message = f'unknown step "{name}"{step_suggestion(name, steps, titles)}'
                if name in late:
                    message = f'finally steps run in every scope: remove "{name}"'
                report.at(node, join(found.path, scope, index), message)


def _check_locks(values: dict[str, Any], drafts: list[StepDraft], report: Reporter) -> None:
    """Checks the order of the locks that a step takes while its run holds others."""
    held = values.get("locks") or ()
    for draft in drafts:
        conflict = lock_conflict(held, draft.values.get("locks") or ())
        if conflict is not None:
            found = draft.fields["locks"]
            message = (
                f'the step takes lock "{conflict.wanted}" while the run holds "{conflict.held}", but locks are taken '
                f'in alphabetical order: add "{conflict.wanted}" to the locks of the workflow'
            )
            draft.reports(found, report).at(found.value, found.path, message)


class _Ancestors(Collection[str]):
    """The steps before one step, computed on demand.

    If the order itself is invalid, every other step counts, so that one mistake is reported once.
    """

    def __init__(self, graph: StepGraph, step: str, steps: dict[str, StepDraft], *, known: bool) -> None:
        self._graph = graph
        self._step = step
        self._steps = steps
        self._known = known

    def __contains__(self, name: object) -> bool:
        if name not in self._steps or name == self._step:
            return False
        if self._steps[self._step].is_finally and not self._steps[str(name)].is_finally:
            return True  # it has ended by then
        return not self._known or self._graph.comes_before(str(name), self._step)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._steps if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_dependencies(
    draft: StepDraft, steps: Mapping[str, StepDraft], titles: Mapping[str, str], report: Reporter
) -> bool:
    found = draft.fields.get("depends_on")
    if found is None:
        return True
    if "depends_on" not in draft.values:
        return False
    sound = True
    listed: set[str] = set()
    for index, name in enumerate(draft.values["depends_on"]):
        node, path = found.value.items[index], join(found.path, index)
        if name == draft.id:
            report.at(node, path, f'step "{name}" depends on itself: remove it')
            sound = False
        elif name not in steps:
            report.at(node, path, f'unknown step "{name}"{step_suggestion(name, steps, titles)}')
            sound = False
        elif steps[name].is_finally and not draft.is_finally:
            report.at(node, path, f'"{name}" runs when all steps have ended: only finally steps can depend on it')
            sound = False
        elif draft.is_finally and not steps[name].is_finally:
            report.at(node, path, f'"{name}" has ended before any finally step runs: remove it')
            sound = False
        elif name in listed:
            report.at(node, path, f'"{name}" is listed twice: remove it', warning=True)
        listed.add(name)
    return sound
