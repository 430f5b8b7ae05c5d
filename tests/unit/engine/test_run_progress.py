"""Progress of live steps: read only when asked, rarely, and of a limited number of logs at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from toband.domain.attempt_model import Attempt, AttemptState, Progress
from toband.domain.run_model import Run, RunState, StepRun, StepState
from toband.engine.runs.run_progress import FRESH, LOGS_AT_ONCE, RunProgress

NOW = datetime.now(UTC)


def step(number: int, *, check: bool = False, state: AttemptState = AttemptState.RUNNING) -> StepRun:
    name = f"s{number}"
    attempt = Attempt(
        id=name,
        run_id="r",
        step=f"{name}.check" if check else name,
        number=1,
        ordinal=number,
        token=name,
        state=state,
        created_at=NOW,
    )
    return StepRun(
        id=name, index=number, state=StepState.RUNNING, attempt=attempt, progress=Progress(current=0, message="old")
    )


def run_of(*steps: StepRun) -> Run:
    found = {each.id: each for each in steps}
    current = steps[0].id if steps else ""
    return Run(
        id="r", workflow="w", version=1, created_at=NOW, state=RunState.RUNNING, steps=found, current_step=current
    )


class Scene:
    """An active run, and logs in which each step has reported its number."""

    def __init__(self, run: Run | None) -> None:
        self.active = run
        self.now = 100.0
        self.reads: list[list[str]] = []
        self.progress = RunProgress(cast(Any, self), cast(Any, Logs(self.reads)), lambda: self.now)

    def run(self, run_id: str) -> Run | None:
        return self.active

    async def of(self, run: Run) -> dict[str, Progress | None]:
        found = await self.progress.of(run)
        return {"": found.progress} | {name: each.progress for name, each in found.steps.items()}


class Logs:
    def __init__(self, reads: list[list[str]]) -> None:
        self._reads = reads

    async def progress(self, attempts: Sequence[Attempt]) -> list[Progress | None]:
        self._reads.append([attempt.token for attempt in attempts])
        await asyncio.sleep(0)
        return [None if each.token == "s2" else Progress(current=each.ordinal) for each in attempts]


async def test_live_steps_have_what_their_logs_say() -> None:
    run = run_of(step(1), step(2), step(3, state=AttemptState.COMPLETED), step(4, check=True))
    scene = Scene(run)
    found = await scene.of(run)
    old = Progress(current=0, message="old")
    # The second attempt has reported nothing yet; a check is not the step.
    assert found == {"": Progress(current=1), "s1": Progress(current=1), "s2": None, "s3": old, "s4": old}
    live = scene.progress.reporters("r")
    assert live is not None
    assert set(live.steps) == {"s1", "s2", "s4"}


async def test_a_run_that_has_ended_has_what_is_stored() -> None:
    run = replace(run_of(step(1)), progress=Progress(current=7))
    scene = Scene(None)
    assert await scene.progress.of(run) == run
    assert scene.progress.reporters("r") is None
    assert scene.reads == []


async def test_many_clients_cost_one_read() -> None:
    run = run_of(step(1), step(3))
    scene = Scene(run)
    await asyncio.gather(*(scene.of(run) for _ in range(50)))
    scene.now += FRESH / 2
    await scene.of(run)
    assert scene.reads == [["s1", "s3"]]
    scene.now += FRESH
    await scene.of(run)
    assert scene.reads[1:] == [["s1", "s3"]]


async def test_of_many_live_steps_some_are_read_at_a_time_and_all_in_turn() -> None:
    run = run_of(*(step(number) for number in range(1000, 1000 + 2 * LOGS_AT_ONCE + 10)))
    scene = Scene(run)
    found: dict[str, Progress | None] = {}
    for _ in range(6):
        found = await scene.of(run)
        scene.now += FRESH
    assert all(len(read) <= LOGS_AT_ONCE for read in scene.reads)
    assert all(found[name] == Progress(current=each.index) for name, each in run.steps.items())
    reads = Counter(token for read in scene.reads for token in read)
    assert max(reads.values()) - min(reads.values()) <= 1
