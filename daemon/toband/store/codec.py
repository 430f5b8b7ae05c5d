"""Runs, steps and attempts as rows, and back.

Rows are written with raw values, because the driver gets them as they are; they are read with the values that the types
of the columns made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from toband.domain.model import (
    Attempt,
    Ending,
    ResourceUse,
    Run,
    StepRun,
    TreeCause,
    TreeEnding,
)
from toband.store.columns import printable, to_json, to_micros
from toband.store.tables import process_executions, runs, step_runs

Raw = dict[str, Any]
Values = Mapping[str, Any]

RUN_COLUMNS = tuple(runs.c.keys())
STEP_COLUMNS = tuple(step_runs.c.keys())
ATTEMPT_COLUMNS = tuple(process_executions.c.keys())

# What never changes once it is stored.
RUN_IDENTITY = frozenset(
    (
        "id",
        "workflow",
        "version",
        "number",
        "scope",
        "triggered_by",
        "caller",
        "priority",
        "params",
        "created_at",
    )
)
STEP_IDENTITY = frozenset(("run_id", "position", "step"))
ATTEMPT_IDENTITY = frozenset(("id", "run_id", "step", "number", "ordinal", "created_at"))


def _time(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


# ------------------------------------------------------------------------------------------------ to rows


def run_identity(run: Run) -> Raw:
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "number": run.number,
        "scope": printable(run.scope),
        "triggered_by": run.trigger.value,
        "caller": printable(run.caller),
        "priority": run.priority,
        "params": to_json(run.params),
        "created_at": to_micros(run.created_at),
    }


def run_facts(run: Run) -> Raw:
    """What a transition may change."""
    ending = run.ending
    return {
        "state": run.state.value,
        "sequence": run.sequence,
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
        "error": printable(run.error),
        "failed_steps": run.failed_steps,
        "ended_steps": run.ended_steps,
        "total_steps": run.total_steps,
        "current_step": printable(run.current_step),
        "cancel_requested_at": _time(run.cancel_requested_at),
        "ending_cause": None if ending is None else ending.cause.value,
        "ending_at": None if ending is None else to_micros(ending.at),
        "launches": run.launches,
        "timeout": run.timeout,
    }


def step_row(run_id: str, step: StepRun) -> Raw:
    return {
        "run_id": run_id,
        "position": step.index,
        "step": step.id,
        "state": step.state.value,
        "reason": printable(step.reason),
        "attempts": step.attempts,
        "losses": step.losses,
        "attempt_id": None if step.attempt is None else step.attempt.id,
        "started_at": _time(step.started_at),
        "finished_at": _time(step.finished_at),
        "exit_code": step.exit_code,
        "error_class": None if step.error_class is None else step.error_class.value,
        "result": None if step.result is None else to_json(step.result),
        "outputs": to_json(step.outputs) if step.outputs else "{}",
    }


def attempt_row(attempt: Attempt) -> Raw:
    resources = attempt.resources
    return {
        "id": attempt.id,
        "run_id": attempt.run_id,
        "step": attempt.step,
        "number": attempt.number,
        "ordinal": attempt.ordinal,
        "created_at": to_micros(attempt.created_at),
        "token": attempt.token,
        "state": attempt.state.value,
        "command": printable(attempt.command),
        "boot_id": printable(attempt.boot_id),
        "pid": attempt.pid,
        "exit_code": attempt.exit_code,
        "signal": attempt.signal,
        "error_class": None if attempt.error_class is None else attempt.error_class.value,
        "error": printable(attempt.error),
        "ending": None if attempt.ending is None else _tree_ending_json(attempt.ending),
        "started_at": _time(attempt.started_at),
        "finished_at": _time(attempt.finished_at),
        "user_time": resources.user_time,
        "system_time": resources.system_time,
        "max_rss_bytes": resources.max_rss_bytes,
        "stdout_bytes": attempt.stdout_bytes,
        "stderr_bytes": attempt.stderr_bytes,
        "dropped_bytes": attempt.dropped_bytes,
    }


def _tree_ending_json(ending: TreeEnding) -> str:
    return to_json(
        {
            "cause": ending.cause.value,
            "signals": ending.signals,
            "leftovers": ending.leftovers,
            "survivors": ending.survivors,
            "proved_empty": ending.proved_empty,
            "took": ending.took,
            "orphans": ending.orphans,
            "limit": ending.limit,
            "cgroup": ending.cgroup,
        }
    )


# ------------------------------------------------------------------------------------------------ from rows


def run_from(values: Values, steps: Mapping[str, StepRun]) -> Run:
    cause = values["ending_cause"]
    return Run(
        id=values["id"],
        workflow=values["workflow"],
        version=values["version"],
        number=values["number"],
        scope=values["scope"],
        state=values["state"],
        trigger=values["triggered_by"],
        caller=values["caller"],
        priority=values["priority"],
        params=values["params"],
        created_at=values["created_at"],
        started_at=values["started_at"],
        finished_at=values["finished_at"],
        error=values["error"],
        failed_steps=values["failed_steps"],
        ended_steps=values["ended_steps"],
        total_steps=values["total_steps"],
        current_step=values["current_step"],
        cancel_requested_at=values["cancel_requested_at"],
        ending=None if cause is None else Ending(cause=cause, at=values["ending_at"]),
        steps=steps,
        sequence=values["sequence"],
        launches=values["launches"],
        timeout=values["timeout"],
    )


def step_from(values: Values, attempt: Attempt | None) -> StepRun:
    return StepRun(
        id=values["step"],
        index=values["position"],
        state=values["state"],
        reason=values["reason"],
        attempts=values["attempts"],
        losses=values["losses"],
        attempt=attempt,
        started_at=values["started_at"],
        finished_at=values["finished_at"],
        exit_code=values["exit_code"],
        error_class=values["error_class"],
        result=values["result"],
        outputs=values["outputs"],
    )


def attempt_from(values: Values) -> Attempt:
    ending = values["ending"]
    return Attempt(
        id=values["id"],
        run_id=values["run_id"],
        step=values["step"],
        number=values["number"],
        ordinal=values["ordinal"],
        token=values["token"],
        state=values["state"],
        created_at=values["created_at"],
        command=values["command"],
        boot_id=values["boot_id"],
        pid=values["pid"],
        exit_code=values["exit_code"],
        signal=values["signal"],
        error_class=values["error_class"],
        error=values["error"],
        ending=None if ending is None else _tree_ending(ending),
        started_at=values["started_at"],
        finished_at=values["finished_at"],
        resources=ResourceUse(
            user_time=values["user_time"],
            system_time=values["system_time"],
            max_rss_bytes=values["max_rss_bytes"],
        ),
        stdout_bytes=values["stdout_bytes"],
        stderr_bytes=values["stderr_bytes"],
        dropped_bytes=values["dropped_bytes"],
    )


def _tree_ending(stored: Values) -> TreeEnding:
    return TreeEnding(
        **{**stored, "cause": TreeCause(stored["cause"]), "signals": tuple(stored["signals"])}
    )
