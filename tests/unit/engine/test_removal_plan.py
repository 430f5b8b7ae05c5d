"""Which runs go by which rule, held against the plain reading of the rules; and how little is asked to find out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from contract.builders import NOW, finished, save, stored_run, text
from doubles.clock import Clock
from toban.definition import Retention as OwnRules
from toband.domain.run_model import Run
from toband.engine.retention.removal_plan import RemovalPlan, RemovalPlanner
from toband.engine.retention.retention_policy import RetentionRules
from toband.engine.retention.run_sizes import RunSizes
from toband.ports import Archive, RunSize
from toband.store import SqlStore

DAY = timedelta(days=1)
ENDLESS = 1 << 40


@dataclass
class FakeArchive:
    """Knows what runs take that were not measured for good."""

    sizes: dict[str, int] = field(default_factory=dict)

    async def measure(self, run_id: str) -> RunSize:
        return RunSize(bytes=self.sizes[run_id], log_bytes=0)


@dataclass
class World:
    store: SqlStore
    archive: FakeArchive = field(default_factory=FakeArchive)
    runs: list[Run] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    own: dict[str, OwnRules] = field(default_factory=dict)
    made: int = 0
    asked: list[str] = field(default_factory=list)

    async def workflow(self, name: str, own: OwnRules | None = None) -> None:
        parsed: dict[str, Any] = {"steps": [], "retention": None if own is None else own.to_dict()}
        await self.store.create_workflow(text(name, parsed=parsed), at=NOW)
        if own is not None:
            self.own[name] = own

    async def run(self, workflow: str, *, ago: float = 0.5, took: float = 0.0, **how: Any) -> Run:
        """Created that many days ago."""
        self.made += 1
        at = NOW - ago * DAY
        digits = f"{int(at.timestamp() * 1000):012x}"
        run_id = f"{digits[:8]}-{digits[8:]}-7000-8000-{self.made:012x}"
        run = await stored_run(self.store, workflow, steps=0, id=run_id, created_at=at)
        size, fresh, active = how.get("size", 0), how.get("fresh", False), how.get("active", False)
        if not active:
            run = await save(self.store, run, replace(finished(run), finished_at=at + took * DAY))
            if fresh:
                self.archive.sizes[run_id] = size
            else:
                await self.store.save_sizes({run_id: RunSize(bytes=size, log_bytes=0)})
        self.runs.append(run)
        # What is still under way is not measured.
        self.sizes[run_id] = 0 if active else size
        return run

    async def delete(self, *runs: Run) -> None:
        gone = await self.store.delete_runs([run.id for run in runs])
        self.runs = [run for run in self.runs if run.id not in gone]

    async def plan(self, *, by_size: bool = True, **rules: Any) -> dict[str, str]:
        """Reasons by run."""
        kept = RetentionRules(**rules)
        sizes = RunSizes(store=self.store, archive=cast(Archive, self.archive), clock=Clock(NOW), rules=kept)
        async for run in sizes.unmeasured():
            await sizes.weigh(run)
        planner = RemovalPlanner(store=self.store, clock=Clock(NOW), rules=kept, sizes=sizes)
        plan = RemovalPlan(limit=100_000)
        self.asked.clear()
        await planner.choose(plan, by_size=by_size)
        return {run_id: removed.reason for run_id, removed in plan.chosen.items()}

    def by_the_rules(self, rules: RetentionRules) -> set[str]:
        """All that goes, worked out from all runs one after the other."""
        gone: set[str] = set()
        for name in {run.workflow for run in self.runs}:
            held = rules.of_workflow(self.own.get(name))
            runs = sorted((run for run in self.runs if run.workflow == name), key=lambda r: r.id)
            newest_first = sorted(runs, key=lambda run: -run.number)
            free = [run for run in runs if run.finished_at and run is not newest_first[0]]
            if held.age is not None:
                before = NOW - timedelta(seconds=held.age)
                gone |= {run.id for run in free if run.finished_at and run.finished_at < before}
            if held.runs is not None:
                too_many = {run.id for run in newest_first[held.runs :]}
                gone |= {run.id for run in free if run.id in too_many}
            if held.bytes is not None:
                excess = sum(self.sizes[run.id] for run in runs if run.id not in gone) - held.bytes
                for run in free:
                    if excess > 0 and run.id not in gone and self.sizes[run.id] > 0:
                        gone.add(run.id)
                        excess -= self.sizes[run.id]
        return gone


@pytest.fixture
def world(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(store)

    def counted(name: str) -> Callable[..., Awaitable[Any]]:
        read = getattr(store, name)

        async def call(*args: Any, **how: Any) -> Any:
            world.asked.append(name)
            return await read(*args, **how)

        return call

    for name in ("retention_rules", "run_spans", "stored_bytes", "stored_size", "removable_runs", "kept_number"):
        monkeypatch.setattr(store, name, counted(name))
    return world


async def test_whatever_the_rules_are_what_goes_is_what_they_say(world: World) -> None:
    chance = random.Random(7)

    def some(*values: Any) -> Any:
        return chance.choice(values)

    for number in range(24):
        own = OwnRules(
            age=some(None, 3 * 86400.0, 9 * 86400.0),
            runs=some(None, 1, 3, 50),
            bytes=some(None, 10, 25, ENDLESS),
        )
        name = f"w{number}"
        await world.workflow(name, some(None, own))
        made = [
            await world.run(
                name,
                ago=ago,
                took=some(0, 0, 0, min(ago, 5)),
                size=some(0, 4, 9),
                active=some(*[False] * 6, True),
                fresh=some(False, False, True),
            )
            for ago in sorted(chance.choices(range(20), k=chance.randrange(9)), reverse=True)
        ]
        await world.delete(*(run for run in made if some(False, False, True)))
    seen: list[set[str]] = []
    for rules in (
        RetentionRules(),
        RetentionRules(age=5 * 86400.0),
        RetentionRules(runs=2),
        RetentionRules(bytes=12),
        RetentionRules(age=15 * 86400.0, runs=4, bytes=30),
        RetentionRules(age=400 * 86400.0, runs=1000, bytes=ENDLESS),
    ):
        expected = world.by_the_rules(rules)
        planned = await world.plan(age=rules.age, runs=rules.runs, bytes=rules.bytes)
        assert set(planned) == expected
        seen.append(expected)
    assert all(one != other for one, other in itertools.pairwise(seen)), "nothing is told apart"
    assert max(map(len, seen)) > 2 * min(map(len, seen)) > 0


async def test_a_workflow_with_nothing_to_remove_is_not_asked_about(world: World) -> None:
    """However many there are: their runs are looked at only if some may go."""
    own = OwnRules(runs=20, bytes=ENDLESS, age=50 * 86400.0)
    for number in range(30):
        await world.workflow(f"w{number:02d}", own if number % 2 else None)
        if number % 3:
            for _ in range(3):
                await world.run(f"w{number:02d}", ago=2, size=5)
    # Old, but the only one of its workflow.
    await world.run("w00", ago=1000, size=ENDLESS * 2)
    rules: dict[str, Any] = {"age": 90 * 86400.0, "runs": 100, "total_bytes": ENDLESS * 4}
    assert await world.plan(**rules) == {}
    few = ["retention_rules", "run_spans", "stored_bytes", "stored_size"]
    assert world.asked == few
    assert await world.plan(**rules, by_size=False) == {}
    assert world.asked == few[:2]

    late = [await world.run("w01") for _ in range(18)]
    planned = await world.plan(**rules)
    assert set(planned.values()) == {"more than 20 runs of its workflow"}
    assert len(planned) == 1
    assert late[-1].id not in planned
    assert world.asked == [*few[:3], "kept_number", "removable_runs", few[3]]


async def test_numbers_that_are_missing_do_not_count(world: World) -> None:
    await world.workflow("a")
    runs = [await world.run("a") for _ in range(6)]
    await world.delete(*runs[1:4])
    assert await world.plan(runs=3) == {}
    assert list(await world.plan(runs=2)) == [runs[0].id]


async def test_runs_of_a_deleted_workflow_go_by_the_common_rules(world: World) -> None:
    await world.workflow("a", OwnRules(runs=1))
    runs = [await world.run("a") for _ in range(3)]
    await world.store.delete_workflow("a", at=NOW)
    assert list(await world.plan(runs=2)) == [runs[0].id]


async def test_a_full_plan_is_full(world: World) -> None:
    for name in ("a", "b"):
        await world.workflow(name)
        for _ in range(4):
            await world.run(name)
    rules = RetentionRules(runs=1)
    archive = cast(Archive, world.archive)
    sizes = RunSizes(store=world.store, archive=archive, clock=Clock(NOW), rules=rules)
    planner = RemovalPlanner(store=world.store, clock=Clock(NOW), rules=rules, sizes=sizes)
    plan = RemovalPlan(limit=4)
    await planner.choose(plan, by_size=True)
    assert [(each.run.workflow, each.run.number) for each in plan.chosen.values()] == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 1),
    ]
    rest = RemovalPlan(limit=4, left_out=list(plan.chosen))
    await planner.choose(rest, by_size=True)
    assert [each.run.number for each in rest.chosen.values()] == [2, 3]
