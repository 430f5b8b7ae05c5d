"""Summaries of workflows: last run, success rate, active runs and next due time, and what matters most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contract.builders import NOW, later, new_run, save, text
from contract.scheduled import entry
from toban.definition import DefinitionKind
from toband.domain.run_model import Run, RunState
from toband.ports import RATED_RUNS, Store


async def create(store: Store, name: str, **changes: Any) -> None:
    await store.create_workflow(text(name, **changes), at=NOW)


async def run_in(store: Store, workflow: str, state: RunState, finished: float = 0.0) -> Run:
    run, _ = await store.create_run(new_run(workflow), max_active=None)
    if state is RunState.PENDING:
        return run
    running = replace(run, sequence=1, state=RunState.RUNNING, started_at=NOW)
    await save(store, run, running)
    if state is RunState.RUNNING:
        return running
    over = replace(running, sequence=2, state=state, finished_at=later(finished))
    await save(store, running, over)
    return over


async def test_a_workflow_without_runs_and_schedules(store: Store) -> None:
    await create(store, "backup")
    (found,) = await store.list_summaries()
    assert found.stored.name == "backup"
    assert found.stored.title == "Nightly backup"
    assert found.last_run is None
    assert (found.running, found.waiting, found.rated, found.succeeded) == (0, 0, 0, 0)
    assert (found.next_due, found.zone) == (None, "")


async def test_runs_are_counted_by_state(store: Store) -> None:
    await create(store, "backup")
    await create(store, "other")
    await run_in(store, "other", RunState.FAILED)
    for state in (RunState.SUCCEEDED, RunState.FAILED, RunState.TIMED_OUT, RunState.CANCELLED, RunState.RUNNING):
        await run_in(store, "backup", state)
    await run_in(store, "backup", RunState.PENDING)
    last = await run_in(store, "backup", RunState.PENDING)
    backup, other = await store.list_summaries()
    assert (backup.running, backup.waiting) == (1, 2)
    assert (backup.rated, backup.succeeded) == (3, 1), "cancelled runs do not count"
    assert backup.last_run is not None
    assert backup.last_run.id == last.id
    assert (other.running, other.waiting, other.rated, other.succeeded) == (0, 0, 1, 0)


async def test_the_success_rate_is_about_the_last_runs(store: Store) -> None:
    await create(store, "backup")
    for _ in range(RATED_RUNS):
        await run_in(store, "backup", RunState.FAILED)
    for _ in range(RATED_RUNS - 2):
        await run_in(store, "backup", RunState.SUCCEEDED)
    (found,) = await store.list_summaries()
    assert (found.rated, found.succeeded) == (RATED_RUNS, RATED_RUNS - 2)


async def test_the_next_due_time_with_its_zone(store: Store) -> None:
    await create(
        store,
        "backup",
        schedules=(entry(next_due=later(300), zone="UTC"), entry(1, next_due=later(60), zone="Asia/Tokyo")),
    )
    await create(store, "backup-0", schedules=(entry(workflow="backup-0", next_due=later(5)),))
    first, second = await store.list_summaries()
    assert (first.next_due, first.zone) == (later(60), "Asia/Tokyo")
    assert second.next_due == later(5)


async def test_pages_and_filters(store: Store) -> None:
    for name in ("a", "b", "c"):
        await create(store, name, labels={"team": "data" if name == "b" else "ops"}, title=f"The {name.upper()} job")
    await create(store, "d", kind=DefinitionKind.JOB)

    async def names(**wanted: object) -> list[str]:
        return [each.stored.name for each in await store.list_summaries(**wanted)]  # type: ignore[arg-type]

    assert await names() == ["a", "b", "c", "d"]
    assert await names(limit=2) == ["a", "b"]
    assert await names(after="b", limit=2) == ["c", "d"]
    assert await names(labels={"team": "ops"}, kind=DefinitionKind.WORKFLOW) == ["a", "c"]
    assert await names(labels={"team": "ops"}, after="a", text="JOB", limit=1) == ["c"]
    assert await names(kind=DefinitionKind.JOB) == ["d"]
    assert await names(text="the b") == ["b"]


async def test_what_matters_most_comes_first(store: Store) -> None:
    for name in ("a", "b", "c", "d", "e", "gone"):
        await create(store, name, schedules=(entry(workflow=name),) if name == "d" else ())
    await create(store, "idle-job", kind=DefinitionKind.JOB)
    await run_in(store, "c", RunState.FAILED, finished=10)
    await run_in(store, "gone", RunState.FAILED, finished=20)
    await run_in(store, "e", RunState.PENDING)
    await run_in(store, "b", RunState.FAILED, finished=-100)
    await store.delete_workflow("gone", at=NOW)

    async def names(limit: int) -> list[str]:
        return [each.stored.name for each in await store.relevant_summaries(failed_since=NOW, limit=limit)]

    assert await names(10) == ["e", "c", "d", "a", "b"]
    assert await names(3) == ["e", "c", "d"]


async def test_failed_runs_of_the_last_time(store: Store) -> None:
    await create(store, "backup", enabled=False)
    await run_in(store, "backup", RunState.FAILED, finished=-1)
    early = await run_in(store, "backup", RunState.FAILED, finished=30)
    late = await run_in(store, "backup", RunState.TIMED_OUT, finished=20)
    await run_in(store, "backup", RunState.SUCCEEDED, finished=20)
    await run_in(store, "backup", RunState.RUNNING)
    await run_in(store, "backup", RunState.PENDING)
    assert [run.id for run in await store.failed_runs(since=NOW, limit=10)] == [early.id, late.id]
    assert [run.id for run in await store.failed_runs(since=NOW, limit=1)] == [early.id]
    totals = await store.run_totals(failed_since=NOW)
    assert (totals.disabled, totals.running, totals.waiting, totals.failures) == (1, 1, 1, 2)
