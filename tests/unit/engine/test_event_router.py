"""Events are stored, resolved in order, and report the runs that they started."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

import pytest

from contract.builders import launched, save, stored_run, text
from contract.event_builders import on
from doubles.clock import Clock
from doubles.ids import numbered_ids
from doubles.sandbox import InlineSandbox
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toban.definition import DefinitionKind, Overlap
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.emitted_events import (
    DEPTH_MOST,
    Cause,
    Emitted,
    EventRun,
    EventRunOutcome,
    EventSource,
    EventState,
    Listener,
)
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run, RunState, StepRun, StepState, Trigger
from toband.engine.caller import CallOrigin, OriginLookup
from toband.engine.drain import DrainMode
from toband.engine.errors import (
    EventNotFoundError,
    EventSourceNotFoundError,
    RefusedError,
    WorkflowNotFoundError,
)
from toband.engine.events import event_router as events_module
from toband.engine.events.event_router import EventRouter
from toband.engine.execution.expression_evaluator import ExpressionEvaluator
from toband.engine.runs.run_factory import NewRun
from toband.engine.system_events import SystemEvents
from toband.ports import Request, Store, StoreError
from toband.store import SqlStore

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PATIENCE = 60.0


class Workflow:
    def __init__(self, event_overlap: Overlap) -> None:
        self.overlap, self.event_overlap, self.max_active_runs = Overlap.SKIP, event_overlap, 2


class Plan:
    def __init__(self, event_overlap: Overlap) -> None:
        self.workflow = Workflow(event_overlap)


class Runs:
    """Starts nothing; remembers what would begin."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.waiting = 0
        self.gone: set[str] = set()
        self.doubtful: list[str] = []
        self.known: dict[str, Run] = {}
        self.skips: set[str] = set()
        self.loaded = asyncio.Event()
        self.loaded.set()
        self._numbers = count(1)

    def event_runs(self) -> tuple[int, int]:
        return 0, self.waiting

    def active(self, run_id: str) -> Run | None:
        return self.known.get(run_id)

    async def triggered(
        self, workflow: str, event: Emitted, *, stored: Any, priority: int | None, scope: str, trigger: Trigger
    ) -> NewRun:
        if workflow in self.gone:
            raise WorkflowNotFoundError(workflow)
        run = Run(
            id=f"run-{next(self._numbers)}",
            workflow=workflow,
            version=1,
            created_at=NOW,
            trigger=trigger,
            event=event.seen(),
            depth=event.depth,
            priority=priority or 0,
            scope=scope,
        )
        plan = Plan(Overlap.SKIP if workflow in self.skips else Overlap.QUEUE)
        return NewRun(plan=cast(Any, plan), base_dir="", run=run)

    def begin(self, new: NewRun, run: Run) -> None:
        assert run.event is not None
        self.begun.append((run.event["id"], run.workflow))

    def begin_if_stored(self, new: NewRun) -> None:
        self.doubtful.append(new.run.id)


def listener(workflow: str, condition: str = "", priority: int = 0, *, enabled: bool = True) -> Listener:
    return Listener(workflow=workflow, position=0, condition=condition, priority=priority, enabled=enabled)


class Refusing:
    def __init__(self) -> None:
        self.why = ""

    def check(self, doing: str) -> None:
        if self.why:
            raise RefusedError(doing, self.why, condition="disk")


class Waits:
    """The events that were offered to waiting steps."""

    def __init__(self) -> None:
        self.offered: list[int] = []
        self.states: list[EventState] = []
        self.errors: list[OSError] = []

    async def offer(self, event: Emitted) -> None:
        if self.errors:
            raise self.errors.pop()
        self.offered.append(event.sequence)
        self.states.append(event.state)


class Scene:
    def __init__(self, store: SqlStore) -> None:
        self.store, self.runs, self.draining = FaultyStore(store), Runs(), DrainMode()
        self.waits = Waits()
        self._listeners: dict[str, Sequence[Listener]] = {}
        self.origins = OriginLookup(cast(Any, self.store), self.runs.active)
        self.admission = Refusing()
        ids = numbered_ids("event-")
        self.announcing = SystemEvents(Clock(NOW), ids)
        self.events = EventRouter(
            store=cast(Any, self.store),
            active=cast(Any, self.runs),
            queue=cast(Any, self.runs),
            intake=cast(Any, self.runs),
            origins=self.origins,
            clock=Clock(NOW),
            ids=ids,
            announcing=self.announcing,
            admission=self.admission,
            draining=self.draining,
            evaluation=ExpressionEvaluator(InlineSandbox()),
            waits=cast(Any, self.waits),
            started={"version": "1"},
        )

    def __call__(self, **listeners: Sequence[Listener]) -> Scene:
        """With the workflows that listen to each type of event."""
        self._listeners = listeners
        return self

    async def stores(self) -> Scene:
        """Stores the workflows, and starts nothing."""
        found: dict[str, list[tuple[str, Listener]]] = defaultdict(list)
        for event_type, listeners in self._listeners.items():
            for each in listeners:
                found[each.workflow].append((event_type, each))
        for workflow, triggers in found.items():
            made = tuple(on(kind, condition=each.condition, priority=each.priority) for kind, each in triggers)
            enabled = all(each.enabled for _, each in triggers)
            await self.store.create_workflow(text(workflow, triggers=made, enabled=enabled), at=NOW)
        return self

    async def stored(self) -> list[Emitted]:
        """The events, the oldest first."""
        return [*reversed(await self.store.list_events())]

    async def __aenter__(self) -> Scene:
        await self.stores()
        self._task = asyncio.get_running_loop().create_task(self.events.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def emit(self, event_type: str = "T", payload: Any = None, **rest: Any) -> Emitted:
        event, _ = await self.events.emit(event_type, payload, caller="me", **rest)
        return event


@pytest.fixture
async def scene(store: SqlStore) -> Scene:
    return Scene(store)


def started(event: Emitted) -> list[str]:
    return [row.workflow for row in event.runs if row.outcome is EventRunOutcome.STARTED]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever emits is answered when it is decided what that starts, also by a machine that pauses for a while."""
    monkeypatch.setattr(events_module, "ANSWER_WITHIN", PATIENCE)


async def test_the_highest_priority_is_started_first_then_by_name(scene: Scene) -> None:
    listening = [listener("b"), listener("a"), listener("low", priority=-5), listener("z", priority=9)]
    async with scene(T=listening):
        event = await scene.emit()
        assert (event.state, event.sequence) == (EventState.RESOLVED, 1)
        assert started(event) == ["z", "a", "b", "low"]
        assert [workflow for _, workflow in scene.runs.begun] == ["z", "a", "b", "low"]


async def test_a_workflow_starts_once_with_the_best_of_its_triggers_that_match(scene: Scene) -> None:
    listening = [
        listener("w", "event.payload.n > 100", priority=50),
        listener("w", "event.payload.n > 1", priority=20),
        listener("w", priority=3),
    ]
    async with scene(T=listening):
        event = await scene.emit(payload={"n": 7})
        (run,) = event.runs
        assert (run.workflow, run.priority) == ("w", 20)


async def test_conditions_decide_and_one_that_cannot_be_evaluated_does_not_match(scene: Scene) -> None:
    listening = [
        listener("no", "event.payload.n == 2"),
        listener("yes", "event.payload.n == 1"),
        listener("off", enabled=False),
        listener("wrong", "event.payload.missing == 1"),
    ]
    async with scene(T=listening):
        for name, kind in (("x", DefinitionKind.WORKFLOW), ("y", DefinitionKind.WORKFLOW), ("z", DefinitionKind.JOB)):
            await scene.store.create_workflow(text(name, kind=kind), at=NOW)
        assert started(await scene.emit(payload={"n": 1})) == ["yes"]
        candidates, others = await scene.events.explain("T", {"n": 1})
        assert [found.workflow for found in candidates] == ["yes", "no", "off", "wrong"]
        reasons = {found.workflow: found.reason for found in candidates}
        assert reasons["yes"] == "its condition is true"
        assert reasons["no"] == "its condition is false"
        assert reasons["off"] == "it is disabled"
        assert "missing" in reasons["wrong"]
        assert others == 3


async def active(scene: Scene, workflow: str, run_id: str, state: RunState = RunState.RUNNING) -> None:
    await stored_run(cast(Store, scene.store), workflow, id=run_id, state=state)


async def reasons(scene: Scene, event_id: str = "") -> list[tuple[str, bool, str]]:
    if event_id:
        found, _ = await scene.events.explain_stored(event_id)
    else:
        found, _ = await scene.events.explain("T", {})
    return [(each.workflow, each.matches, each.reason) for each in found]


async def test_what_overlap_would_skip_is_not_told_to_start(scene: Scene) -> None:
    await scene(T=[listener("queues"), listener("skips", priority=5)]).stores()
    scene.runs.skips.add("skips")
    for workflow, run_id in (("queues", "r1"), ("queues", "r2"), ("skips", "r3")):
        await active(scene, workflow, run_id)
    listens = "it listens to the type"
    assert await reasons(scene) == [("skips", True, listens), ("queues", True, listens)]
    await active(scene, "skips", "r4", RunState.SUCCEEDED)
    assert (await reasons(scene))[0] == ("skips", True, listens)
    await active(scene, "skips", "r5", RunState.PENDING)
    assert await reasons(scene) == [
        ("queues", True, listens),
        ("skips", False, "overlap: run skips#1 is active"),
    ]


async def test_what_cannot_be_made_is_not_told_to_start(scene: Scene) -> None:
    await scene(T=[listener("a"), listener("b")]).stores()
    scene.runs.gone.add("a")
    (first, second) = await reasons(scene)
    assert (first[:2], second[:2]) == (("b", True), ("a", False))
    assert "a" in second[2]


async def test_a_stored_event_is_judged_as_it_is_stored(scene: Scene) -> None:
    outside = "event.source == 'client' && event.depth == 0 && event.payload.n == 1"
    async with scene(T=[listener("w", outside)]):
        scene.runs.known["r"] = emitting(depth=0)
        inside = await scene.emit(payload={"n": 1}, origin=CallOrigin(run_id="r", token="token"))
        assert started(inside) == []
        assert await reasons(scene, inside.id) == [("w", False, "its condition is false")]
        from_outside = await scene.emit(payload={"n": 1})
        assert await reasons(scene, from_outside.id) == [("w", True, "its condition is true")]
        with pytest.raises(EventNotFoundError):
            await scene.events.explain_stored("nothing")


async def test_nothing_is_told_to_start_behind_a_chain_that_is_too_long(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        run = emitting(depth=DEPTH_MOST - 1)
        scene.runs.known[run.id] = run
        event = await scene.emit(origin=CallOrigin(run_id=run.id, token="token"))
        ((_, matches, reason),) = await reasons(scene, event.id)
        assert (matches, reason) == (False, event.reason)


async def test_the_workflow_of_a_schedule_is_told_whatever_it_listens_to(scene: Scene) -> None:
    async with scene(T=[listener("w", "event.depth > 3"), listener("x")]):
        bound = replace(scene.announcing.event("T", {}), workflow="w", schedule="s")
        await scene.store.add_events([bound])
        told = [("w", True, "its schedule starts it"), ("x", True, "it listens to the type")]
        assert await reasons(scene, bound.id) == told
        await scene.store.set_enabled("w", False, at=NOW)
        assert (await reasons(scene, bound.id))[1] == ("w", False, "disabled")


async def test_what_nobody_listens_to_is_kept_and_starts_nothing(scene: Scene) -> None:
    async with scene():
        event = await scene.emit("OTHER")
        assert (event.state, event.runs) == (EventState.RESOLVED, ())
        assert await scene.events.get(event.id) == event
        with pytest.raises(EventNotFoundError):
            await scene.events.get("nothing")


async def test_a_repeat_with_the_same_key_starts_nothing(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        first = await scene.emit(dedupe_key="k")
        second, is_new = await scene.events.emit("T", None, caller="me", dedupe_key="k")
        assert (second, is_new) == (first, False)
        assert len(scene.runs.begun) == 1


async def test_a_repeated_request_gets_the_first_answer_again(scene: Scene) -> None:
    request = Request(caller="me", rpc="EmitEvent", id="r", digest="d")
    async with scene(T=[listener("w")]):
        first = await scene.events.emit("T", None, caller="me", request=request)
        assert (first[1], started(first[0])) == (True, ["w"])
        assert await scene.events.emit("T", None, caller="me", request=request) == first
        assert len(scene.runs.begun) == 1


async def test_a_repeat_does_not_wait_for_an_event_that_somebody_else_waits_for(scene: Scene) -> None:
    request = Request(caller="me", rpc="EmitEvent", id="r", digest="d")
    await scene(T=[listener("w")]).stores()
    scene.draining.begin()
    await scene.events.emit("T", None, caller="me", request=request)
    scene.draining.end()
    # Nobody resolves anything here: whoever waited would wait for all of the time that there is.
    async with asyncio.timeout(PATIENCE / 2):
        event, is_new = await scene.events.emit("T", None, caller="me", request=request)
    assert (event.state, is_new) == (EventState.PENDING, True)


async def test_who_listens_is_asked_again_when_definitions_change(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        await scene.emit()
        await scene.emit()
        assert scene.store.calls["listeners"] == 1
        await scene.store.update_workflow(text("w"), at=NOW)
        await scene.store.create_workflow(text("v", triggers=(on("T"),)), at=NOW)
        scene.events.changed()
        assert started(await scene.emit()) == ["v"]


async def test_a_chain_that_is_too_long_is_cut(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        event = None
        for depth, state in ((DEPTH_MOST - 1, EventState.RESOLVED), (DEPTH_MOST, EventState.CUT)):
            run = emitting(depth=depth - 1)
            scene.runs.known[run.id] = run
            event = await scene.emit(origin=CallOrigin(run_id=run.id, token="token"))
            assert (event.depth, event.state) == (depth, state)
            assert (event.source, event.source_run) == (EventSource.STEP, run.id)
            assert event.source_step == "step"
        assert event is not None
        assert "chain" in event.reason
        assert len(scene.runs.begun) == 1


def emitting(depth: int) -> Run:
    attempt = Attempt(
        id="a",
        run_id="r",
        step="step.check",
        number=1,
        ordinal=0,
        token="token",
        state=AttemptState.RUNNING,
        created_at=NOW,
    )
    step = StepRun(id="step", index=0, state=StepState.CHECKING, attempt=attempt)
    return Run(
        id="r",
        workflow="w",
        version=1,
        created_at=NOW,
        state=RunState.RUNNING,
        depth=depth,
        steps={"step": step},
    )


async def test_an_attempt_that_is_over_may_have_left_somebody_who_emits(scene: Scene) -> None:
    async with scene(OTHER=[listener("w")]):
        store = cast(Store, scene.store)
        run = await stored_run(store, "w")
        attempt = (await save(store, run, launched(run, "s0"))).steps["s0"].attempt
        assert attempt is not None
        scene.runs.known[run.id] = replace(run, steps={})
        event = await scene.emit(origin=CallOrigin(run_id=run.id, token=attempt.token))
        assert event.source_step == "s0"
        with pytest.raises(EventSourceNotFoundError):
            await scene.emit(origin=CallOrigin(run_id=run.id, token="forged"))
        with pytest.raises(EventSourceNotFoundError):
            await scene.emit(origin=CallOrigin(run_id="nowhere", token=attempt.token))


async def test_what_comes_of_a_call_is_as_deep_as_the_run_of_its_step(scene: Scene) -> None:
    scene.runs.known["r"] = emitting(depth=3)
    origins = scene.origins
    assert origins is not None
    found = await origins.cause(CallOrigin(run_id="r", token="token"))
    assert found == Cause(run_id="r", step="step", depth=3)
    # A process may outlive its run by weeks, and may still start runs.
    for unknown in (None, CallOrigin(run_id="r", token="forged"), CallOrigin(run_id="gone", token="t")):
        assert await origins.cause(unknown) is None


async def test_a_workflow_that_is_gone_is_told_and_holds_up_no_other(scene: Scene) -> None:
    async with scene(T=[listener("a"), listener("b")]):
        scene.runs.gone.add("a")
        event = await scene.emit()
        assert started(event) == ["b"]
        (skipped,) = (row for row in event.runs if row.outcome is EventRunOutcome.SKIPPED)
        assert (skipped.workflow, skipped.reason is None) == ("a", False)


async def test_the_workflow_of_a_schedule_is_started_whatever_it_listens_to(scene: Scene) -> None:
    async with scene(T=[listener("w"), listener("x", priority=3)]):
        bound = replace(scene.announcing.event("T", {}), workflow="w", schedule="s")
        await scene.store.add_events([bound])
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "nothing was started")
        (event,) = await scene.stored()
        assert sorted(started(event)) == ["w", "x"]


async def test_the_workflow_of_a_schedule_is_not_started_while_it_is_disabled(scene: Scene) -> None:
    async with scene(OTHER=[listener("w", enabled=False)]):
        await scene.store.add_events([replace(scene.announcing.event("T", {}), workflow="w")])
        scene.events.look()
        await wait_for(lambda: scene.store.calls["resolve_event"], "nothing was decided")
        ((row,),) = [event.runs for event in await scene.stored()]
        assert row == EventRun(
            workflow="w", priority=0, outcome=EventRunOutcome.SKIPPED, reason=NotStarted(NotStartedReason.DISABLED)
        )


async def test_while_the_daemon_drains_events_wait_and_are_made_up_for(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        scene.draining.begin()
        event = await scene.emit()
        assert event.state is EventState.PENDING
        assert scene.events.why_pending() == "the daemon drains"
        scene.draining.end()
        await wait_for(lambda: scene.runs.begun, "it was never started")


async def test_nothing_is_decided_about_events_that_come_after_a_drain_has_begun(scene: Scene) -> None:
    """Also if it begins while the resolver is asking what there is to do."""
    async with scene(T=[listener("w")]):
        await scene.emit()
        asked, go_on = asyncio.Event(), asyncio.Event()
        store: Any = scene.store
        last_event = store.last_event

        async def slow() -> int:
            asked.set()
            await go_on.wait()
            return int(await last_event())

        store.last_event = slow
        scene.events.look()
        await asked.wait()
        scene.draining.begin()
        event = await scene.emit()
        go_on.set()
        scene.events.look()
        del store.last_event
        await wait_for(lambda: not scene.announcing.fresh.is_set(), "it does not look")
        assert event.state is EventState.PENDING
        assert len(scene.runs.begun) == 1
        scene.draining.end()
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "it was never started")


async def test_while_too_many_wait_and_while_runs_are_refused_events_wait(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        scene.runs.waiting = 1000
        assert (await scene.emit()).state is EventState.PENDING
        scene.runs.waiting = 999
        await wait_for(lambda: scene.runs.begun, "it was never started")
        scene.admission.why = "the disk is full"
        assert "the disk is full" in scene.events.why_pending()
        with pytest.raises(RefusedError):
            await scene.emit()
        await scene.store.add_events([scene.announcing.event("T", {})])
        scene.events.look()
        scene.admission.why = ""
        await wait_for(lambda: len(scene.runs.begun) == 2, "it was never started")


async def test_what_the_database_does_not_take_is_tried_again_in_order(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        scene.store.fail("resolve_event", StoreError("not now"), times=3)
        events = [scene.announcing.event("T", number) for number in range(2)]
        await scene.store.add_events(events)
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "it was never started")
        assert sorted(scene.runs.begun) == sorted((event.id, "w") for event in events)
        # Whether a commit that failed was made after all is looked up for each of them.
        assert len(scene.runs.doubtful) == 3


async def test_one_that_cannot_be_decided_says_so_and_holds_up_no_other(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        scene.store.fail("listeners", RuntimeError("broken"), times=1)
        await scene.store.add_events([scene.announcing.event("T", {"n": number}) for number in range(2)])
        scene.events.look()
        await wait_for(lambda: scene.runs.begun, "the second was never started")
        first, second = await scene.stored()
        assert (first.state, started(first)) == (EventState.RESOLVED, [])
        assert started(second) == ["w"]


async def test_the_start_of_the_daemon_is_an_event_if_somebody_listens(scene: Scene) -> None:
    async with scene(DAEMON_STARTED=[listener("w")]):
        await wait_for(lambda: scene.runs.begun, "nobody said so")
        (event,) = await scene.stored()
        assert (event.type, event.payload) == ("DAEMON_STARTED", {"version": "1"})
        scene.events.look()
        await scene.emit("OTHER")
        assert len(await scene.stored()) == 2


async def test_the_start_of_the_daemon_is_no_event_if_nobody_listens(scene: Scene) -> None:
    async with scene():
        await scene.emit("OTHER")
        assert len(await scene.stored()) == 1


async def test_the_start_is_not_stored_for_nobody_while_definitions_change(scene: Scene) -> None:
    store: Any = scene.store
    listened_types, asked = store.listened_types, 0

    async def changing() -> frozenset[str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            scene.events.changed()
        return frozenset(await listened_types())

    store.listened_types = changing
    async with scene:
        await wait_for(lambda: asked == 2, "it is not looked at again")
        await scene.emit("OTHER")
        assert [event.type for event in await scene.stored()] == ["OTHER"]


async def test_what_the_daemon_announces_is_stored_only_if_somebody_listens(scene: Scene) -> None:
    async with scene(FILE_CHANGED=[listener("w")]):
        await scene.emit("OTHER")
        await scene.events.announce("FILE_CHANGED", [1, 2])
        await scene.events.announce("RUN_FAILED", [3])
        await wait_for(lambda: len(scene.runs.begun) == 2, "nothing was started")
        assert [event.payload for event in (await scene.stored())[1:]] == [1, 2]


async def test_who_watches_is_woken_when_events_are_resolved_and_at_the_end(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        watching = asyncio.get_running_loop().create_task(scene.events.wait_beyond(1))
        await scene.emit()
        assert await scene.events.wait_beyond(0) == 1
        assert not watching.done()
        await scene.emit()
        assert await watching == 2
        waiting = asyncio.get_running_loop().create_task(scene.events.wait_beyond(2))
        scene.events.close()
        assert await waiting == -1


@pytest.mark.parametrize(("event_type", "key"), [("", ""), ("a b", ""), ("T", "x" * 257), ("T", "a\nb")])
async def test_what_cannot_be_a_type_or_a_key_is_refused(scene: Scene, event_type: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"character|empty"):
        await scene.events.emit(event_type, None, caller="me", dedupe_key=key)
    assert await scene.stored() == []


async def test_events_are_offered_to_waiting_steps_once_in_order_and_before_they_are_resolved(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        for _ in range(3):
            await scene.emit()
        events = await scene.stored()
    assert scene.waits.offered == [event.sequence for event in events]
    assert set(scene.waits.states) == {EventState.PENDING}
    assert {event.state for event in events} == {EventState.RESOLVED}


async def test_events_that_may_start_nothing_are_offered_all_the_same(scene: Scene) -> None:
    async with scene(T=[listener("w")]):
        scene.draining.begin()
        event = await scene.emit()
        await wait_for(lambda: bool(scene.waits.offered), "it is not offered")
        assert [each.state for each in await scene.stored()] == [EventState.PENDING]
        scene.draining.end()
        await wait_for(lambda: bool(scene.runs.begun), "it starts nothing")
    assert scene.waits.offered == [event.sequence]


async def test_an_event_that_cannot_be_offered_stays_pending_and_is_offered_again(scene: Scene) -> None:
    scene.waits.errors = [OSError(24, "no descriptors")]
    async with scene(T=[listener("w")]):
        event = await scene.emit()
        assert event.state is EventState.RESOLVED
    assert (scene.waits.offered, scene.runs.begun) == ([event.sequence], [(event.id, "w")])
