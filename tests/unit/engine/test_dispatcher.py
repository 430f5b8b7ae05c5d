"""Dispatcher: which attempt gets the next slot, and the fate of waiting attempts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from doubles.clock import Clock
from doubles.launcher import ScriptedLauncher
from doubles.locks import run_locks
from helpers.wait import wait_for
from toban.definition import Input, JobType, RenderError, Step, Workflow
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.lock_rules import LockRequest, LockUser
from toband.domain.plan import Plan
from toband.domain.run_events import AttemptEnded, AttemptVoided, Event
from toband.domain.run_model import Run
from toband.engine.execution.dispatcher import CONDITION, Dispatcher
from toband.engine.health.health_conditions import Health
from toband.ports import StoreError, StoreTakenOverError
from toband.supervise.files.run_files import RunFiles

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Built:
    def __init__(self, token: str) -> None:
        self.token = token


class LaunchBuilder:
    async def rendered(self, _plan: object, _run: object, given: Attempt, **_: object) -> None:
        if given.token == "bad":
            raise RenderError("cannot use it")

    def build(self, _plan: object, _run: object, given: Attempt, *_: object, **__: object) -> Built:
        return Built(given.token)

    def checked_context(self, *_: object) -> str:
        return ""

    def workspace(self, *_: object) -> str:
        return ""


class Handing:
    def __init__(self) -> None:
        self.laying_out = self.stopped = False

    async def take_over(self, *_: object, **__: object) -> None:
        return None

    async def lay_out(self, *_: object, **__: object) -> None:
        """Never ends by itself."""
        self.laying_out = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise


class Metadata:
    def of_run(self, *_: object) -> None:
        return None

    def of_ended(self, *_: object) -> None:
        return None


class Actor:
    def __init__(self, run_id: str, priority: int, *, inputs: bool = False) -> None:
        run = Run(id=run_id, workflow="w", version=1, created_at=NOW)
        self.run = replace(run, priority=priority)
        step = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})
        if inputs:
            step = replace(step, inputs=(Input(step="s", artifact="o", path="o"),))
        self.plan = Plan(Workflow(name="w", title="", labels={}, params={}, env={}, steps={"s": step}))
        self.base_dir = ""
        self.prepared = False
        self.preparing = asyncio.Lock()
        self.posted: list[Event] = []

    def post(self, event: Event) -> None:
        self.posted.append(event)

    def time_left(self) -> None:
        return None


def attempt(token: str, ordinal: int = 0) -> Attempt:
    return Attempt(
        id=f"id-{token}",
        run_id="r",
        step="s",
        number=1,
        ordinal=ordinal,
        token=token,
        state=AttemptState.STARTING,
        created_at=NOW,
    )


class House:
    def __init__(self, limit: int, artifact_time: float = 3600) -> None:
        self.launcher = ScriptedLauncher()
        self.artifact_flow = Handing()
        self.health = Health(Clock(NOW))
        self.tasks: set[asyncio.Task[None]] = set()
        self.locks = run_locks()
        self.launches = Dispatcher(
            launcher=cast(Any, self.launcher),
            launch_builder=cast(Any, LaunchBuilder()),
            artifact_flow=cast(Any, self.artifact_flow),
            metadata=cast(Any, Metadata()),
            values=cast(Any, None),
            secrets=cast(Any, None),
            maskers=cast(Any, None),
            clock=Clock(NOW),
            conditions=self.health,
            locks=self.locks,
            check_owner=self._check_owner,
            limit=limit,
            artifact_time=artifact_time,
            find=lambda _: None,
            start=self._start,
        )
        self.database_error: StoreError | None = None

    async def _check_owner(self) -> None:
        if self.database_error is not None:
            raise self.database_error

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def launch(self, actor: Actor, token: str, ordinal: int = 0) -> Attempt:
        made = replace(attempt(token, ordinal), run_id=actor.run.id)
        await self.launches.launch(cast(Any, actor), made)
        return made


async def test_slots_go_by_priority_then_by_age_then_by_order() -> None:
    house = House(limit=1)
    old, young, urgent, late = (
        Actor("01", 0),
        Actor("02", 0),
        Actor("03", 10),
        Actor("04", -5),
    )
    await house.launch(old, "first")
    await house.launch(late, "background")
    await house.launch(young, "young-0", 0)
    await house.launch(young, "young-1", 1)
    await house.launch(old, "old", 7)
    await house.launch(urgent, "urgent")
    assert house.launcher.launched == ["first"]
    assert house.launches.waiting == 5
    expected = ["first", "urgent", "old", "young-0", "young-1", "background"]

    def launched(house: House, count: int) -> bool:
        return len(house.launcher.launched) == count

    for count, token in enumerate(expected[:-1], 2):
        house.launches.over(token)
        await wait_for(partial(launched, house, count), token)
    assert house.launcher.launched == expected
    assert house.launches.waiting == 0


async def test_a_run_with_many_attempts_gives_way_to_another() -> None:
    """A later run waited until all that an older one had queued was launched."""
    house = House(limit=1)
    flood, other = Actor("01", 0), Actor("02", 0)
    for number in range(100):
        await house.launch(flood, f"flood-{number}", number)
    await house.launch(other, "other")
    house.launches.over("flood-0")
    house.launches.over("flood-1")
    await wait_for(lambda: len(house.launcher.launched) == 3, "it does not happen")
    assert house.launcher.launched == ["flood-0", "flood-1", "other"]


async def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    house = House(limit=1)
    await house.launch(Actor("01", 0), "a")
    await house.launch(Actor("02", 0), "b")
    house.launches.over("a")
    await house.launch(Actor("03", 0), "c")
    await wait_for(lambda: len(house.launcher.launched) == 2, "it does not happen")
    assert house.launcher.launched == ["a", "b"]


async def test_what_waits_can_be_withdrawn_and_never_starts() -> None:
    house = House(limit=1)
    actor = Actor("01", 0)
    running = await house.launch(actor, "a")
    waiting = await house.launch(actor, "b")
    house.launches.stop(cast(Any, actor), waiting)
    house.launches.stop(cast(Any, actor), running)
    assert actor.posted == [AttemptVoided(step="s", token="b")]
    assert house.launcher.stopped == ["a"]
    house.launches.over("a")
    await asyncio.sleep(0)
    assert house.launcher.launched == ["a"]
    assert not house.launches.waits("b")


@pytest.mark.parametrize(
    ("error", "launched"),
    [(StoreTakenOverError("another toband took it over"), ["a"]), (StoreError("down"), ["a", "b"])],
    ids=["taken over", "failing"],
)
async def test_what_waited_is_not_launched_when_the_database_is_another_daemons(
    error: StoreError, launched: list[str]
) -> None:
    house = House(limit=1)
    await house.launch(Actor("01", 0), "a")
    await house.launch(Actor("02", 0), "b")
    house.database_error = error
    house.launches.over("a")
    await wait_for(lambda: not house.tasks, "the launch goes on")
    assert house.launcher.launched == launched


@pytest.mark.parametrize(
    ("age", "launched"),
    [(0.05, ["a"]), (0.5, []), (-5, [])],
    ids=["fresh", "stopped after the commit", "clock set back"],
)
async def test_an_attempt_saved_long_ago_is_not_launched_when_the_database_is_another_daemons(
    age: float, launched: list[str]
) -> None:
    """The daemon may be stopped between the commit and the launch, and meet a free slot when it is resumed."""
    house = House(limit=1)
    house.database_error = StoreTakenOverError("another toband took it over")
    made = replace(attempt("a"), created_at=NOW - timedelta(seconds=age))
    await house.launches.launch(cast(Any, Actor("01", 0)), made)
    await wait_for(lambda: not house.tasks, "the launch goes on")
    assert house.launcher.launched == launched


async def test_what_was_found_running_has_its_place() -> None:
    house = House(limit=2)
    for token in ("x", "y", "z"):
        house.launches.attached(attempt(token))
    await house.launch(Actor("01", 0), "new")
    assert house.launches.waits("new")
    house.launches.over("x")
    assert house.launches.waits("new"), "more run than may"
    house.launches.over("y")
    await wait_for(lambda: house.launcher.launched == ["new"], "it does not happen")


async def test_a_launch_that_cannot_be_built_fails_and_frees_its_place() -> None:
    house = House(limit=1)
    actor = Actor("01", 0)
    await house.launch(actor, "bad")
    (event,) = actor.posted
    assert isinstance(event, AttemptEnded)
    assert (event.not_started, event.error) == (True, "cannot use it")
    await house.launch(actor, "good")
    assert house.launcher.launched == ["good"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EROFS, errno.EAGAIN])
async def test_what_the_system_refuses_for_now_is_tried_again(code: int) -> None:
    house = House(limit=2)
    actor = Actor("01", 0)
    house.launcher.error = OSError(code, "no")
    await house.launch(actor, "a")
    await wait_for(lambda: house.health.conditions, "it does not happen")
    (condition,) = house.health.conditions
    assert condition.name == CONDITION
    assert "1 wait" in condition.detail
    assert actor.posted == []
    house.launcher.error = None
    await wait_for(lambda: house.launcher.launched == ["a"], "it does not happen")
    await wait_for(lambda: not house.health.conditions, "it does not happen")


async def test_what_the_system_refuses_can_be_withdrawn_meanwhile() -> None:
    house = House(limit=1)
    actor = Actor("01", 0)
    house.launcher.error = OSError(errno.ENOSPC, "no")
    refused = await house.launch(actor, "a")
    house.launches.stop(cast(Any, actor), refused)
    assert actor.posted == [AttemptVoided(step="s", token="a")]
    house.launcher.error = None
    await wait_for(lambda: not house.tasks, "it does not happen")
    assert house.launcher.launched == []
    assert not house.health.conditions


async def test_siblings_prepare_their_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that did so at once renamed the same new file: the second did not find it, and failed for good."""
    both = threading.Barrier(2, timeout=0.5)
    rename = os.replace

    def replace(old: str, new: str) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()
        rename(old, new)

    monkeypatch.setattr("toband.supervise.files.run_files.os.replace", replace)
    house = House(limit=2)
    files = RunFiles(str(tmp_path / "runs"))

    async def prepare(run_id: str, *_: object) -> None:
        await asyncio.to_thread(files.prepare, run_id, {"n": 1})

    monkeypatch.setattr(house.launcher, "prepare", prepare)
    actor = Actor("01", 0)
    await asyncio.gather(house.launch(actor, "a"), house.launch(actor, "b", 1))
    assert actor.posted == []
    assert sorted(house.launcher.launched) == ["a", "b"]


async def test_a_directory_that_is_not_made_yet_is_waited_for() -> None:
    house = House(limit=1)
    actor = Actor("01", 0)
    house.launcher.error = FileNotFoundError(errno.ENOENT, "No such file or directory", "params")
    await house.launch(actor, "a")
    await wait_for(lambda: house.health.conditions, "it is not tried again")
    assert actor.posted == []
    house.launcher.error = None
    await wait_for(lambda: house.launcher.launched == ["a"], "it does not start")


async def test_what_will_never_work_is_a_failure() -> None:
    house = House(limit=1)
    actor = Actor("01", 0)
    house.launcher.error = OSError(errno.EACCES, "Permission denied")
    await house.launch(actor, "a")
    (event,) = actor.posted
    assert isinstance(event, AttemptEnded)
    assert "Permission denied" in event.error


async def test_what_is_stopped_while_it_is_handed_over_never_starts() -> None:
    house = House(limit=1)
    blocker, actor = Actor("01", 0), Actor("02", 0)
    await house.launch(blocker, "a")
    waiting = await house.launch(actor, "b")
    house.launcher.gate = asyncio.Event()
    house.launches.over("a")
    await wait_for(lambda: house.launcher.preparing, "it is not handed over")
    house.launches.stop(cast(Any, actor), waiting)
    house.launches.stop(cast(Any, actor), waiting)
    house.launcher.gate.set()
    await wait_for(lambda: not house.tasks, "it does not come to rest")
    assert house.launcher.launched == ["a"]
    assert actor.posted == [AttemptVoided(step="s", token="b")]
    await house.launch(blocker, "c")
    assert house.launcher.launched == ["a", "c"], "its place is free again"


async def test_inputs_that_take_long_hold_up_nothing_and_can_be_stopped() -> None:
    """The run's other events wait for `launch`: a cancel among them."""
    house = House(limit=1)
    actor = Actor("01", 0, inputs=True)
    made = await asyncio.wait_for(house.launch(actor, "a"), 10)
    await wait_for(lambda: house.artifact_flow.laying_out, "the inputs are not laid out")
    house.launches.stop(cast(Any, actor), made)
    assert actor.posted == [AttemptVoided(step="s", token="a")]
    await wait_for(lambda: not house.tasks, "it does not come to rest")
    assert house.artifact_flow.stopped
    assert house.launcher.launched == []


async def test_inputs_have_a_limited_time() -> None:
    house = House(limit=1, artifact_time=0.05)
    actor = Actor("01", 0, inputs=True)
    await house.launch(actor, "a")
    await wait_for(lambda: actor.posted, "it is not given up")
    (event,) = actor.posted
    assert isinstance(event, AttemptEnded)
    assert event.error == "cannot lay out its inputs within 50ms"
    assert house.artifact_flow.stopped


def with_locks(actor: Actor, *locks: str) -> Actor:
    step = replace(actor.plan.steps["s"], locks=locks)
    actor.plan = Plan(replace(actor.plan.workflow, steps={"s": step}))
    return actor


async def test_an_attempt_that_waits_for_a_lock_takes_no_slot_and_delays_no_other() -> None:
    house = House(limit=2)
    first, second = (with_locks(Actor(name, 0), "db") for name in ("01", "02"))
    held = await house.launch(first, "first")
    await house.launch(second, "second")
    assert not house.launches.waits("second"), "it waits for a lock"
    await house.launch(Actor("03", 0), "free")
    assert house.launcher.launched == ["first", "free"]
    house.launches.over("free")
    assert house.launcher.launched == ["first", "free"]
    house.locks.table.release(LockUser(held.run_id, "s"))
    house.launches.over("first")
    await wait_for(lambda: house.launcher.launched == ["first", "free", "second"], "it is not launched")


async def test_an_attempt_takes_its_slot_and_its_locks_at_once() -> None:
    house = House(limit=1)
    await house.launch(Actor("01", 0), "busy")
    waiting = await house.launch(with_locks(Actor("02", 0), "db"), "waiting")
    assert house.launches.waits("waiting")
    assert not house.locks.table.view("db").holders
    urgent = LockRequest(user=LockUser("00"), locks=("db",), rank=(-9, NOW, "00", -1))
    assert house.locks.table.ask(urgent)
    house.locks.table.take(urgent.user)
    house.launches.over("busy")
    assert house.launcher.launched == ["busy"]
    house.locks.table.release(urgent.user)
    await wait_for(lambda: house.launcher.launched == ["busy", "waiting"], "it is not launched")
    assert house.locks.table.view("db").holders == [LockUser(waiting.run_id, "s")]


async def test_an_attempt_that_is_withdrawn_waits_for_no_lock() -> None:
    house = House(limit=5)
    actors = [with_locks(Actor(name, 0), "db") for name in ("01", "02", "03")]
    held, stopped, _ = [await house.launch(actor, actor.run.id) for actor in actors]
    house.launches.stop(cast(Any, actors[1]), stopped)
    assert actors[1].posted == [AttemptVoided(step="s", token="02")]
    house.locks.table.release(LockUser(held.run_id, "s"))
    await wait_for(lambda: house.launcher.launched == ["01", "03"], "it is not launched")


async def test_a_step_fails_that_would_wait_for_an_earlier_lock_than_its_run_holds() -> None:
    house = House(limit=5)
    actor = with_locks(Actor("01", 0), "a")
    actor.plan = Plan(replace(actor.plan.workflow, locks=("b",)))
    await house.launch(actor, "first")
    (event,) = actor.posted
    assert isinstance(event, AttemptEnded)
    assert event.not_started
    assert "add a to the locks of the workflow" in event.error
