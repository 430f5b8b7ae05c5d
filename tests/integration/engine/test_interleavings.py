"""Requests, ends of processes, timeouts and crashes in any order: the real engine with processes of a script.

Every transition keeps the rules of the state table, and every answer is a state that the stored history of the run has.
Each case prints its seed and its requests. The seed decides what is asked and what processes do; it does not decide how
threads take turns, so a failure may need several repetitions. `scripts/faults` with this file plays 2,000, CI a slice.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Collection
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from doubles.engine import Engine, Processes, UnreliableStore, checked
from doubles.store import define
from faults.settings import LONG, SEED
from helpers.wait import wait_for
from toband.domain.identity import user_identity
from toband.domain.run_model import Run, RunState, StepState, Trigger
from toband.domain.state_table import RUN_MOVES, STEP_MOVES
from toband.engine.errors import (
    NothingToRetryError,
    NotWaitingError,
    QueueFullError,
    RunActiveError,
    RunTerminalError,
    StepNotFoundError,
)
from toband.ports import ActiveRunError
from toband.store import SqlStore
from toband.supervise.files.run_files import RunFiles
from unit.domain.rules import check_rules

CASES = 2000 if LONG else 40
BATCH = 20
PATIENCE = 60.0
MOVES_WITHIN = 0.02
LOCKS = {"pair": 2}
WORKFLOWS = {
    "graph": """
name: graph
description: x
overlap: queue
max_active_runs: 2
timeout: 150ms
concurrency: 2
steps:
  a: {run: x, on_failure: retry, max_retries: 2, retry: {delay: 5ms}, timeout: 20ms}
  b: {run: x, on_failure: continue, timeout: 15ms, on_lost: rerun}
  c: {run: x, depends_on: [a], for_each: [1, 2, 3], max_parallel: 2, on_failure: continue, timeout: 20ms}
  d: {run: x, depends_on: [b, c], when: "true"}
finally:
  - {name: tidy, run: x, timeout: 20ms}
finally_timeout: 50ms
""",
    "waits": """
name: waits
description: x
overlap: allow
locks: [all]
steps:
  pause: {wait: {for: 10ms}}
  event: {wait: {event: never}, timeout: 15ms, on_failure: continue}
  gate: {job_type: approval, timeout: 40ms, on_failure: continue}
  last: {run: x, depends_on: [pause, event, gate], locks: [last]}
finally:
  - {name: tidy, run: x, locks: [pair], timeout: 20ms}
  - {name: after, run: x, depends_on: [tidy], timeout: 20ms}
finally_timeout: 50ms
""",
    "loop": """
name: loop
description: x
overlap: allow
steps:
  todo:
    run: x
    timeout: 80ms
    locks: [pair]
    completion_check: {run: x, timeout: 10ms}
    max_iterations: 4
    interval: 5ms
    on_iterations_exhausted: continue
  child: {job_type: workflow, target: graph, depends_on: [todo], on_failure: continue}
on_cancel: {name: sorry, run: x}
finally_timeout: 50ms
""",
}


class Scene:
    """One case: random requests, and their answers."""

    def __init__(self, number: int, root: Path, store: SqlStore, rules: Rules) -> None:
        self.rules = rules
        self.chance = Random(f"{SEED}-{number}")
        self.root = root
        self.store = UnreliableStore(store, self.chance, 0.03)
        self.processes = Processes(RunFiles(str(root / "runs")), self.chance)
        self.runs: list[str] = []
        self.answers: list[Run] = []
        self.asked: set[asyncio.Task[None]] = set()
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        return Engine(self.root, self.store, self.processes, LOCKS)

    async def play(self) -> None:
        await self.engine.start()
        for _ in range(self.chance.randint(6, 16)):
            await self.rules.see(self.chance.choice([0, 0, 1, 4, 10]))
            requests = [self.start, self.cancel, self.retry, self.pause, self.resume, self.decide]
            request = self.chance.choices([*requests, None], [5, 4, 2, 2, 2, 2, 2])[0]
            print("crash" if request is None else request.__name__)
            if request is None:
                await self.crash()
            else:
                self.ask(request())
        await self.come_to_rest()
        await self.check()
        await self.engine.crash()

    def ask(self, request: Awaitable[Run]) -> None:
        async def answered() -> None:
            try:
                self.answers.append(await request)
            except RunTerminalError as error:
                self.refused(error.run, terminal=True)
            except RunActiveError as error:
                self.refused(error.run, terminal=False)
            except (ActiveRunError, NotWaitingError, NothingToRetryError, QueueFullError, StepNotFoundError):
                pass

        task = asyncio.get_running_loop().create_task(answered())
        self.asked.add(task)

    def refused(self, run: Run, *, terminal: bool) -> None:
        assert run.state.terminal is terminal
        self.answers.append(run)

    def any_run(self) -> str | None:
        return self.chance.choice(self.runs) if self.runs else None

    async def start(self) -> Run:
        engine = self.engine
        name = self.chance.choice(list(WORKFLOWS))
        run = await engine.parts.intake.start(name, {}, trigger=Trigger.API, caller="", request=None)
        self.runs.append(run.id)
        return run

    async def retry(self) -> Run:
        run_id = self.any_run()
        if run_id is None:
            return await self.start()
        run = await self.engine.parts.intake.retry(run_id, caller="", request=None)
        self.runs.append(run.id)
        return run

    async def cancel(self) -> Run:
        ends_finally = self.chance.random() < 0.5
        return await self.engine.control.cancel(self.any_run() or await self.new(), "x", ends_finally=ends_finally)

    async def pause(self) -> Run:
        return await self.engine.control.pause(self.any_run() or await self.new())

    async def resume(self) -> Run:
        return await self.engine.control.resume(self.any_run() or await self.new())

    async def decide(self) -> Run:
        approved = self.chance.random() < 0.5
        run_id = self.any_run() or await self.new()
        return await self.engine.approvals.decide(
            run_id, "gate", approved=approved, note="", by=user_identity(7, "me", None)
        )

    async def new(self) -> str:
        return (await self.start()).id

    async def crash(self) -> None:
        for task in self.asked:
            task.cancel()
        self.raise_failures(await asyncio.gather(*self.asked, return_exceptions=True))
        self.asked.clear()
        await self.engine.crash()
        self.engine = self.new_engine()
        await self.engine.start()

    def raise_failures(self, results: list[BaseException | None]) -> None:
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def come_to_rest(self) -> None:
        self.store.rate = 0
        self.raise_failures(await asyncio.wait_for(asyncio.gather(*self.asked, return_exceptions=True), 60))
        await asyncio.wait_for(self.engine.parts.active.loaded.wait(), 60)
        active = self.engine.parts.active

        def at_rest() -> bool:
            for run_id in list(active._actors):
                run = active.run(run_id)
                if run is not None and run.paused_at is not None:
                    self.ask(self.engine.control.resume(run_id))
            return not active._actors

        try:
            await wait_for(at_rest, "all runs end", PATIENCE)
        finally:
            self.tell_of_active()
        self.raise_failures(await asyncio.wait_for(asyncio.gather(*self.asked, return_exceptions=True), 60))

    def tell_of_active(self) -> None:
        """What a run that did not end waits for."""
        for actor in self.engine.parts.active._actors.values():
            run = actor.run
            print(run.id, run.workflow, run.state, "paused" if run.paused_at else "", run.current_ending)
            for step in run.steps.values():
                attempt = step.attempt
                print(" ", step.id, step.state, step.phase, attempt and (attempt.state, attempt.token), step.not_before)

    async def check(self) -> None:
        parts = self.engine.parts
        assert self.processes.running() == 0, "a process was left behind"
        assert parts.launches.waiting == 0
        assert await self.store.active_run_ids() == []
        histories = {}
        for run in await self.store.list_runs():
            histories[run.id] = entries = await self.store.history(run.id, after=0, limit=10_000)
            assert [entry.sequence for entry in entries] == list(range(1, run.sequence + 1))
            state, steps = RunState.PENDING, dict[str, StepState]()
            for entry in entries:
                assert state is entry.run.state or _leads(RUN_MOVES, state, entry.run.state)
                assert not state.terminal, "a run changed after its end"
                state = entry.run.state
                for name, step in entry.run.steps.items():
                    before = steps.get(name, StepState.PENDING)
                    assert before is step.state or _leads(STEP_MOVES, before, step.state), name
                    steps[name] = step.state
            assert run.state is state
            assert state.terminal
        for answer in self.answers:
            found = [entry.run.state for entry in histories[answer.id] if entry.sequence == answer.sequence]
            assert found == [answer.state] or answer.sequence == 0, "an answer is not what was stored"


def _leads(moves: Collection[tuple[Any, Any]], before: object, after: object) -> bool:
    """By one move, or several at once."""
    found, left = {before}, [before]
    while left:
        state = left.pop()
        new = {other for one, other in moves if one is state} - found
        found |= new
        left += new
    return after in found


class Rules:
    """What broke a rule. The engine goes on after an error, so it is raised at the end."""

    def __init__(self) -> None:
        self.broken: list[AssertionError] = []
        self._seen = asyncio.Event()

    async def see(self, count: int) -> None:
        """Waits for further transitions, unless nothing moves any more."""
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            for _ in range(count):
                self._seen.clear()
                await asyncio.wait_for(self._seen.wait(), MOVES_WITHIN)

    def check(self, *transition: Any) -> None:
        self._seen.set()
        try:
            check_rules(*transition)
        except AssertionError as error:
            self.broken.append(error)


async def play(number: int, root: Path, template: Path) -> None:
    print(f"TOBAN_TEST_SEED={SEED} number {number}", flush=True)
    await asyncio.to_thread(root.mkdir)
    shutil.copy(template, root / "toban.db")
    store = SqlStore(f"sqlite:///{(root / 'toban.db').as_posix()}")
    await store.open()
    rules = Rules()
    try:
        for text in WORKFLOWS.values():
            await define(store, text)
        with checked(rules.check):
            scene = Scene(number, root, store, rules)
            await scene.play()
    finally:
        await store.close()
    if rules.broken:
        raise rules.broken[0]
    shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(CASES // BATCH))
async def test_every_order_of_requests_ends_and_crashes_keeps_the_rules(
    batch: int, tmp_path: Path, store_template: Path
) -> None:
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        await play(number, tmp_path / str(number), store_template)
