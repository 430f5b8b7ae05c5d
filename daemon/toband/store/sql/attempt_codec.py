"""Attempts as rows, and back."""

from __future__ import annotations

from toband.domain.attempt_model import Attempt, Orphans, ResourceUse, TreeCause, TreeEnding
from toband.domain.lock_rules import LockLeftover
from toband.store.sql.columns import Raw, Values, micros_or_none, printable, to_json, to_micros
from toband.store.sql.tables import process_executions

ATTEMPT_COLUMNS = tuple(process_executions.c.keys())
ATTEMPT_IDENTITY = frozenset(
    ("id", "run_id", "step", "number", "ordinal", "child", "workflow", "job", "iteration", "created_at")
)


def attempt_row(attempt: Attempt) -> Raw:
    resources = attempt.resources
    return {
        "id": attempt.id,
        "run_id": attempt.run_id,
        "step": attempt.step,
        "number": attempt.number,
        "ordinal": attempt.ordinal,
        "child": attempt.child,
        "workflow": attempt.workflow,
        "job": attempt.job,
        "iteration": attempt.iteration,
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
        "started_at": micros_or_none(attempt.started_at),
        "finished_at": micros_or_none(attempt.finished_at),
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
            "survivor_pids": ending.survivor_pids,
            "proved_empty": ending.proved_empty,
            "took": ending.took,
            "orphans": ending.orphans,
            "limit": ending.limit,
            "cgroup": ending.cgroup,
            "by_daemon": ending.by_daemon,
        }
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
        child=values["child"],
        workflow=values["workflow"],
        job=values["job"],
        iteration=values["iteration"],
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
    cause, orphans = TreeCause(stored["cause"]), stored["orphans"]
    if orphans not in tuple(Orphans):
        # Earlier versions stored sentences here too.
        orphans = Orphans.LEFT if orphans and cause is TreeCause.LOST else None
    changed = {
        "cause": cause,
        "signals": tuple(stored["signals"]),
        "survivor_pids": tuple(stored.get("survivor_pids", ())),
        "orphans": None if orphans is None else Orphans(orphans),
    }
    return TreeEnding(**{**stored, **changed})


def lock_leftover_row(leftover: LockLeftover) -> Raw:
    return {
        "lock": leftover.lock,
        "attempt_id": leftover.attempt_id,
        "user_run": leftover.user.run_id,
        "user_step": leftover.user.step,
        "run_id": leftover.run_id,
        "workflow": leftover.workflow,
        "step": leftover.step,
        "since": to_micros(leftover.since),
        "boot_id": leftover.boot_id,
        "pids": to_json(leftover.pids),
    }
