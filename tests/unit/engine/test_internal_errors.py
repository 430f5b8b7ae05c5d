"""Errors that no code expected: a run neither waits for ever, nor does the daemon call itself healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from contract.builders import with_workflow
from doubles.clock import Clock
from doubles.ids import numbered_ids
from doubles.locks import run_locks
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toban.definition import JobType, Step, Workflow
from toband.domain.attempt_model import AttemptState, TreeCause, TreeEnding
from toband.domain.plan import Plan
from toband.domain.run_events import (
    AttemptEnded,
    CancelRequested,
    Effect,
    EvaluateStep,
    Event,
    LaunchAttempt,
    LaunchDue,
    LaunchReady,
    RunStarted,
    name_of_type,
)
from toband.domain.run_model import Run, RunState, StepRun, StepState
from toband.engine.execution.run_actor import RunActor
from toband.engine.health import internal_errors
from toband.engine.health.health_conditions import Health
from toband.engine.runs.effects import Effects
from toband.engine.system_events import SystemEvents
from toband.ports import HealthStatus, RunChange, Store, StoreError
from toband.store import SqlStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEP = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})
PLAN = Plan(Workflow(name="w", title="", labels={}, params={}, env={}, steps={"s": STEP}))
RUN = Run(
    id="r",
    workflow="w",
    version=1,
    created_at=NOW,
    total_steps=1,
    steps={"s": StepRun(id="s", index=0)},
)


class Stage:
    """One actor whose effects are kept, in a loop that is watched."""

    def __init__(self, store: SqlStore) -> None:
        self.store, self.ids = FaultyStore(store), numbered_ids()
        self.health = Health(Clock(NOW))
        internal_errors.watch(asyncio.get_running_loop(), self.health)
        self.effects: list[Effect] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.actor = RunActor(
            PLAN,
            RUN,
            base_dir="",
            store=cast(Store, self.store),
            clock=Clock(NOW),
            ids=self.ids,
            act=self._act,
            start=self.start,
            announcing=SystemEvents(Clock(NOW), self.ids),
            locks=run_locks(),
        )

    def fail_at(self, event: str) -> None:
        """Saving it raises an error that a store never raises."""
        error = OverflowError("too large for a column")
        self.store.fail_if("save", lambda change: error if change.event == event else None)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def _act(self, actor: RunActor, effects: tuple[Effect, ...]) -> None:
        self.effects += effects

    async def play(self, *events: Event) -> Run:
        for event in events:
            self.actor.post(event)
        return await self.actor.settled()

    @property
    def detail(self) -> str:
        return {each.name: each.detail for each in self.health.conditions}.get("internal", "")


@pytest.fixture
async def stage(store: SqlStore) -> Stage:
    await with_workflow(store, "w")
    await store.create_run(RUN, max_active=None)
    return Stage(store)


def ended(token: str) -> AttemptEnded:
    ending = TreeEnding(cause=TreeCause.EXITED, proved_empty=True)
    return AttemptEnded(step="s", token=token, ending=ending, started_at=NOW, finished_at=NOW, exit_code=0)


async def test_an_end_that_cannot_be_saved_is_a_loss_and_reported(stage: Stage) -> None:
    stage.fail_at("attempt_ended")
    run = await stage.play(RunStarted(), ended("t-1"))

    assert run.state is RunState.FAILED
    attempt = run.steps["s"].attempt
    assert attempt is not None
    assert attempt.state is AttemptState.LOST
    assert "too large for a column" in attempt.error
    assert stage.health.status is HealthStatus.DEGRADED
    assert "run r cannot take in attempt_ended" in stage.detail


async def test_a_database_that_fails_for_a_while_changes_no_result(stage: Stage) -> None:
    """Each failure is logged, and the end is saved when the database is back."""
    failing = iter(range(2))

    def fail(change: RunChange) -> Exception | None:
        return StoreError("no space") if change.event == "attempt_ended" and next(failing, None) is not None else None

    stage.store.fail_if("save", fail)
    with capture_logs() as logs:
        run = await stage.play(RunStarted(), ended("t-1"))
    assert run.state is RunState.SUCCEEDED
    stored = await stage.store.get_run("r")
    assert (stored.state, stored.error) == (RunState.SUCCEEDED, "")
    warned = [(each["action"], each["run"], each["error"]) for each in logs if each["log_level"] == "error"]
    assert warned == [("store_failed", "r", "no space")] * 2


async def test_an_event_that_fails_keeps_back_none_behind_it(stage: Stage) -> None:
    stage.fail_at("cancel_requested")
    with pytest.raises(OverflowError):
        await stage.actor.ask(CancelRequested())
    run = await stage.play(RunStarted(), ended("t-1"))

    assert run.state is RunState.SUCCEEDED


def effects_of(stage: Stage, launch: Callable[[], None] | None = None) -> Effects:
    class Launches:
        async def launch(self, *_: object) -> None:
            assert launch is not None
            launch()

    parts = "active queue notifier launch_builder metadata children collection waits evaluation seen"
    made: dict[str, Any] = dict.fromkeys(parts.split())
    return Effects(**made, locks=run_locks(), launches=cast(Any, Launches()), start=stage.start)


async def test_an_effect_that_fails_is_tried_again_and_keeps_back_none_behind_it(
    stage: Stage,
) -> None:
    run = await stage.play(RunStarted())
    (launch,) = [each for each in stage.effects if isinstance(each, LaunchAttempt)]
    tries = 0

    def failing() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise MemoryError("not now")

    posted: list[Event] = []
    cast(Any, stage.actor).post = posted.append
    await effects_of(stage, failing).carry_out(stage.actor, (launch, LaunchReady()))
    assert posted == [LaunchDue()]
    await wait_for(lambda: tries == 3, "it is not tried again")
    await wait_for(lambda: all(task.done() for task in stage.tasks), "it goes on")
    assert f"cannot {name_of_type(LaunchAttempt)} of run {run.id}" in stage.detail


async def test_a_condition_that_breaks_its_evaluation_fails_its_step(stage: Stage) -> None:
    await stage.play(RunStarted())
    step = replace(stage.actor.run.steps["s"], state=StepState.READY, evaluated=False, attempt=None)
    stage.actor.run = replace(stage.actor.run, steps={"s": step})
    # Whatever reads what the step sees meets no reader at all, which no code expects.
    stage.actor.plan = cast(Any, None)
    posted: list[Event] = []
    cast(Any, stage.actor).post = posted.append
    await effects_of(stage).carry_out(stage.actor, (EvaluateStep(step="s"),))
    await wait_for(lambda: posted, "nothing came of it")
    assert name_of_type(type(posted[0])) == "evaluation_failed"
    assert stage.health.status is HealthStatus.DEGRADED


async def test_a_callback_that_fails_is_reported(stage: Stage) -> None:
    def broken() -> None:
        raise KeyError("pid")

    asyncio.get_running_loop().call_soon(broken)
    await wait_for(lambda: stage.detail, "nobody noticed")
    assert "KeyError" in stage.detail
