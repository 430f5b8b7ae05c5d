"""Runs that reuse results of other runs: the results, their sources, and how long both are retained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.builders import (
    ended,
    finished,
    launched,
    new_run,
    save,
    stored_run,
    touched,
    with_workflow,
)
from toband.domain.attempt_model import Attempt
from toband.domain.run_index import moving
from toband.domain.run_model import Artifact, Run, RunState, StepRun, StepState, Trigger
from toband.ports import RunGoneError, Store


async def over(store: Store, *steps: str, workflow: str = "backup", **changes: Any) -> Run:
    """A run that failed after these steps had succeeded."""
    run = await stored_run(store, workflow, **changes)
    for step in steps:
        run = await save(store, run, launched(run, step))
        run = await save(store, run, ended(run, step))
    return await save(store, run, finished(run, RunState.FAILED))


def kept(source: Run, step: str) -> StepRun:
    artifact = Artifact(name="raw", path=f"{step}/raw/raw.json", type="json", files=1, bytes=9)
    return replace(source.steps[step], source=source.id, artifacts=(artifact,), spilled=99)


def retry(source: Run, *steps: str, **changes: Any) -> Run:
    run = new_run(retry_of=source.id, trigger=Trigger.RETRY, **changes)
    taken = {step: kept(source, step) for step in steps}
    return replace(run, steps={**run.steps, **taken}, ended_steps=len(steps))


def attempt_of(run: Run, step: str) -> Attempt:
    attempt = run.steps[step].attempt
    assert attempt is not None
    return attempt


async def test_a_run_is_born_with_results_of_another(store: Store) -> None:
    await with_workflow(store)
    first = await over(store, "s0", "s1")
    run, new = await store.create_run(retry(first, "s0", "s1"), max_active=None)
    assert new
    stored = await store.get_run(run.id)
    assert stored == run
    assert moving(stored.steps) == frozenset()
    assert attempt_of(stored, "s0") == attempt_of(first, "s0")
    assert stored.steps["s0"].result == first.steps["s0"].result

    # The attempts stay the other run's, whatever is saved.
    assert await store.run_attempts(run.id) == []
    run = await save(store, run, launched(run, "s2"))
    run = await save(store, run, ended(run, "s2"))
    assert await store.get_run(run.id) == run
    assert [attempt.step for attempt in await store.run_attempts(run.id)] == ["s2"]
    assert [attempt.run_id for attempt in await store.run_attempts(first.id)] == [first.id] * 2
    assert [list(entry.run.steps) for entry in await store.history(run.id)] == [["s2"]] * 2


async def test_a_foreign_attempt_is_written_nowhere(store: Store) -> None:
    """Neither to the table of attempts nor to the history, even when its step is saved."""
    await with_workflow(store)
    first = await over(store, "s0")
    run = await stored_run(store)
    taken = kept(first, "s0")
    run = await save(store, run, touched(run, {"s0": taken}))
    assert await store.get_run(run.id) == run
    assert await store.run_attempts(run.id) == []
    assert await store.run_attempts(first.id) == [attempt_of(first, "s0")]
    (entry,) = await store.history(run.id)
    assert entry.run.steps == {"s0": replace(taken, attempt=None)}


async def test_retries_of_a_run_are_found(store: Store) -> None:
    await with_workflow(store)
    first, other = await over(store), await over(store)
    retries = [
        (await store.create_run(retry(first), max_active=None))[0],
        (await store.create_run(retry(first), max_active=None))[0],
    ]
    await store.create_run(retry(other), max_active=None)
    found = await store.list_runs(retry_of=first.id)
    assert [run.id for run in found] == [run.id for run in reversed(retries)]
    assert found[0].retry_of == first.id
    assert await store.list_runs(retry_of=retries[0].id) == []


async def test_what_an_active_run_takes_from_is_not_removed(store: Store) -> None:
    await with_workflow(store)
    results, artifacts, asked, free = [await over(store, "s0") for _ in range(4)]
    step = replace(kept(results, "s0"), source=artifacts.id)
    run = new_run(from_run=asked.id)
    run = replace(run, steps={**run.steps, "s0": step})
    run, _ = await store.create_run(run, max_active=None)
    everything = [results.id, artifacts.id, asked.id, free.id]
    assert [found.id for found in await store.removable_runs()] == [free.id]
    assert await store.delete_runs(everything) == [free.id]

    run = await save(store, run, finished(run))
    await over(store)
    assert [found.id for found in await store.removable_runs()] == [*everything[:3], run.id]
    assert await store.delete_runs(everything) == everything[:3]
    # What was taken over is still the run's own; the attempt was not.
    taken = replace(step, attempt=None)
    assert await store.get_run(run.id) == replace(run, steps={**run.steps, "s0": taken})
    assert await store.delete_runs([run.id]) == [run.id]


async def test_the_children_of_an_active_run_are_not_removed(store: Store) -> None:
    await with_workflow(store, "backup", "copy")
    parent = await stored_run(store)
    child = await over(store, workflow="copy", parent_run=parent.id, parent_step="s0")
    orphan = await over(store, workflow="copy", parent_run="gone", parent_step="s0")
    await over(store, workflow="copy")
    assert await store.delete_runs([child.id, orphan.id]) == [orphan.id]
    assert await store.removable_runs() == []
    await save(store, parent, finished(parent))
    assert await store.delete_runs([child.id]) == [child.id]


@pytest.mark.parametrize("how", ["retry_of", "from_run", "source", "attempt"])
async def test_nothing_is_taken_from_a_run_that_is_gone(store: Store, how: str) -> None:
    await with_workflow(store)
    gone = await over(store, "s0")
    await over(store)
    await store.delete_runs([gone.id])
    run = new_run()
    step = run.steps["s0"]
    match how:
        case "retry_of":
            run = replace(run, retry_of=gone.id)
        case "from_run":
            run = replace(run, from_run=gone.id)
        case "source":
            step = replace(step, source=gone.id)
        case _:
            step = replace(step, attempt=attempt_of(gone, "s0"))
    with pytest.raises(RunGoneError, match=gone.id):
        await store.create_run(replace(run, steps={**run.steps, "s0": step}), max_active=None)
    assert await store.get_run(run.id) is None


async def test_the_newest_run_in_which_a_step_succeeded(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    steps = ["s0", "s1", "s2", "nope"]
    assert await store.latest_success("backup", steps) == {}
    first = await over(store, "s0", "s1")
    second = await over(store, "s0")
    await over(store, "s0", "s2", workflow="other")
    states = {"s0": StepState.SKIPPED, "s1": StepState.INCOMPLETE, "s2": StepState.FAILED}
    third = await stored_run(store)
    named = {name: replace(third.steps[name], state=state) for name, state in states.items()}
    await save(store, third, touched(third, named))
    assert await store.latest_success("backup", steps) == {"s0": second.id, "s1": first.id}
    assert await store.latest_success("backup", ["s1"]) == {"s1": first.id}
    assert await store.latest_success("backup", []) == {}
    # One that was taken over is found where it succeeded; one of a run that goes on counts.
    run, _ = await store.create_run(retry(first, "s1"), max_active=None)
    run = await save(store, run, launched(run, "s2"))
    run = await save(store, run, ended(run, "s2"))
    assert await store.latest_success("backup", steps) == {
        "s0": second.id,
        "s1": first.id,
        "s2": run.id,
    }


async def test_a_success_of_long_ago_is_found(store: Store) -> None:
    await with_workflow(store)
    old = await over(store, "s0", "s1")
    between = [await over(store, *succeeded, steps=1) for succeeded in [()] * 30 + [("s0",)] * 2]
    for _ in range(30):
        await over(store, steps=1)
    expected = {"s0": between[-1].id, "s1": old.id}
    assert await store.latest_success("backup", {"s0", "s1"}) == expected
    many = {f"step-{number}" for number in range(600)}
    assert await store.latest_success("backup", many | {"s0", "s1"}) == expected
