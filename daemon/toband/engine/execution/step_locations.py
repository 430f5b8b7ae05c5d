"""The directories in which steps work and artifacts are stored, where the definition alone determines them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from toban.definition import JobType, Workflow


def refused_locations(workflow: Workflow, base_dir: str, refusal: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Fields of the definition, each with the reason why its directory is refused; every reason once.

    `refusal` returns for an absolute path why no step may work there; empty if one may.
    """
    told = {""}
    for field, path in _locations(workflow, base_dir):
        reason = refusal(path)
        if reason not in told:
            told.add(reason)
            yield field, reason


def _locations(workflow: Workflow, base_dir: str) -> Iterator[tuple[str, str]]:
    """Absolute paths. Those with templates, and those in a run's own directory, are only known when a step starts."""
    given = [("context_dir", workflow.context_dir)] if workflow.context_dir else []
    for step in workflow.steps.values():
        if step.job_type is not JobType.WORKFLOW and "{{" not in (step.workspace or ""):
            given.append((f"steps.{step.id}.workspace", step.workspace or ""))
    for field, path in given:
        whole = os.path.join(base_dir, path)
        if os.path.isabs(whole):
            yield field, whole
