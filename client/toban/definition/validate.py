"""From the tree of one document to a workflow, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from toban.definition.graph import Graph
from toban.definition.model import Overlap, Param, ParamType, Retention, Workflow
from toban.definition.names import Kind, Names, param_kind, suggestion
from toban.definition.params import coerce, shown_choices
from toban.definition.reporting import Reporter, join
from toban.definition.schema import ParamInput, WorkflowInput, check_name, check_param_name
from toban.definition.shape import FieldAt, check_fields, read_fields
from toban.definition.step_check import (
    Defaults,
    StepDraft,
    build_step,
    check_step_templates,
    read_defaults,
    read_step,
)
from toban.definition.supported import UNSUPPORTED_WORKFLOW_FIELDS, WORKFLOW_ALIASES
from toban.definition.template_check import TemplateCheck
from toban.definition.values import describe
from toban.definition.yaml_source import Entry, Node

MAX_STEPS = 10_000
MAX_DESCRIPTION = 500
_NESTED = frozenset({"params", "defaults", "steps"})


def validate(root: Node, report: Reporter) -> Workflow | None:
    """The workflow of one document, or None after reporting errors."""
    if root.kind != "map":
        report.at(
            root, "", f"expected a mapping with name and steps, found {describe(root.plain())}"
        )
        return None
    fields = read_fields(
        root,
        "",
        report,
        known=WorkflowInput.model_fields,
        aliases=WORKFLOW_ALIASES,
        unsupported=UNSUPPORTED_WORKFLOW_FIELDS,
    )
    values = check_fields(WorkflowInput, fields, report, skip=_NESTED)
    _check_identity(root, fields, values, report)
    params = _read_params(fields.get("params"), report)
    kinds = {name: param_kind(param) if param else None for name, param in params.items()}
    env_names = _check_env(fields, kinds, report)
    found = fields.get("defaults")
    defaults = read_defaults(found.value if found else None, report)
    drafts = _read_steps(root, fields.get("steps"), defaults, report)
    _check_order(drafts, kinds, env_names, report)
    if report.failed:
        return None
    return Workflow(
        name=values["name"],
        title=values.get("title", values["name"]),
        version=values.get("version", "1"),
        description=values.get("description", ""),
        labels=values.get("labels", {}),
        enabled=values.get("enabled", True),
        params={name: param for name, param in params.items() if param},
        env=values.get("env", {}),
        timeout=values.get("timeout"),
        concurrency=values.get("concurrency"),
        max_active_runs=values.get("max_active_runs", 1),
        overlap=values.get("overlap", Overlap.SKIP),
        priority=values.get("priority", 0),
        retention=Retention(**values["retention"]) if "retention" in values else None,
        steps={draft.id: build_step(draft) for draft in drafts},
    )


def _check_identity(
    root: Node, fields: dict[str, FieldAt], values: dict[str, Any], report: Reporter
) -> None:
    if "jobs" in root.entries:
        return  # a file of jobs is refused as a whole
    if "name" not in fields:
        report.at(root, "name", 'the workflow has no name: add "name"')
    if "description" not in fields:
        message = 'the workflow has no description: add "description" to say what it is for'
        report.at(root, "description", message, warning=True)
    elif len(values.get("description", "")) > MAX_DESCRIPTION:
        length = len(values["description"])
        message = f"the description has {length} characters: keep it under {MAX_DESCRIPTION}"
        report.at(fields["description"].value, "description", message, warning=True)


def _check_env(
    fields: dict[str, FieldAt], kinds: dict[str, Kind | None], report: Reporter
) -> Collection[str]:
    """Check the workflow's own environment; returns the names that steps may use."""
    found = fields.get("env")
    if found is None or found.value.kind != "map":
        return ()
    names = Names(params=kinds, env=None, steps=None, ancestors=())
    TemplateCheck(report, names).value(found.value, found.path)
    return found.value.entries.keys()


# Parameters.


def _read_params(found: FieldAt | None, report: Reporter) -> dict[str, Param | None]:
    """Parameters by name; None for one that is wrong."""
    if found is None:
        return {}
    if found.value.kind != "map":
        message = f"expected a mapping of parameters, found {describe(found.value.plain())}"
        report.at(found.value, found.path, message)
        return {}
    return {
        name: _read_param(name, entry, join(found.path, name), report)
        for name, entry in found.value.entries.items()
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
    fields = read_fields(
        node, path, report, known=ParamInput.model_fields, aliases={}, unsupported=frozenset()
    )
    values = check_fields(ParamInput, fields, report, skip=frozenset({"default"}))
    if "type" in fields and "type" not in values:
        return None
    kind: ParamType = values.get("type", ParamType.STRING)
    choices = _typed_list(kind, fields, values, report)
    default = _default(kind, choices, fields, report)
    required = values.get("required", False)
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
    )


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


def _default(
    kind: ParamType, choices: tuple[Any, ...], fields: dict[str, FieldAt], report: Reporter
) -> Any:
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


# Steps.


def _read_steps(
    root: Node, found: FieldAt | None, defaults: Defaults, report: Reporter
) -> list[StepDraft]:
    if found is None:
        if "jobs" not in root.entries:
            report.at(root, "steps", 'the workflow has no steps: add "steps"')
        return []
    node = found.value
    if node.kind == "scalar":
        message = f"expected a mapping or a list of steps, found {describe(node.plain())}"
        report.at(node, found.path, message)
        return []
    count = len(node.items) + len(node.entries)
    if count == 0:
        report.at(node, found.path, "expected at least one step, found none")
    elif count > MAX_STEPS:
        report.at(node, found.path, f"found {count:,} steps: at most {MAX_STEPS:,} are possible")
        return []
    read = _mapped_steps if node.kind == "map" else _listed_steps
    return list(read(node, found.path, defaults, report))


def _mapped_steps(
    node: Node, path: str, defaults: Defaults, report: Reporter
) -> Iterator[StepDraft]:
    for step_id, entry in node.entries.items():
        place = join(path, step_id)
        try:
            check_name(step_id)
        except ValueError as error:
            report.at(entry.key, place, str(error))
        if entry.value.kind != "map":
            found = describe(entry.value.plain())
            message = f"expected a mapping such as {{run: ./work.sh}}, found {found}"
            report.at(entry.value, place, message)
            continue
        draft = read_step(step_id, place, entry.value, defaults, report)
        draft.depends_on = list(draft.values.get("depends_on", ()))
        yield draft


def _listed_steps(
    node: Node, path: str, defaults: Defaults, report: Reporter
) -> Iterator[StepDraft]:
    seen: dict[str, Node] = {}
    before: list[str] = []
    for index, item in enumerate(node.items):
        place = join(path, index)
        if item.kind != "map":
            message = f"expected a mapping with name and run, found {describe(item.plain())}"
            report.at(item, place, message)
            continue
        step_id = _listed_id(item, place, seen, report)
        place = join(path, step_id) if step_id else place
        draft = read_step(step_id or place, place, item, defaults, report)
        if "depends_on" in draft.fields:
            draft.depends_on = list(draft.values.get("depends_on", ()))
        else:
            draft.depends_on = before
        before = [draft.id]
        yield draft


def _listed_id(item: Node, place: str, seen: dict[str, Node], report: Reporter) -> str:
    """The id of a listed step, '' after reporting that it has none."""
    entry = item.entries.get("name")
    if entry is None:
        report.at(item, place, 'a step in a list needs a "name", which is its id')
        return ""
    name = entry.value.plain()
    if not isinstance(name, str):
        return ""  # reported with the other fields
    if name in seen:
        first = seen[name].line + 1
        message = f'duplicate step "{name}": it stands already on line {first}'
        report.at(entry.value, join(place, "name"), message)
        return ""
    seen[name] = entry.value
    try:
        return check_name(name)
    except ValueError as error:
        report.at(entry.value, join(place, "name"), str(error))
        return ""


# What connects them.


def _check_order(
    drafts: list[StepDraft],
    kinds: dict[str, Kind | None],
    env_names: Collection[str],
    report: Reporter,
) -> None:
    steps = {draft.id: draft for draft in drafts}
    sound = True
    for draft in drafts:
        sound &= _check_dependencies(draft, steps, report)
    graph = Graph({draft.id: draft.depends_on for draft in drafts})
    for cycle in graph.cycles():
        sound = False
        first = steps[cycle[0]]
        at = first.fields.get("depends_on")
        message = f"the steps wait for each other: {' -> '.join(cycle)}"
        report.at(at.value if at else first.node, join(first.path, "depends_on"), message)
    for draft in drafts:
        ancestors = _Ancestors(graph, draft.id, steps, known=sound)
        names = Names(params=kinds, env=env_names, steps=steps, ancestors=ancestors, step=draft.id)
        check_step_templates(draft, TemplateCheck(report, names))


class _Ancestors(Collection[str]):
    """The steps before one step, worked out when asked.

    When the order itself is wrong, every other step counts, so that one mistake is reported once.
    """

    def __init__(
        self, graph: Graph, step: str, steps: dict[str, StepDraft], *, known: bool
    ) -> None:
        self._graph = graph
        self._step = step
        self._steps = steps
        self._known = known

    def __contains__(self, name: object) -> bool:
        if name not in self._steps or name == self._step:
            return False
        return not self._known or self._graph.comes_before(str(name), self._step)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._steps if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_dependencies(draft: StepDraft, steps: dict[str, StepDraft], report: Reporter) -> bool:
    found = draft.fields.get("depends_on")
    if found is None:
        return True
    if "depends_on" not in draft.values:
        return False
    sound = True
    for index, name in enumerate(draft.values["depends_on"]):
        node, path = found.value.items[index], join(found.path, index)
        if name == draft.id:
            report.at(node, path, f'step "{name}" depends on itself: remove it')
            sound = False
        elif name not in steps:
            report.at(node, path, f'unknown step "{name}"{suggestion(name, steps)}')
            sound = False
        elif name in draft.values["depends_on"][:index]:
            report.at(node, path, f'"{name}" is listed twice: remove it', warning=True)
    return sound
