"""The daemon's shell for steps without one. It is stored with the version, so that a new setting changes no old one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toban.definition import JobType, Step, Workflow
from toban.definition.scripts.shells import DEFAULT_SHELL, wrong_interpreter


def with_default_shell(workflow: Workflow, shell: str) -> tuple[Workflow, Sequence[tuple[str, str]]]:
    """The workflow with this shell in every `shell` step without one, and problems by path."""
    if shell == DEFAULT_SHELL:
        return workflow, ()
    steps = {name: _with_shell(step, shell) for name, step in workflow.steps.items()}
    problems = [
        (f"steps.{name}", message)
        for name, step in steps.items()
        if step.job_type is JobType.SHELL and (message := wrong_interpreter(step.target, step.shell))
    ]
    return replace(workflow, steps=steps), problems


def _with_shell(step: Step, shell: str) -> Step:
    if step.completion_check is not None:
        step = replace(step, completion_check=_with_shell(step.completion_check, shell))
    if step.job_type is JobType.SHELL and not step.shell:
        step = replace(step, shell=shell)
    return step
