"""Checks documents of jobs, and looks up the jobs that steps of workflows use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from toban.definition.checks.ids_and_titles import check_keyed
from toban.definition.checks.start_check import START_FIELDS, Start, read_start
from toban.definition.checks.step_builder import build_step
from toban.definition.checks.step_check import check_step_templates, read_layer, settle
from toban.definition.checks.step_layers import FoundJob, Layer, StepDraft
from toban.definition.expressions.template_names import TemplateNames, suggestion
from toban.definition.model.step_model import JobType
from toban.definition.model.workflow import EDITION, DefinitionKind, Workflow
from toban.definition.scalars.names import check_name
from toban.definition.scalars.values import describe
from toban.definition.schema.definition_schema import JobInput, JobsInput
from toban.definition.schema.field_check import FieldOrigin, check_fields, read_fields
from toban.definition.schema.unsupported_fields import JOB_ALIASES, UNSUPPORTED_JOB_FIELDS
from toban.definition.source.problem_collector import Reporter, check_about, join
from toban.definition.source.problems import Document
from toban.definition.source.yaml_source import Entry, Node, read_documents

MAX_JOBS = 10_000
_OF_THE_JOB_ITSELF = frozenset({"id", "name", "title", "labels", "enabled", "timezone", "calendar"}) | START_FIELDS
_NAMES = TemplateNames(params=None, env=None, steps=None, limit="a job may use run and event only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a document; `layer` is None when it has errors."""

    document: Document
    layer: Layer | None
    key: Node


def is_jobs(root: Node) -> bool:
    """Whether a document defines jobs, not a workflow."""
    return root.kind == "map" and "jobs" in root.entries


def read_jobs(root: Node, source: str, report: Reporter) -> list[Job]:
    """The jobs of one document."""
    for name in ("name", "steps"):
        if name in root.entries:
            message = "a jobs document cannot contain a workflow: put the workflow after a line with ---"
            report.at(root.entries[name].key, name, message)
    known = {**JobsInput.model_fields, "name": None, "steps": None}
    fields = read_fields(root, "", report, known=known, aliases={}, unsupported=frozenset(), refused=("name", "steps"))
    used = {name: fields[name] for name in JobsInput.model_fields if name in fields}
    check_fields(JobsInput, used, report, skip=frozenset({"jobs"}))
    node = root.entries["jobs"].value
    if node.kind != "map":
        message = f"expected a mapping of jobs by their ids, found {describe(node.plain())}"
        report.at(node, "jobs", message)
        return []
    if not node.entries:
        report.at(node, "jobs", "expected at least one job, found none")
        return []
    if len(node.entries) > MAX_JOBS:
        message = f"found {len(node.entries):,} jobs: at most {MAX_JOBS:,} are allowed"
        report.at(node, "jobs", message)
        return []
    general = report.failed
    later = _next_keys(node)
    jobs = []
    for name, entry in node.entries.items():
        report.failed = general  # an invalid job does not affect the others
        jobs.append(_read_job(name, entry, later[entry.key.start], source, report))
    report.failed = general or any(job.layer is None for job in jobs)
    return jobs


def _read_job(name: str, entry: Entry, later: int | None, source: str, report: Reporter) -> Job:
    path = join("jobs", name)
    text, line = _cut(name, entry, later, source)
    workflow: Workflow | None = None
    layer: Layer | None = None
    try:
        check_name(name)
    except ValueError as error:
        report.at(entry.key, path, str(error))
        name = ""
    if entry.value.kind != "map":
        found = describe(entry.value.plain())
        message = f"expected a mapping such as {{run: ./work.sh}}, found {found}"
        report.at(entry.value, path, message)
    else:
        given = read_layer(
            JobInput,
            entry.value,
            path,
            report,
            aliases=JOB_ALIASES,
            unsupported=UNSUPPORTED_JOB_FIELDS,
        )
        draft = StepDraft(name, path, entry.value, dict(given.fields), dict(given.values))
        draft.title = check_keyed(name, path, given.fields, given.values, report)
        check_about(entry.value, path, {**given.values, "title": draft.title}, report)
        settle(draft, report, choices='"run"', name=name)
        check_step_templates(draft, report, _NAMES)
        start = read_start(given.fields, given.values, report, params={}, scopes=())
        if not report.failed:
            layer = _inheritable(draft)
            workflow = _workflow(draft, start)
    document = Document(source=text, line=line, kind=DefinitionKind.JOB, name=name, workflow=workflow)
    return Job(document=document, layer=layer, key=entry.key)


def _inheritable(draft: StepDraft) -> Layer:
    """The fields that a job gives to steps. `run` is split, so that a step may replace its target alone."""
    fields = {n: found for n, found in draft.fields.items() if n not in _OF_THE_JOB_ITSELF}
    values = {n: value for n, value in draft.values.items() if n not in _OF_THE_JOB_ITSELF}
    if "run" in fields:
        fields["job_type"] = fields["target"] = fields.pop("run")
        values |= {"job_type": JobType.SHELL, "target": values.pop("run")}
    return Layer(fields, values).of(FieldOrigin.JOB)


def _workflow(draft: StepDraft, start: Start) -> Workflow:
    """A job alone: a workflow of one step with the job's name."""
    values = draft.values
    draft.job = draft.id
    return Workflow(
        name=draft.id,
        title=draft.title,
        kind=DefinitionKind.JOB,
        description=values.get("description", ""),
        labels=values.get("labels", {}),
        enabled=values.get("enabled", True),
        params={},
        env={},
        priority=start.priority,
        schedules=start.schedules,
        timezone=values.get("timezone", ""),
        calendar=values.get("calendar", {}),
        triggers=start.triggers,
        steps={draft.id: build_step(draft)},
        edition=EDITION,
    )


# A single job.


def _next_keys(jobs: Node) -> dict[int, int | None]:
    """The start of each key, mapped to the start of the next key."""
    starts = sorted(entry.key.start for entry in jobs.entries.values())
    return dict(zip(starts, [*starts[1:], None], strict=True))


def _cut(name: str, entry: Entry, later: int | None, source: str) -> tuple[str, int]:
    """The text of a document with this job alone, and the line of the file of its first line.

    As the author wrote it, with comments, if it can be cut out; else as JSON. `later` is the start of the next key.
    """
    plain, key = entry.value.plain(), entry.key
    start = _with_comments(source, key.start)
    end = max(entry.value.end, key.end) if later is None else _with_comments(source, later)
    text = "jobs:\n" + source[start:end].rstrip() + "\n"
    documents, problems = read_documents(text)
    if len(documents) == 1 and not problems and not documents[0].problems:
        root = documents[0].root
        if root is not None and root.plain() == {"jobs": {name: plain}}:
            return text, key.line - source.count("\n", start, key.start)
    text = json.dumps({"jobs": {name: plain}}, ensure_ascii=False, indent=2) + "\n"
    return text, key.line + 1


def _with_comments(source: str, key: int) -> int:
    """The start of the line with a key, or of the comments right above it."""
    start = source.rfind("\n", 0, key) + 1
    while start > 0:
        above = source.rfind("\n", 0, start - 1) + 1
        if not source[above:start].lstrip().startswith("#"):
            break
        start = above
    return start


# Lookup of jobs.


class Jobs:
    """The jobs that steps may use: those of the same text, then the given ones.

    If `given` is None, other jobs are unknown.
    """

    def __init__(self, here: Mapping[str, Layer | None], given: Mapping[str, str] | None) -> None:
        self._here = here
        self._given = given
        self._read: dict[str, FoundJob] = {}

    def find(self, name: str) -> FoundJob:
        if name in self._here:
            return FoundJob(layer=self._here[name])  # None: its errors were reported already
        if self._given is None:
            message = f'job "{name}" is not in these files; the daemon checks it'
            return FoundJob(message=message, warning=True)
        if name not in self._given:
            known = [*self._given, *self._here]
            return FoundJob(message=f'unknown job "{name}"{suggestion(name, known)}')
        if name not in self._read:
            self._read[name] = _stored(name, self._given[name])
        return self._read[name]


def _stored(name: str, source: str) -> FoundJob:
    report = Reporter(source, f"job {name}")
    documents, problems = read_documents(source)
    roots = [document.root for document in documents if document.root is not None]
    found = [job for root in roots if is_jobs(root) for job in read_jobs(root, source, report)]
    layers = [job.layer for job in found if job.document.name == name]
    if problems or len(layers) != 1 or layers[0] is None:
        errors = [problem.message for problem in report.problems if not problem.warning]
        reason = (errors or ["not found in its source"])[0]
        return FoundJob(message=f'job "{name}" is invalid: {reason}')
    return FoundJob(layer=layers[0])
