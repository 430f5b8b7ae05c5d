"""Merges the fields of a step: its own, its job's, and the workflow's defaults, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toban.definition.model.step_model import JobType
from toban.definition.schema.field_check import FieldAt, FieldOrigin
from toban.definition.source.problem_collector import Reporter, Reports, join
from toban.definition.source.yaml_source import Node

_WHAT_RUNS = frozenset({"run", "job_type", "target", "wait"})
STEPS = "steps"
_MERGED = frozenset({"env", "error_classes", "kwargs", "resources", "retry", "sandbox", "secret_files"})
_WITH_TEMPLATES = frozenset({"env", "kwargs", "secret_files"})


@dataclass(frozen=True, slots=True)
class Layer:
    """Fields that steps inherit, and their values where valid."""

    fields: Mapping[str, FieldAt] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def of(self, origin: FieldOrigin) -> Layer:
        """The same layer; its fields have this origin."""
        fields = {name: replace(found, origin=origin) for name, found in self.fields.items()}
        return Layer(fields, self.values)


@dataclass(slots=True)
class StepDraft:
    """A step, a job or a completion check between the file and the model.

    `derived`: the id was derived from the name. `open`: its job is not known and may have the missing
    fields. `inherited` has entries that were merged into its own mappings, with the
    names of these. `group` is the field of the workflow that
    has the step.
    """

    id: str
    path: str
    node: Node
    fields: dict[str, FieldAt]
    values: dict[str, Any]
    title: str = ""
    derived: bool = False
    depends_on: list[str] = field(default_factory=list)
    job: str = ""
    open: bool = False
    job_type: JobType | None = None
    inherited: list[tuple[str, FieldAt]] = field(default_factory=list)
    group: str = STEPS

    @property
    def is_finally(self) -> bool:
        """Whether it runs when all steps of `steps` have ended."""
        return self.group != STEPS

    @property
    def target_field(self) -> FieldAt | None:
        return self.fields.get("run") or self.fields.get("target")

    @property
    def check(self) -> StepDraft | None:
        """Its completion check, if that has the right shape."""
        found = self.values.get("completion_check")
        return found if isinstance(found, StepDraft) else None

    def has(self, name: str) -> bool:
        """Whether a field is given, or may be given by an unknown job."""
        return name in self.fields or self.open

    def reports(self, found: FieldAt, report: Reporter) -> Reports:
        """The reporter for problems of a field: those of a job's field are reported at the step's `job`."""
        if found.origin is FieldOrigin.JOB and self.job:
            return _AtReference(report, self.fields["job"], self.job)
        return report

    def refuse(self, name: str, message: str, report: Reporter) -> None:
        """Removes a field that is not allowed; reports it only if it is the step's own."""
        found = self.fields.pop(name)
        self.values.pop(name, None)
        if found.origin is FieldOrigin.OWN:
            report.at(found.key, found.path, message)


class _AtReference:
    """Reports problems of a job's field in one step, at the step's `job`."""

    def __init__(self, report: Reporter, reference: FieldAt, job: str) -> None:
        self._report = report
        self._reference = reference
        self._job = job

    def at(self, node: Node, path: str, message: str, *, warning: bool = False) -> None:
        if warning:
            return  # it was reported for the job itself
        within = path.removeprefix(f"jobs.{self._job}.")
        message = f'job "{self._job}" cannot be used here: {within}: {message}'
        self._report.at(self._reference.value, self._reference.path, message)

    def inside(self, node: Node, offset: int, path: str, message: str, *, warning: bool = False) -> None:
        self.at(node, path, message, warning=warning)


def inherit(draft: StepDraft, layer: Layer) -> None:
    """Adds the layer's fields that the draft lacks; mappings are merged."""
    own = set(draft.fields)
    if own & {"run", "wait"} or draft.open:
        hidden = _WHAT_RUNS
    elif own & _WHAT_RUNS:
        hidden = frozenset({"run", "wait"})
    else:
        hidden = frozenset()
    for name, found in layer.fields.items():
        if name in hidden or name not in layer.values:
            continue
        inherited = layer.values[name]
        if name not in own:
            draft.fields[name] = found
            draft.values[name] = inherited
        elif name in _MERGED and name in draft.values:
            if name in _WITH_TEMPLATES:
                draft.inherited += [
                    (name, FieldAt(entry.key, entry.value, join(found.path, key), found.origin))
                    for key, entry in found.value.entries.items()
                    if key in inherited and key not in draft.values[name]
                ]
            draft.values[name] = {**inherited, **draft.values[name]}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job that a step uses: its fields, or why there are none."""

    layer: Layer | None = None
    message: str = ""
    warning: bool = False
