"""Runs that wait for each other because definitions were changed: they are found, and no others."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from doubles.locks import run_locks
from toban.definition import JobType, Overlap, Step, Workflow
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.lock_rules import LockUser
from toband.domain.plan import Plan
from toband.domain.run_events import CancelRequested, RunStarted
from toband.domain.run_model import Run
from toband.engine.runs.deadlock_watch import DeadlockWatch
from toband.engine.runs.run_queue import RunQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = "abcd"
SIZES = {"z": 2}


@dataclass(frozen=True)
class Definition:
    """Each step takes locks of its own and, if `calls`, is a child run."""

    locks: tuple[str, ...] = ()
    steps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    limit: int = 1

    def plan(self, name: str) -> Plan:
        steps = {
            f"s{at}": Step(
                id=f"s{at}",
                name="",
                job_type=JobType.WORKFLOW if calls else JobType.SHELL,
                target=calls,
                kwargs={},
                env={},
                locks=locks,
            )
            for at, (calls, locks) in enumerate(self.steps or (("", ()),))
        }
        return Plan(
            Workflow(
                name=name,
                title="",
                labels={},
                params={},
                env={},
                steps=steps,
                overlap=Overlap.QUEUE,
                locks=self.locks,
                max_active_runs=self.limit,
            )
        )


@dataclass
class Actor:
    world: World
    run: Run
    plan: Plan
    open: set[str] = field(default_factory=set)

    def post(self, event: object) -> None:
        self.world.letters.append((self, event))


class World:
    """Runs of workflows as the engine starts them. Steps that have their locks run until the test ends them."""

    def __init__(self) -> None:
        self.actors: dict[str, Actor] = {}
        self.definitions: dict[str, Definition] = {name: Definition() for name in NAMES}
        self.locks = run_locks(SIZES, self.actors)
        self.queue = RunQueue(event_slots=1, locks=self.locks)
        self.queue.restore([])
        self.locks.table.listen(self._freed)
        self.working: list[tuple[Actor, str]] = []
        self.waiting: dict[LockUser, tuple[Actor, str]] = {}
        self.begun: set[str] = set()
        self.cancelled: dict[str, str] = {}
        self.letters: deque[tuple[Actor, object]] = deque()
        self.count = 0
        active = SimpleNamespace(parents=self._parents, actor=self.actors.get, run=self._run)
        self.watch = DeadlockWatch(active=cast(Any, active), queue=self.queue, table=self.locks.table)

    def _parents(self) -> dict[str, str]:
        runs = [actor.run for actor in self.actors.values()]
        return {run.id: run.parent_run for run in runs if run.parent_run in self.actors}

    def _run(self, run_id: str) -> Run | None:
        return self.actors[run_id].run if run_id in self.actors else None

    def settle(self) -> None:
        """Runs process their mailboxes."""
        while self.letters:
            actor, event = self.letters.popleft()
            if actor.run.id not in self.actors:
                continue
            if event == RunStarted():
                self.begin(actor)
            else:
                assert isinstance(event, CancelRequested)
                self.cancel(actor, event.reason)

    def look(self) -> None:
        self.watch.look()
        self.settle()

    def start(self, name: str, priority: int = 0, parent: Actor | None = None, step: str = "") -> str:
        self.count += 1
        run = Run(id=f"{self.count:03}", workflow=name, version=1, number=self.count, created_at=NOW, priority=priority)
        if parent is not None:
            run = replace(run, parent_run=parent.run.id, parent_step=step)
        actor = self.actors[run.id] = Actor(self, run, self.definitions[name].plan(name))
        self.queue.enter(cast(Any, actor))
        if parent is None:
            self.settle()
        return run.id

    def begin(self, actor: Actor) -> None:
        self.begun.add(actor.run.id)
        actor.open.update(actor.plan.workflow.steps)
        for step in list(actor.plan.workflow.steps.values()):
            if step.job_type is JobType.WORKFLOW:
                if step.target in self._line_of(actor):
                    self.done(actor, step.id)
                else:
                    self.start(step.target, actor.run.priority, actor, step.id)
                continue
            if self.locks.conflict(cast(Any, actor), step.locks):
                self.done(actor, step.id)
                continue
            self.count += 1
            attempt = Attempt(
                id=f"i{self.count}",
                run_id=actor.run.id,
                step=step.id,
                number=1,
                token="t",
                state=AttemptState.STARTING,
                created_at=NOW,
                ordinal=self.count,
            )
            request = self.locks.of_attempt(cast(Any, actor), attempt)
            if request is None:
                self.working.append((actor, step.id))
                continue
            self.waiting[request.user] = actor, step.id
            if self.locks.table.ask(request):
                self._freed([request.user])

    def _line_of(self, actor: Actor) -> set[str]:
        names = {actor.run.workflow}
        while actor.run.parent_run:
            actor = self.actors[actor.run.parent_run]
            names.add(actor.run.workflow)
        return names

    def _freed(self, ready: Sequence[LockUser] | Any) -> None:
        for user in list(ready):
            if user in self.waiting and self.locks.table.ready(user):
                self.locks.table.take(user)
                self.working.append(self.waiting.pop(user))

    def done(self, actor: Actor, step: str) -> None:
        actor.open.discard(step)
        self.locks.table.release(LockUser(actor.run.id, step))
        if not actor.open and actor.run.id in self.begun and actor.run.id in self.actors:
            self.leave(actor)

    def leave(self, actor: Actor) -> None:
        del self.actors[actor.run.id]
        self.queue.leave(actor.run)
        if actor.run.parent_run:
            self.done(self.actors[actor.run.parent_run], actor.run.parent_step)

    def cancel(self, actor: Actor, reason: str) -> None:
        self.cancelled.setdefault(actor.run.id, reason)
        if actor.run.id in self.actors and actor.run.id not in self.begun:
            self.leave(actor)

    def finish(self, at: int = 0) -> None:
        if self.working:
            actor, step = self.working.pop(at % len(self.working))
            self.done(actor, step)
            self.settle()

    def finish_all(self) -> None:
        while self.working:
            self.finish()

    def deadlocked(self) -> list[str]:
        return [run_id for run_id, reason in self.cancelled.items() if reason.startswith("deadlock")]


def test_a_child_whose_turn_waits_for_its_parent_is_cancelled() -> None:
    world = World()
    world.definitions |= {"a": Definition(("x",), (("b", ()),)), "b": Definition()}
    first = world.start("b")
    parent = world.start("a")
    other_parent_of_b = Definition((), (("b", ()),))
    world.definitions |= {"b": Definition((), (("", ("x",)),)), "c": other_parent_of_b}
    urgent = world.start("b", priority=5)
    bystander = world.start("c")
    world.look()
    assert not world.cancelled, "the first run of b has not ended yet"
    world.finish()
    assert {first, urgent} & world.begun == {first, urgent}
    world.finish_all()
    world.look()
    (victim,) = world.deadlocked()
    assert world.cancelled[victim] == (
        f"deadlock: this run, b#{int(urgent)} and a#{int(parent)} wait for each other, because a definition was "
        "changed while they were active"
    )
    world.finish_all()
    world.look()
    assert not world.actors
    assert len(world.cancelled) == 1
    assert bystander in world.begun


def test_workflows_that_start_each_other_after_a_change_need_no_lock_for_it() -> None:
    world = World()
    world.definitions |= {"a": Definition((), (("c", ()),)), "c": Definition((), (("b", ()),)), "b": Definition()}
    blocker = world.start("b")
    world.start("a")
    world.definitions |= {"b": Definition((), (("a", ()),))}
    world.start("b", priority=5)
    world.finish()
    assert blocker not in world.actors
    world.look()
    assert len(world.deadlocked()) == 1
    world.finish_all()
    assert not world.actors


LOCKS = st.sets(st.sampled_from("xyz"), max_size=2).map(lambda found: tuple(sorted(found)))
STEPS = st.lists(st.tuples(st.sampled_from(["", "", *NAMES]), LOCKS), max_size=3).map(tuple)
DEFINITIONS = st.builds(Definition, LOCKS, STEPS, st.sampled_from([1, 1, 2]))
CHANGE = st.tuples(st.sampled_from(NAMES), DEFINITIONS)
START = st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 0, 5]))
MOVES = st.lists(CHANGE | START | st.integers(0, 5), min_size=6, max_size=40)


def play(moves: Sequence[Any], *, look: bool) -> World:
    world = World()
    for move in moves:
        if isinstance(move, int):
            world.finish(move)
        elif isinstance(move[1], Definition):
            world.definitions[move[0]] = move[1]
        elif len(world.actors) < 30:
            world.start(*move)
        if look:
            world.look()
    world.finish_all()
    return world


@settings(max_examples=150)
@given(MOVES)
@example(
    [
        ("a", Definition(("x",), (("b", ()),))),
        ("b", 0),
        ("a", 0),
        ("b", Definition((), (("", ("x",)),))),
        ("b", 5),
        0,
    ]
)
def test_whatever_changes_all_end_and_only_runs_that_would_wait_for_ever_are_cancelled(moves: list[Any]) -> None:
    stuck = play(moves, look=False).actors.keys()
    world = play(moves, look=True)
    for first in world.deadlocked()[:1]:
        assert first in stuck, "it would have begun"
    while world.actors:
        before = len(world.actors)
        world.look()
        world.finish_all()
        assert len(world.actors) < before, "a deadlock was not found"
    assert bool(world.deadlocked()) == bool(stuck)
