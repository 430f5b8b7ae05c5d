"""Requests for a run whose change is on disk while its actor still waits for the store's answer."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from doubles.locks import run_locks
from helpers.wait import wait_for
from toban.definition import JobType, Step, Workflow
from toband.domain.identity import user_identity
from toband.domain.plan import Plan
from toband.domain.run_events import CancelRequested, Event, RunStarted
from toband.domain.run_model import Run, RunState, StepState, Trigger
from toband.domain.transition import Ids
from toband.engine.errors import RunTerminalError
from toband.engine.execution.run_actor import RunActor
from toband.engine.runs.approvals import Approvals
from toband.engine.runs.run_control import RunControl
from toband.ports import RunChange, UpdateResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEP = Step(id="gate", name="gate", job_type=JobType.APPROVAL, target="", kwargs={}, env={})
PLAN = Plan(Workflow(name="w", title="", labels={}, params={}, env={}, steps={"gate": STEP}))


class SlowStore:
    """A store that commits a change, and reports it only on request."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.answers = asyncio.Event()

    async def save(self, change: RunChange) -> UpdateResult:
        self.run = change.after
        await self.answers.wait()
        return UpdateResult.UPDATED

    async def get_run_page(self, run_id: str, *, limit: int) -> Run | None:
        return self.run


class Scene:
    """One run, and all that is asked of it."""

    def __init__(self) -> None:
        numbers = itertools.count()
        ids = Ids(new_id=lambda: f"id-{next(numbers)}", new_token=lambda: f"t-{next(numbers)}")
        run = PLAN.new_run(run_id="r", version=1, params={}, trigger=Trigger.API, caller="me", at=NOW)
        self.store = SlowStore()
        self.removed: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.actor_ = RunActor(
            PLAN,
            run,
            base_dir="",
            store=cast(Any, self.store),
            clock=cast(Any, self),
            ids=ids,
            act=self.act,
            start=self.start,
            announcing=cast(Any, self),
            locks=run_locks(),
        )
        self.approvals = Approvals(cast(Any, self))
        self.control = RunControl(cast(Any, self), cast(Any, self.store), cast(Any, None), remove=self.remove)

    def now(self) -> datetime:
        return NOW

    def start(self, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def act(self, actor: RunActor, effects: object) -> None:
        pass

    def of_run(self, plan: object, before: Run, after: Run) -> tuple[()]:
        return ()

    async def find(self, run_id: str) -> RunActor:
        return self.actor_

    def actor(self, run_id: str) -> RunActor:
        return self.actor_

    async def remove(self, run_id: str) -> bool:
        self.removed.append(run_id)
        return True

    async def stored(self, event: Event) -> None:
        """Returns when what the event changes is on disk; the run's owner does not know that yet."""
        self.store.run = None
        self.store.answers.clear()
        self.actor_.post(event)
        await wait_for(lambda: self.store.run, "the change is not saved")
        assert self.actor_.run is not self.store.run

    async def after(self, asked: asyncio.Task[Any]) -> Any:
        """The answer to a client who asks before the owner knows of the commit."""
        await asyncio.sleep(0)
        self.store.answers.set()
        return await asked


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def decide(scene: Scene) -> asyncio.Task[Run]:
    return asyncio.create_task(
        scene.approvals.decide("r", "gate", approved=True, note="", by=user_identity(7, "me", None))
    )


async def waiting(scene: Scene) -> None:
    await scene.stored(RunStarted())
    assert scene.store.run is not None
    assert scene.store.run.steps["gate"].state is StepState.RUNNING


async def test_a_step_that_waits_on_disk_is_decided(scene: Scene) -> None:
    await waiting(scene)
    run = await scene.after(decide(scene))
    assert run.steps["gate"].state is StepState.SUCCEEDED


async def test_a_run_that_has_ended_on_disk_is_deleted_and_not_decided(scene: Scene) -> None:
    await waiting(scene)
    scene.store.answers.set()
    await asyncio.gather(*scene.tasks)
    await scene.stored(CancelRequested(reason=""))
    assert scene.store.run is not None
    assert scene.store.run.state is RunState.CANCELLED
    late = decide(scene)
    await scene.after(asyncio.create_task(scene.control.delete("r")))
    assert scene.removed == ["r"]
    with pytest.raises(RunTerminalError):
        await late
