"""Decides the kind of a step, and which fields that kind may have."""

from __future__ import annotations

import re
import sys

from toban.definition.checks.shell_check import check_shell_step
from toban.definition.checks.step_layers import StepDraft
from toban.definition.expressions.templates import parse_template
from toban.definition.model.step_model import JobType
from toban.definition.scalars.names import check_name
from toban.definition.schema.foreign_fields import names_what_runs
from toban.definition.schema.unsupported_fields import UNSUPPORTED_KIND_FIELDS
from toban.definition.scripts.cmd_text import check_text
from toban.definition.source.problem_collector import Reporter, join
from toban.definition.source.yaml_source import Node

_PYTHON_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_DOTTED_TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)\.([^\W\d]\w*)")
_OF_PROCESSES = (
    *(
        "args",
        "env",
        "env_file",
        "stdin",
        "secret_files",
        "shell",
        "errexit",
        "python",
        "workspace",
        "idle_timeout",
        "kill_grace",
    ),
    *("success_codes", "error_classes", "inputs", "outputs", "completion_check", "max_iterations"),
    *("interval", "on_iterations_exhausted", "stop_when_unchanged", "on_lost", "user", "resources"),
    *("no_new_privileges", "sandbox"),
)
_WITHOUT_MEANING = {
    JobType.WORKFLOW: (*_OF_PROCESSES, "approvers"),
    JobType.APPROVAL: ("target", "kwargs", "locks", *_OF_PROCESSES),
    JobType.WAIT: ("target", "kwargs", "locks", *_OF_PROCESSES, "approvers"),
}
_ONLY_WINDOWS = "cmd steps run on Windows only: use job_type: shell"


def without_meaning(node: Node) -> frozenset[str]:
    """Fields that a step cannot have because of its own job_type."""
    kind = node.entries["job_type"].value.plain() if "job_type" in node.entries else None
    if "wait" in node.entries and kind is None:
        kind = JobType.WAIT.value
    for each, fields in _WITHOUT_MEANING.items():
        if kind == each.value:
            return frozenset(fields)
    return frozenset()


def decide_kind(draft: StepDraft, report: Reporter, *, choices: str, name: str) -> None:
    """Decides the kind. `choices` lists the alternatives to job_type and target.

    `name` is the workflow's name, which none of its steps may call.
    """
    fields, values, fields_written = draft.fields, draft.values, draft.node.entries.keys()
    if "wait" in fields:
        for other in ("run", "target", "job_type"):
            if other in fields and values.get(other) is not JobType.WAIT:
                message = f'a step with "wait" runs nothing: remove "{other}", or use two steps'
                report.at(fields[other].key, fields[other].path, message)
                del fields[other]
                values.pop(other, None)
        draft.job_type = JobType.WAIT
    elif "run" in fields:
        for other in ("target", "job_type"):
            if other in fields and values.get(other) is not JobType.SHELL:
                message = f'"run" is short for job_type: shell and target: remove "{other}"'
                report.at(fields[other].key, fields[other].path, message)
        draft.job_type = JobType.SHELL
    elif "job_type" in fields:
        draft.job_type = values.get("job_type")
        if draft.job_type is JobType.WAIT and not draft.open:
            message = 'the step does not say what it waits for: add "wait", such as wait: {for: 10m}'
            draft.reports(fields["job_type"], report).at(fields["job_type"].key, draft.path, message)
        elif "target" not in fields and draft.job_type is not JobType.APPROVAL and not draft.open:
            message = 'the step has no target: add "target", or use "run"'
            draft.reports(fields["job_type"], report).at(fields["job_type"].key, draft.path, message)
    elif not draft.open and not (UNSUPPORTED_KIND_FIELDS & fields_written or names_what_runs(fields_written)):
        message = f'cannot tell what runs: give {choices}, or "job_type" and "target"'
        report.at(draft.node, draft.path, message)
    _check_target(draft, report, name)
    _check_fields(draft, report)
    if draft.job_type is JobType.SHELL:
        check_shell_step(draft, report)


def _check_target(draft: StepDraft, report: Reporter, name: str) -> None:
    found, target = draft.fields.get("target"), draft.values.get("target")
    if draft.job_type is JobType.CMD:
        _check_cmd_arguments(draft, report)
        if sys.platform != "win32":
            report.at(draft.node, draft.path, _ONLY_WINDOWS, warning=True)
    if found is None or target is None:
        return
    message = ""
    if draft.job_type is JobType.PYTHON and (dotted := _DOTTED_TARGET.fullmatch(target)):
        draft.values["target"] = f"{dotted[1]}:{dotted[2]}"
    elif draft.job_type is JobType.PYTHON and not _PYTHON_TARGET.fullmatch(target):
        message = f'expected package.module:function, found "{target}"'
        if "{{" in target:
            message = "a template cannot choose the function that runs: write package.module:function"
    elif draft.job_type is JobType.WORKFLOW:
        message = _wrong_child(target, name)
    if message:
        draft.reports(found, report).at(found.value, found.path, message)


def _wrong_child(target: str, name: str) -> str:
    if "{{" in target:
        return "a template cannot choose the workflow that runs: write its name"
    if target == name:
        return f'"{target}" would start itself endlessly: name another workflow'
    try:
        check_name(target)
    except ValueError as error:
        return str(error)
    return ""


def _check_cmd_arguments(draft: StepDraft, report: Reporter) -> None:
    """Checks the literal parts of the arguments; values are checked when they are known."""
    found = draft.fields.get("args")
    if found is None or "args" not in draft.values:
        return
    reports = draft.reports(found, report)
    for index, node in enumerate(found.value.items):
        path = join(found.path, index)
        if node.kind != "scalar":
            message = "a list or a mapping cannot be an argument of cmd: its JSON has quotes"
            reports.at(node, path, message)
            continue
        try:
            for part in parse_template(node.text).parts:
                if isinstance(part, str):
                    check_text(part)
        except ValueError as error:
            reports.at(node, path, str(error))


def _check_fields(draft: StepDraft, report: Reporter) -> None:
    """Reports fields that this kind of step does not use, unless they were inherited."""
    kind = draft.job_type
    if kind is None:
        return
    for name in ("args", "kwargs"):
        if name in draft.values and not draft.values[name]:
            del draft.fields[name], draft.values[name]
    for name in _WITHOUT_MEANING.get(kind, ()):
        if name in draft.fields:
            article = "an" if kind is JobType.APPROVAL else "a"
            message = f'"{name}" does not apply to {article} {kind} step: remove it'
            draft.refuse(name, message, report)
    if not kind.process:
        return
    if "approvers" in draft.fields:
        message = "only approval steps have approvers: add job_type: approval, or remove them"
        draft.refuse("approvers", message, report)
    if "kwargs" in draft.fields and kind is not JobType.PYTHON:
        message = f"only python and workflow steps have kwargs: use args for job_type {kind}"
        draft.refuse("kwargs", message, report)
    checked_by = draft.check.job_type if draft.check is not None else None
    for field in ("shell", "errexit"):
        if field in draft.fields and JobType.SHELL not in (kind, checked_by):
            draft.refuse(field, f'only shell steps have "{field}": remove it, or use job_type: shell', report)
    if "python" in draft.fields and JobType.PYTHON not in (kind, checked_by):
        message = "only python steps have an interpreter: remove it, or use job_type: python"
        draft.refuse("python", message, report)
