"""Events are taken, decided about in their order, and tell what they started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, cast

import pytest

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from helpers.waiting import wait_for
from toban.definition import Overlap
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
from toband.domain.run_model import (
    Attempt,
    AttemptState,
    Run,
    RunState,
    StepRun,
    StepState,
    Trigger,
)
from toband.domain.transition import Ids
from toband.engine.caller import CallOrigin, OriginLookup
from toband.engine.drain import DrainMode
from toband.engine.errors import (
    EventNotFoundError,
    EventSourceNotFoundError,
    RefusedError,
    WorkflowNotFoundError,
)
from toband.engine.events import event_router as events_module
from toband.engine.events.event_router import Events
from toband.engine.execution.expression_evaluator import Evaluation
from toband.engine.runs.run_factory import NewRun
from toband.engine.system_events import SystemEvents
from toband.ports import Counts, EventResolution, Request, Resolved, StoreError

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
        self, workflow: str, event: Emitted, *, stored: Any, priority: int | None, trigger: Trigger
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
        )
        plan = Plan(Overlap.SKIP if workflow in self.skips else Overlap.QUEUE)
        return NewRun(plan=cast(Any, plan), base_dir="", run=run)

    def begin(self, new: NewRun, run: Run) -> None:
        assert run.event is not None
        self.begun.append((run.event["id"], run.workflow))

    def begin_if_stored(self, new: NewRun) -> None:
        self.doubtful.append(new.run.id)


class Store:
    """Events in memory. `fails` is how many writes of resolutions fail."""

    def __init__(self, **listeners: Sequence[Listener]) -> None:
        self.listening: dict[str, Sequence[Listener]] = dict(listeners)
        self.events: list[Emitted] = []
        self.fails = 0
        self.asked = 0
        self.attempts: list[Attempt] = []
        self.enabled = True
        self.answered: dict[str, tuple[str, bool]] = {}
        self.active: list[Run] = []

    async def add_events(
        self, events: Sequence[Emitted], *, request: Request | None = None
    ) -> Sequence[tuple[Emitted, bool]]:
        answers = []
        if request is not None and request.id in self.answered:
            event_id, is_new = self.answered[request.id]
            return [(event, is_new) for event in self.events if event.id == event_id]
        for event in events:
            same = [e for e in self.events if event.dedupe_key and e.dedupe_key == event.dedupe_key]
            if same:
                answers.append((same[0], False))
                continue
            stored = replace(event, sequence=len(self.events) + 1)
            self.events.append(stored)
            answers.append((stored, True))
        if request is not None:
            self.answered[request.id] = (answers[0][0].id, answers[0][1])
        return answers

    async def listened_types(self) -> frozenset[str]:
        return frozenset(self.listening)

    async def listeners(self, event_type: str) -> Sequence[Listener]:
        self.asked += 1
        return self.listening.get(event_type, ())

    async def last_event(self) -> int:
        return len(self.events)

    async def pending_events(self, *, after: int = 0, limit: int = 100) -> Sequence[Emitted]:
        return [event for event in self.events if event.state is EventState.PENDING][:limit]

    async def resolve_event(self, resolution: EventResolution) -> Resolved | None:
        if self.fails:
            self.fails -= 1
            raise StoreError("not now")
        (event,) = (event for event in self.events if event.id == resolution.event_id)
        if event.state is not EventState.PENDING:
            return None
        rows = (*resolution.skipped, *(row for row, _, _ in resolution.runs))
        event = replace(event, state=resolution.state, reason=resolution.reason, runs=rows)
        self.events[event.sequence - 1] = event
        return Resolved(event=event, runs=tuple(run for _, run, _ in resolution.runs))

    async def get_event(self, event_id: str) -> Emitted | None:
        return next((event for event in self.events if event.id == event_id), None)

    async def get_workflow(self, name: str) -> Any:
        class Stored:
            enabled = self.enabled

        return Stored()

    async def get_run_page(self, run_id: str, *, limit: int) -> Run | None:
        return None

    async def run_attempts(self, run_id: str, *, from_ordinal: int) -> Sequence[Attempt]:
        return [each for each in self.attempts if each.ordinal >= from_ordinal]

    async def list_runs(self, *, workflow: str, states: Sequence[RunState], limit: int) -> Sequence[Run]:
        found = [run for run in self.active if run.workflow == workflow and run.state in states]
        return found[:limit]

    async def counts(self) -> Counts:
        return Counts(workflows=5, active_runs=0, jobs=2)


def listener(workflow: str, condition: str = "", priority: int = 0, **rest: Any) -> Listener:
    made = Listener(workflow=workflow, position=0, condition=condition, priority=priority, enabled=True)
    return replace(made, **rest)


class Refusing:
    def __init__(self) -> None:
        self.why = ""

    def check(self, doing: str) -> None:
        if self.why:
            raise RefusedError(doing, self.why, condition="disk")


class Scene:
    def __init__(self, **listeners: Sequence[Listener]) -> None:
        self.store, self.runs, self.draining = Store(**listeners), Runs(), DrainMode()
        self.origins = OriginLookup(cast(Any, self.store), self.runs.active)
        self.admission = Refusing()
        numbers = count(1)
        ids = Ids(
            new_id=lambda: f"event-{next(numbers)}",
            new_token=lambda: "t",
            boot_id="b",
            random=lambda: 0.5,
        )
        self.announcing = SystemEvents(Clock(NOW), ids)
        self.events = Events(
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
            evaluation=Evaluation(InlineSandbox()),
            started={"version": "1"},
        )

    async def __aenter__(self) -> Scene:
        self._task = asyncio.get_running_loop().create_task(self.events.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def emit(self, event_type: str = "T", payload: Any = None, **rest: Any) -> Emitted:
        event, _ = await self.events.emit(event_type, payload, caller="me", **rest)
        return event


def started(event: Emitted) -> list[str]:
    return [row.workflow for row in event.runs if row.outcome is EventRunOutcome.STARTED]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever emits is answered when it is decided what that starts, also by a machine that pauses for a while."""
    monkeypatch.setattr(events_module, "ANSWER_WITHIN", PATIENCE)


async def test_the_highest_priority_is_started_first_then_by_name() -> None:
    listening = [listener("b"), listener("a"), listener("low", priority=-5), listener("z", priority=9)]
    async with Scene(T=listening) as scene:
        event = await scene.emit()
        assert (event.state, event.sequence) == (EventState.RESOLVED, 1)
        assert started(event) == ["z", "a", "b", "low"]
        assert [workflow for _, workflow in scene.runs.begun] == ["z", "a", "b", "low"]


async def test_a_workflow_starts_once_with_the_best_of_its_triggers_that_match() -> None:
    listening = [
        listener("w", "event.payload.n > 100", priority=50),
        listener("w", "event.payload.n > 1", priority=20, position=1),
        listener("w", priority=3, position=2),
    ]
    async with Scene(T=listening) as scene:
        event = await scene.emit(payload={"n": 7})
        (run,) = event.runs
        assert (run.workflow, run.priority) == ("w", 20)


async def test_conditions_decide_and_one_that_cannot_be_evaluated_does_not_match() -> None:
    listening = [
        listener("no", "event.payload.n == 2"),
        listener("yes", "event.payload.n == 1"),
        listener("off", enabled=False),
        listener("wrong", "event.payload.missing == 1"),
    ]
    async with Scene(T=listening) as scene:
        assert started(await scene.emit(payload={"n": 1})) == ["yes"]
        candidates, others = await scene.events.explain("T", {"n": 1})
        assert [found.workflow for found in candidates] == ["yes", "no", "off", "wrong"]
        reasons = {found.workflow: found.reason for found in candidates}
        assert reasons["yes"] == "its condition is true"
        assert reasons["no"] == "its condition is false"
        assert reasons["off"] == "it is disabled"
        assert "missing" in reasons["wrong"]
        assert others == 3


def active(workflow: str, run_id: str, state: RunState = RunState.RUNNING) -> Run:
    return Run(id=run_id, workflow=workflow, version=1, created_at=NOW, state=state)


async def reasons(scene: Scene, event_id: str = "") -> list[tuple[str, bool, str]]:
    if event_id:
        found, _ = await scene.events.explain_stored(event_id)
    else:
        found, _ = await scene.events.explain("T", {})
    return [(each.workflow, each.matches, each.reason) for each in found]


async def test_what_overlap_would_skip_is_not_told_to_start() -> None:
    scene = Scene(T=[listener("queues"), listener("skips", priority=5)])
    scene.runs.skips.add("skips")
    scene.store.active = [active("queues", "r1"), active("queues", "r2"), active("skips", "r3")]
    listens = "it listens to the type"
    assert await reasons(scene) == [("skips", True, listens), ("queues", True, listens)]
    scene.store.active.append(active("skips", "r4", RunState.SUCCEEDED))
    assert (await reasons(scene))[0] == ("skips", True, listens)
    scene.store.active.append(active("skips", "r5", RunState.PENDING))
    assert await reasons(scene) == [
        ("queues", True, listens),
        ("skips", False, "overlap: run r5 is active"),
    ]


async def test_what_cannot_be_made_is_not_told_to_start() -> None:
    scene = Scene(T=[listener("a"), listener("b")])
    scene.runs.gone.add("a")
    (first, second) = await reasons(scene)
    assert (first[:2], second[:2]) == (("b", True), ("a", False))
    assert "a" in second[2]


async def test_a_stored_event_is_judged_as_it_is_stored() -> None:
    outside = "event.source == 'client' && event.depth == 0 && event.payload.n == 1"
    async with Scene(T=[listener("w", outside)]) as scene:
        scene.runs.known["r"] = emitting(depth=0)
        inside = await scene.emit(payload={"n": 1}, origin=CallOrigin(run_id="r", token="token"))
        assert started(inside) == []
        assert await reasons(scene, inside.id) == [("w", False, "its condition is false")]
        from_outside = await scene.emit(payload={"n": 1})
        assert await reasons(scene, from_outside.id) == [("w", True, "its condition is true")]
        with pytest.raises(EventNotFoundError):
            await scene.events.explain_stored("nothing")


async def test_nothing_is_told_to_start_behind_a_chain_that_is_too_long() -> None:
    async with Scene(T=[listener("w")]) as scene:
        run = emitting(depth=DEPTH_MOST - 1)
        scene.runs.known[run.id] = run
        event = await scene.emit(origin=CallOrigin(run_id=run.id, token="token"))
        ((_, matches, reason),) = await reasons(scene, event.id)
        assert (matches, reason) == (False, event.reason)


async def test_the_workflow_of_a_schedule_is_told_whatever_it_listens_to() -> None:
    async with Scene(T=[listener("w", "event.depth > 3"), listener("x")]) as scene:
        bound = replace(scene.announcing.event("T", {}), workflow="w", schedule="s")
        await scene.store.add_events([bound])
        told = [("w", True, "its schedule starts it"), ("x", True, "it listens to the type")]
        assert await reasons(scene, bound.id) == told
        scene.store.enabled = False
        assert (await reasons(scene, bound.id))[1] == ("w", False, "disabled")


async def test_what_nobody_listens_to_is_kept_and_starts_nothing() -> None:
    async with Scene() as scene:
        event = await scene.emit("OTHER")
        assert (event.state, event.runs) == (EventState.RESOLVED, ())
        assert await scene.events.get(event.id) == event
        with pytest.raises(EventNotFoundError):
            await scene.events.get("nothing")


async def test_a_repeat_with_the_same_key_starts_nothing() -> None:
    async with Scene(T=[listener("w")]) as scene:
        first = await scene.emit(dedupe_key="k")
        second, is_new = await scene.events.emit("T", None, caller="me", dedupe_key="k")
        assert (second, is_new) == (first, False)
        assert len(scene.runs.begun) == 1


async def test_a_repeated_request_gets_the_first_answer_again() -> None:
    request = Request(caller="me", rpc="EmitEvent", id="r", digest="d")
    async with Scene(T=[listener("w")]) as scene:
        first = await scene.events.emit("T", None, caller="me", request=request)
        assert (first[1], started(first[0])) == (True, ["w"])
        assert await scene.events.emit("T", None, caller="me", request=request) == first
        assert len(scene.runs.begun) == 1


async def test_a_repeat_does_not_wait_for_an_event_that_somebody_else_waits_for() -> None:
    request = Request(caller="me", rpc="EmitEvent", id="r", digest="d")
    scene = Scene(T=[listener("w")])
    scene.draining.begin()
    await scene.events.emit("T", None, caller="me", request=request)
    scene.draining.end()
    # Nobody resolves anything here: whoever waited would wait for all of the time that there is.
    async with asyncio.timeout(PATIENCE / 2):
        event, is_new = await scene.events.emit("T", None, caller="me", request=request)
    assert (event.state, is_new) == (EventState.PENDING, True)


async def test_who_listens_is_asked_again_when_definitions_change() -> None:
    async with Scene(T=[listener("w")]) as scene:
        await scene.emit()
        await scene.emit()
        assert scene.store.asked == 1
        scene.store.listening["T"] = [listener("v")]
        scene.events.changed()
        assert started(await scene.emit()) == ["v"]


async def test_a_chain_that_is_too_long_is_cut() -> None:
    async with Scene(T=[listener("w")]) as scene:
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


async def test_an_attempt_that_is_over_may_have_left_somebody_who_emits() -> None:
    async with Scene() as scene:
        run = emitting(depth=0)
        scene.runs.known["r"] = replace(run, steps={})
        attempt = run.steps["step"].attempt
        assert attempt is not None
        scene.store.attempts = [replace(attempt, step="gone", ordinal=3)]
        assert (await scene.emit(origin=CallOrigin(run_id="r", token="token"))).source_step == "gone"
        with pytest.raises(EventSourceNotFoundError):
            await scene.emit(origin=CallOrigin(run_id="r", token="forged"))
        with pytest.raises(EventSourceNotFoundError):
            await scene.emit(origin=CallOrigin(run_id="nowhere", token="token"))


async def test_what_comes_of_a_call_is_as_deep_as_the_run_of_its_step() -> None:
    scene = Scene()
    scene.runs.known["r"] = emitting(depth=3)
    origins = scene.origins
    assert origins is not None
    found = await origins.cause(CallOrigin(run_id="r", token="token"))
    assert found == Cause(run_id="r", step="step", depth=3)
    # A process may outlive its run by weeks, and may still start runs.
    for unknown in (None, CallOrigin(run_id="r", token="forged"), CallOrigin(run_id="gone", token="t")):
        assert await origins.cause(unknown) is None


async def test_a_workflow_that_is_gone_is_told_and_holds_up_no_other() -> None:
    async with Scene(T=[listener("a"), listener("b")]) as scene:
        scene.runs.gone.add("a")
        event = await scene.emit()
        assert started(event) == ["b"]
        (skipped,) = (row for row in event.runs if row.outcome is EventRunOutcome.SKIPPED)
        assert (skipped.workflow, "a" in skipped.reason) == ("a", True)


async def test_the_workflow_of_a_schedule_is_started_whatever_it_listens_to() -> None:
    async with Scene(T=[listener("w"), listener("x", priority=3)]) as scene:
        bound = replace(scene.announcing.event("T", {}), workflow="w", schedule="s")
        await scene.store.add_events([bound])
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "nothing was started")
        assert sorted(started(scene.store.events[0])) == ["w", "x"]


async def test_the_workflow_of_a_schedule_is_not_started_while_it_is_disabled() -> None:
    async with Scene() as scene:
        scene.store.enabled = False
        await scene.store.add_events([replace(scene.announcing.event("T", {}), workflow="w")])
        scene.events.look()
        await wait_for(lambda: scene.store.events[0].runs, "nothing was decided")
        (row,) = scene.store.events[0].runs
        assert row == EventRun(workflow="w", priority=0, outcome=EventRunOutcome.SKIPPED, reason="disabled")


async def test_while_the_daemon_drains_events_wait_and_are_made_up_for() -> None:
    async with Scene(T=[listener("w")]) as scene:
        scene.draining.begin()
        event = await scene.emit()
        assert event.state is EventState.PENDING
        assert scene.events.why_pending() == "the daemon drains"
        scene.draining.end()
        await wait_for(lambda: scene.runs.begun, "it was never started")


async def test_nothing_is_decided_about_events_that_come_after_a_drain_has_begun() -> None:
    """Also if it begins while the resolver is asking what there is to do."""
    async with Scene(T=[listener("w")]) as scene:
        await scene.emit()
        asked, go_on = asyncio.Event(), asyncio.Event()
        last_event = scene.store.last_event

        async def slow() -> int:
            asked.set()
            await go_on.wait()
            return await last_event()

        scene.store.last_event = slow  # type: ignore[method-assign]
        scene.events.look()
        await asked.wait()
        scene.draining.begin()
        event = await scene.emit()
        go_on.set()
        scene.events.look()
        scene.store.last_event = last_event  # type: ignore[method-assign]
        await wait_for(lambda: not scene.announcing.fresh.is_set(), "it does not look")
        assert event.state is EventState.PENDING
        assert len(scene.runs.begun) == 1
        scene.draining.end()
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "it was never started")


async def test_while_too_many_wait_and_while_runs_are_refused_events_wait() -> None:
    async with Scene(T=[listener("w")]) as scene:
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


async def test_what_the_database_does_not_take_is_tried_again_in_order() -> None:
    async with Scene(T=[listener("w")]) as scene:
        scene.store.fails = 3
        events = [scene.announcing.event("T", number) for number in range(2)]
        await scene.store.add_events(events)
        scene.events.look()
        await wait_for(lambda: len(scene.runs.begun) == 2, "it was never started")
        assert sorted(scene.runs.begun) == sorted((event.id, "w") for event in events)
        # Whether a commit that failed was made after all is looked up for each of them.
        assert len(scene.runs.doubtful) == 3


async def test_one_that_cannot_be_decided_says_so_and_holds_up_no_other() -> None:
    class Broken(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise RuntimeError("broken")

        def __iter__(self) -> Any:
            raise RuntimeError("broken")

        def __len__(self) -> int:
            return 1

    async with Scene(T=[listener("w", "event.payload.n == 1")]) as scene:
        await scene.store.add_events(
            [scene.announcing.event("T", {"n": Broken()}), scene.announcing.event("T", {"n": 1})]
        )
        scene.events.look()
        await wait_for(lambda: scene.runs.begun, "the second was never started")
        assert scene.store.events[0].state is EventState.RESOLVED


async def test_the_start_of_the_daemon_is_an_event_if_somebody_listens() -> None:
    async with Scene(DAEMON_STARTED=[listener("w")]) as scene:
        await wait_for(lambda: scene.runs.begun, "nobody said so")
        (event,) = scene.store.events
        assert (event.type, event.payload) == ("DAEMON_STARTED", {"version": "1"})
        scene.events.look()
        await scene.emit("OTHER")
        assert len(scene.store.events) == 2
    async with Scene() as scene:
        await scene.emit("OTHER")
        assert len(scene.store.events) == 1


async def test_the_start_is_not_stored_for_nobody_while_definitions_change() -> None:
    scene = Scene()
    listened_types, asked = scene.store.listened_types, 0

    async def changing() -> frozenset[str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            scene.events.changed()
        return await listened_types()

    scene.store.listened_types = changing  # type: ignore[method-assign]
    async with scene:
        await wait_for(lambda: asked == 2, "it is not looked at again")
        await scene.emit("OTHER")
        assert [event.type for event in scene.store.events] == ["OTHER"]


async def test_what_the_daemon_announces_is_stored_only_if_somebody_listens() -> None:
    async with Scene(FILE_CHANGED=[listener("w")]) as scene:
        await scene.emit("OTHER")
        await scene.events.announce("FILE_CHANGED", [1, 2])
        await scene.events.announce("RUN_FAILED", [3])
        await wait_for(lambda: len(scene.runs.begun) == 2, "nothing was started")
        assert [event.payload for event in scene.store.events[1:]] == [1, 2]


async def test_who_watches_is_woken_when_events_are_resolved_and_at_the_end() -> None:
    async with Scene(T=[listener("w")]) as scene:
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
async def test_what_cannot_be_a_type_or_a_key_is_refused(event_type: str, key: str) -> None:
    scene = Scene()
    with pytest.raises(ValueError, match=r"character|empty"):
        await scene.events.emit(event_type, None, caller="me", dedupe_key=key)
    assert scene.store.events == []
