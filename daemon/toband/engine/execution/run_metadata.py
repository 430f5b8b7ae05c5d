"""Writes a run's metadata to its context directory: `_workflow.json`, and `_meta.json` of each step.

For people and for later steps. The database is authoritative; a failed write changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import structlog

from toband.domain.plan import Plan
from toband.domain.run_model import Run, StepRun, StepState
from toband.engine.execution.artifact_flow import folder
from toband.ports import Artifacts

log = structlog.get_logger()


class RunMetadata:
    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    def of_run(self, context: str, run: Run) -> None:
        self._write(context, "_workflow.json", _run(run))

    def of_ended(self, context: str, plan: Plan, run: Run) -> None:
        """Metadata of all ended steps: they may come from another run, or a crash may have prevented writing it."""
        self._of(context, plan, run.steps.values())

    def of_steps(self, context: str, plan: Plan, run: Run) -> None:
        """Metadata of the steps that ended with the last change; a step that never ran has none."""
        self._of(context, plan, [run.steps[name] for name in run.touched or ()])

    def _of(self, context: str, plan: Plan, steps: Iterable[StepRun]) -> None:
        for step in steps:
            if step.state.terminal and step.state is not StepState.SKIPPED:
                self._write(context, f"{folder(step)}/_meta.json", _step(plan, step))

    def _write(self, context: str, name: str, facts: dict[str, Any]) -> None:
        try:
            self._artifacts.note(context, name, facts)
        except OSError as error:
            log.warning("cannot write a note", action="note_failed", file=name, error=str(error))


def _run(run: Run) -> dict[str, Any]:
    return {
        "runId": run.id,
        "name": run.workflow,
        "version": run.version,
        "status": run.state.value,
        "startedAt": _millis(run.started_at),
        "completedAt": _millis(run.finished_at),
        "steps": {
            step.id: {
                "status": step.state.value,
                "startedAt": _millis(step.started_at),
                "completedAt": _millis(step.finished_at),
            }
            for step in run.steps.values()
        },
    }


def _step(plan: Plan, step: StepRun) -> dict[str, Any]:
    definition = plan.step(step.id)
    began, ended = _millis(step.started_at), _millis(step.finished_at)
    took = ended - began if began is not None and ended is not None else None
    here = f"{folder(step)}/"
    summary = step.skip_reason.value if step.skip_reason is not None else step.reason
    facts: dict[str, Any] = {
        "stepId": step.id,
        "status": step.state.value,
        "startedAt": began,
        "completedAt": ended,
        "wallTimeMs": took,
        "attempts": step.attempts,
        "workerKind": definition.job_type.value,
        "artifacts": [
            {"name": a.name, "path": a.path.removeprefix(here), "type": a.type, "state": a.state.value}
            for a in step.artifacts
        ],
        "workerResult": {
            "status": step.state.value,
            "artifacts": [],
            "observations": [{"summary": summary}] if summary else [],
            "exitCode": step.exit_code,
            "errorClass": step.error_class.value if step.error_class is not None else None,
            "cost": {"wallTimeMs": took},
        },
    }
    if definition.completion_check is not None:
        facts |= {"iterations": step.iteration, "maxIterations": definition.max_iterations}
    if step.instances:
        facts["instances"] = step.instances
    return facts


def _millis(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1000)
