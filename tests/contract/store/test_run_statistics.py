"""Counts of runs by day, and grids of runs and steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from contract.builders import NOW, new_run, text
from toband.domain.identity import Narrowing, Visible
from toband.domain.run_model import RunState, StepRun
from toband.ports import Store

DAY = timedelta(days=1)
FIRST = datetime(2026, 10, 24, 22, tzinfo=UTC)
BOUNDS = [FIRST + DAY * number for number in range(4)]


def id_at(at: datetime, number: int) -> str:
    digits = f"{int(at.timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"


async def fill(store: Store) -> list[tuple[str, datetime, RunState]]:
    stored = []
    states = list(RunState)
    for name in ("deploy", "nightly-a", "nightly-b"):
        await store.create_workflow(text(name), at=NOW)
    for number in range(60):
        name = ("deploy", "nightly-a", "nightly-b")[number % 3]
        at = FIRST - DAY + timedelta(hours=2 * number)
        run = new_run(name, id=id_at(at, number), created_at=at, state=states[number % len(states)])
        await store.create_run(run, max_active=None)
        stored.append((name, at, run.state))
    return stored


@pytest.mark.parametrize(
    ("workflow", "visible", "names"),
    [
        ("", None, ("deploy", "nightly-a", "nightly-b")),
        ("deploy", None, ("deploy",)),
        ("absent", None, ()),
        ("", (Narrowing(workflows=("nightly-*",)),), ("nightly-a", "nightly-b")),
        ("deploy", (Narrowing(workflows=("nightly-*",)),), ()),
        ("nightly-a", (Narrowing(labels=(("team", "ops"),)),), ("nightly-a",)),
        ("", (), ()),
    ],
)
async def test_runs_are_counted_by_the_day_of_their_creation(
    store: Store, workflow: str, visible: Visible, names: tuple[str, ...]
) -> None:
    stored = await fill(store)
    counted = await store.count_created(BOUNDS, workflow=workflow, visible=visible)
    assert counted == [
        dict(Counter(state for name, at, state in stored if name in names and low <= at < high))
        for low, high in pairwise(BOUNDS)
    ]


async def test_runs_of_many_workflows_are_counted_for_a_caller_that_may_not_see_all(store: Store) -> None:
    await fill(store)
    for number in range(40):
        name = f"many-{number}"
        await store.create_workflow(text(name), at=NOW)
        at = BOUNDS[number % 4]
        await store.create_run(new_run(name, id=id_at(at, 1000 + number), created_at=at), max_active=None)
    counted = await store.count_created(BOUNDS, visible=(Narrowing(workflows=("many-*",)),))
    assert counted == [{RunState.PENDING: 10}, {RunState.PENDING: 10}, {RunState.PENDING: 10}]


async def test_a_moment_belongs_to_the_day_that_begins_with_it(store: Store) -> None:
    await store.create_workflow(text("deploy"), at=NOW)
    for number, at in enumerate((BOUNDS[1] - timedelta(milliseconds=1), BOUNDS[1])):
        await store.create_run(new_run("deploy", id=id_at(at, number), created_at=at), max_active=None)
    assert await store.count_created(BOUNDS) == [{RunState.PENDING: 1}, {RunState.PENDING: 1}, {}]


async def test_a_grid_has_the_steps_of_the_newest_runs(store: Store) -> None:
    await store.create_workflow(text("deploy"), at=NOW)
    made = []
    for number in range(5):
        run = new_run("deploy", 2, id=id_at(NOW, number))
        if number == 3:
            instances = [StepRun(id=f"s1[{index}]", index=1, parent="s1", instance=index) for index in range(3)]
            run = replace(run, steps={**run.steps, **{each.id: each for each in instances}})
        made.append((await store.create_run(run, max_active=None))[0])
    rows, more = await store.run_grid("deploy", limit=3, most_cells=100)
    assert ([row.run.id for row in rows], more) == ([run.id for run in made[:1:-1]], True)
    assert all([cell.step for cell in row.cells] == ["s0", "s1"] for row in rows)
    rows, more = await store.run_grid("deploy", before=made[2].id, limit=3, most_cells=100)
    assert ([row.run.id for row in rows], more) == ([made[1].id, made[0].id], False)
    rows, more = await store.run_grid("deploy", limit=3, most_cells=3)
    assert (len(rows), more) == (1, True)
    assert await store.run_grid("absent", limit=3, most_cells=3) == ([], False)
