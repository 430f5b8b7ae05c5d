"""Builders of values for tests of stores: short to write, with every field that a store must save."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from toband.domain.attempt_model import Attempt, AttemptState, ResourceUse, TreeCause, TreeEnding
from toband.domain.run_model import Run, RunState, StepRun, StepState
from toband.ports import Request, RunChange, Store, UpdateResult, WorkflowText

NOW = datetime(2026, 11, 3, 12, 30, 15, 123456, tzinfo=UTC)

_ids = itertools.count(1)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def new_id() -> str:
    """Sorts behind all ids made before it, as uuid7 does."""
    return f"01a1e246-b241-72ef-a5be-{next(_ids):012x}"


def text(name: str = "backup", **changes: Any) -> WorkflowText:
    values: dict[str, Any] = {
        "name": name,
        "title": "Nightly backup",
        "description": "Copies everything",
        "labels": {"team": "ops"},
        "enabled": True,
        "source": "steps: {copy: {run: cp}}",
        "parsed": {"steps": [{"id": "copy"}]},
        "base_dir": "/srv/flows",
    }
    return WorkflowText(**(values | changes))


def request(request_id: str = "r-1", rpc: str = "Create", caller: str = "me", digest: str = "d") -> Request:
    return Request(caller=caller, rpc=rpc, id=request_id, digest=digest)


def new_run(workflow: str = "backup", steps: int = 3, **changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": new_id(),
        "workflow": workflow,
        "version": 1,
        "created_at": NOW,
        "params": {"target": "tape"},
        "total_steps": steps,
        "steps": {f"s{index}": StepRun(id=f"s{index}", index=index) for index in range(steps)},
    }
    return Run(**(values | changes))


def new_attempt(run: Run, step: str, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": new_id(),
        "run_id": run.id,
        "workflow": run.workflow,
        "step": step,
        "number": run.steps[step].attempts + 1,
        "ordinal": run.launches,
        "token": new_id(),
        "state": AttemptState.STARTING,
        "created_at": NOW,
        "command": "cp -a / /mnt",
        "boot_id": "boot-1",
    }
    return Attempt(**(values | changes))


def touched(run: Run, steps: Mapping[str, StepRun], **changes: Any) -> Run:
    """The run one change later, with these steps in place of its own."""
    return replace(run, **{"sequence": run.sequence + 1, "steps": {**run.steps, **steps}, **changes})


def launched(run: Run, step: str) -> Run:
    """The step's next attempt is STARTING."""
    attempt = new_attempt(run, step)
    running = replace(
        run.steps[step],
        state=StepState.RUNNING,
        attempts=attempt.number,
        attempt=attempt,
        started_at=later(1),
    )
    return touched(
        run,
        {step: running},
        state=RunState.RUNNING,
        started_at=later(1),
        launches=run.launches + 1,
        current_step=step,
    )


def ended(run: Run, step: str) -> Run:
    """The step's attempt has COMPLETED, and the step with it."""
    live = run.steps[step].attempt
    assert live is not None
    attempt = replace(
        live,
        state=AttemptState.COMPLETED,
        pid=4711,
        exit_code=0,
        ending=TreeEnding(cause=TreeCause.EXITED, signals=("TERM",), proved_empty=True, took=0.25),
        started_at=later(1),
        finished_at=later(2),
        resources=ResourceUse(user_time=0.5, system_time=0.125, max_rss_bytes=1 << 33),
        stdout_bytes=1 << 40,
    )
    done = replace(
        run.steps[step],
        state=StepState.SUCCEEDED,
        attempt=attempt,
        finished_at=later(2),
        exit_code=0,
        result={"rows": [1, 2.5, None, "三"]},
        outputs={"file": "/tmp/ü\n"},
    )
    return touched(run, {step: done}, ended_steps=run.ended_steps + 1)


def finished(run: Run, state: RunState = RunState.SUCCEEDED) -> Run:
    return touched(run, {}, state=state, finished_at=later(3))


def change(before: Run, after: Run, event: str = "attempt_ended") -> RunChange:
    return RunChange(before=before, after=after, at=later(2), event=event)


async def save(store: Store, before: Run, after: Run, event: str = "attempt_ended") -> Run:
    """Saves, insists that it worked, and gives back the run as it now is."""
    assert await store.save(change(before, after, event)) is UpdateResult.UPDATED
    return after


async def with_workflow(store: Store, *names: str) -> None:
    for name in names or ("backup",):
        await store.create_workflow(text(name), at=NOW)


async def stored_run(store: Store, workflow: str = "backup", **changes: Any) -> Run:
    run, new = await store.create_run(new_run(workflow, **changes), max_active=None)
    assert new
    return run
