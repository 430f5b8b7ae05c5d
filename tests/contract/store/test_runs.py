"""Runs: creating and reading them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

import pytest

from contract.builders import (
    ended,
    finished,
    later,
    launched,
    new_id,
    new_run,
    save,
    stored_run,
    touched,
    with_workflow,
)
from toband.domain.attempt_model import AttemptState
from toband.domain.run_model import Run, RunState, StepRun, Trigger
from toband.engine.runs.run_search import RunConditions, RunSearch
from toband.ports import ActiveRunError, Counts, IdKind, Store, StoreError


async def test_a_created_run_is_read_back_whole(store: Store) -> None:
    await with_workflow(store)
    given = new_run(
        scope="only:s1",
        trigger=Trigger.MANUAL,
        caller="uid:1000",
        params={"a": [1, None, {"b": "\0ü"}]},
        timeout=12.5,
    )
    run, new = await store.create_run(given, max_active=None)
    assert new
    assert run == replace(given, number=1)
    assert await store.get_run(run.id) == run
    assert list((await whole(store, run.id)).steps) == ["s0", "s1", "s2"]


async def whole(store: Store, run_id: str) -> Run:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def test_what_is_not_there(store: Store) -> None:
    assert await store.get_run("nope") is None
    assert await store.get_run_page("nope") is None
    assert await store.current_run("nope") is None
    assert await store.list_runs() == []
    assert await store.active_run_ids() == []
    assert await store.history("nope") == []
    assert await store.counts() == Counts(workflows=0, active_runs=0)


async def test_runs_are_numbered_per_workflow(store: Store) -> None:
    await with_workflow(store, "a", "b")
    numbers = [(await stored_run(store, name)).number for name in ("a", "a", "b", "a", "b")]
    assert numbers == [1, 2, 1, 3, 2]


async def test_a_run_needs_its_version(store: Store) -> None:
    with pytest.raises(StoreError):
        await store.create_run(new_run("nope"), max_active=None)
    await with_workflow(store)
    with pytest.raises(StoreError):
        await store.create_run(new_run(version=2), max_active=None)
    assert await store.list_runs() == []


async def test_an_id_is_used_once(store: Store) -> None:
    """Who made a run and crashed before it knew makes it again, and gets what there is."""
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    again = await store.create_run(new_run(id=run.id, steps=1), max_active=1)
    assert again == (run, False)
    assert await store.get_run(run.id) == run
    assert len(await store.list_runs()) == 1


async def test_times_need_a_zone(store: Store) -> None:
    await with_workflow(store)
    with pytest.raises(ValueError, match="zone"):
        await store.create_run(new_run(created_at=datetime(2026, 1, 1)), max_active=None)  # noqa: DTZ001
    with pytest.raises(ValueError, match="zone"):
        await store.set_enabled("backup", False, at=datetime(2026, 1, 1))  # noqa: DTZ001
    assert await store.list_runs() == []


async def test_max_active_refuses_with_the_oldest(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    first = await stored_run(store)
    await stored_run(store)
    await stored_run(store, "other")
    with pytest.raises(ActiveRunError) as refused:
        await store.create_run(new_run(), max_active=2)
    assert (refused.value.args[0], refused.value.name) == (first.id, "backup#1")
    assert (await store.create_run(new_run(), max_active=3))[0].number == 3


async def test_an_ended_run_makes_room(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    with pytest.raises(ActiveRunError):
        await store.create_run(new_run(), max_active=1)
    run = await save(store, run, launched(run, "s0"))
    with pytest.raises(ActiveRunError):
        await store.create_run(new_run(), max_active=1)
    await save(store, run, finished(run, RunState.FAILED))
    assert (await store.create_run(new_run(), max_active=1))[1] is True


async def test_exactly_as_many_as_allowed_get_through(stores: list[Store]) -> None:
    """Through two stores on one database, as two daemons would do it."""
    await with_workflow(stores[0])
    results = await asyncio.gather(
        *(stores[n % 2].create_run(new_run(steps=1), max_active=3) for n in range(20)),
        return_exceptions=True,
    )
    made = [result[0] for result in results if isinstance(result, tuple)]
    assert len(made) == 3
    assert sorted(run.number for run in made) == [1, 2, 3]
    assert sum(isinstance(result, ActiveRunError) for result in results) == 17
    assert await stores[1].counts() == Counts(workflows=1, active_runs=3)


async def test_five_hundred_steps(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=500)
    assert await store.get_run(run.id) == run


async def test_steps_come_in_pages(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=7)
    run = await save(store, run, launched(run, "s4"))
    seen: dict[str, StepRun] = {}
    after = -1
    while True:
        page = await store.get_run_page(run.id, after=after, limit=3)
        assert page is not None
        assert replace(page, steps=run.steps) == run
        if not page.steps:
            break
        assert len(page.steps) <= 3
        seen.update(page.steps)
        after = max(step.position for step in page.steps.values())
    assert seen == run.steps
    assert list(seen) == list(run.steps)


async def test_runs_are_listed_newest_first_without_steps(store: Store) -> None:
    await with_workflow(store, "a", "b")
    runs = [await stored_run(store, "ab"[n % 2]) for n in range(6)]
    ids = [run.id for run in reversed(runs)]
    listed = await store.list_runs()
    assert [run.id for run in listed] == ids
    assert listed[0] == replace(runs[-1], steps={})
    assert [run.id for run in await store.list_runs(limit=2)] == ids[:2]
    assert [run.id for run in await store.list_runs(before=ids[1], limit=2)] == ids[2:4]
    assert [run.id for run in await store.list_runs(workflow="b")] == ids[0::2]
    assert await store.list_runs(workflow="c") == []


async def test_runs_are_listed_by_state(store: Store) -> None:
    await with_workflow(store, "a", "b")
    made: dict[RunState, list[str]] = {state: [] for state in RunState}
    for count in range(18):
        state = list(RunState)[count % 6]
        run = await stored_run(store, "ab"[count % 2], steps=1)
        if state is RunState.RUNNING:
            await save(store, run, launched(run, "s0"))
        elif state is not RunState.PENDING:
            await save(store, run, finished(run, state))
        made[state].append(run.id)

    async def ids(*states: RunState, workflow: str = "", before: str = "", limit: int = 50) -> list[str]:
        found = await store.list_runs(states=states, workflow=workflow, before=before, limit=limit)
        assert all(run.state in states for run in found if states)
        return [run.id for run in found]

    def newest(*states: RunState) -> list[str]:
        return sorted((run_id for state in states for run_id in made[state]), reverse=True)

    assert await ids(RunState.FAILED) == newest(RunState.FAILED)
    two = (RunState.FAILED, RunState.RUNNING)
    assert await ids(*two) == newest(*two)
    assert await ids(*two, *two) == newest(*two)
    assert await ids(*two, limit=3) == newest(*two)[:3]
    assert await ids(*two, before=newest(*two)[2]) == newest(*two)[3:]
    assert await ids(*RunState) == newest(*RunState)
    assert await ids(RunState.PENDING, workflow="a") == newest(RunState.PENDING)
    assert await ids(RunState.PENDING, workflow="b") == []
    assert await ids(RunState.PENDING, RunState.RUNNING, workflow="b") == newest(RunState.RUNNING)
    assert await store.active_run_ids() == sorted(made[RunState.PENDING] + made[RunState.RUNNING])
    assert await store.counts() == Counts(workflows=2, active_runs=6)


async def test_pages_of_runs_stay_stable_under_inserts(store: Store) -> None:
    await with_workflow(store)
    old = [(await stored_run(store, steps=1)).id for _ in range(5)]
    first = await store.list_runs(limit=2)
    for _ in range(3):
        await stored_run(store, steps=1)
    second = await store.list_runs(before=first[-1].id, limit=10)
    assert [run.id for run in (*first, *second)] == old[::-1]


async def test_the_current_run_is_the_newest_active_else_the_newest(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    assert await store.current_run("backup") is None
    first = await stored_run(store)
    second = await stored_run(store)
    third = await stored_run(store)
    await stored_run(store, "other")

    async def current() -> str:
        run = await store.current_run("backup")
        assert run is not None
        assert run.steps == {}
        return run.id

    assert await current() == third.id
    await save(store, third, finished(third))
    assert await current() == second.id
    await save(store, first, launched(first, "s0"))
    await save(store, second, finished(second))
    assert await current() == first.id
    running = await whole(store, first.id)
    await save(store, running, finished(running))
    assert await current() == third.id


async def test_runs_are_found_by_label(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    labels: list[dict[str, str]] = [{"env": "prod"}, {"env": "prod", "team": "a"}, {"env": "test", "team": "a"}, {}]
    made = [await stored_run(store, name, labels=each) for each in labels for name in ("backup", "other")]
    assert [run.labels for run in await store.list_runs(workflow="other")] == labels[::-1]

    async def found(wanted: dict[str, str], **how: Any) -> list[int]:
        return [[run.id for run in made].index(run.id) for run in await store.list_runs(labels=wanted, **how)]

    assert await found({"env": "prod"}) == [3, 2, 1, 0]
    assert await found({"env": "prod"}, limit=2, before=made[3].id) == [2, 1]
    assert await found({"env": "prod"}, workflow="other") == [3, 1]
    assert await found({"env": "prod", "team": "a"}) == await found({"team": "a", "env": "prod"}) == [3, 2]
    assert await found({"team": "a"}, states=[RunState.PENDING], workflow="backup") == [4, 2]
    assert await found({"team": "a"}, states=[RunState.FAILED]) == []
    assert await found({"env": "b"}) == await found({"prod": "env"}) == []
    retry = await stored_run(store, retry_of=made[0].id, labels={"env": "prod"})
    assert [run.id for run in await store.list_runs(retry_of=made[0].id, labels={"env": "prod"})] == [retry.id]
    assert await store.list_runs(retry_of=made[0].id, labels={"env": "test"}) == []
    await save(store, made[2], finished(made[2]))
    assert await store.delete_runs([made[2].id]) == [made[2].id]
    assert await found({"team": "a"}, workflow="backup") == [4]


async def test_runs_are_found_by_number_and_between_ids(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    made = [await stored_run(store, name, labels={"env": "prod"}) for _ in range(3) for name in ("backup", "other")]
    ids = [run.id for run in made]

    async def found(**how: Any) -> list[int]:
        return [ids.index(run.id) for run in await store.list_runs(**how)]

    assert await found(workflow="other", number=2) == [3]
    assert await found(workflow="other", number=4) == await found(workflow="none", number=1) == []
    assert await found(workflow="other", number=2, states=[RunState.FAILED]) == []
    assert await found(workflow="other", number=2, labels={"env": "test"}) == []
    assert await found(workflow="other", number=2, labels={"env": "prod"}, before=ids[4], after=ids[2]) == [3]
    assert await found(workflow="other", number=2, before=ids[3]) == []
    assert await found(after=ids[1], before=ids[4]) == [3, 2]
    assert await found(ids={ids[0], ids[4], ids[5], "none"}) == [5, 4, 0]
    assert await found(ids={ids[0], ids[4], ids[5]}, workflow="backup", limit=1) == [4]
    assert await found(ids={ids[0], ids[4]}, before=ids[4], states=[RunState.PENDING]) == [0]
    assert await found(after=ids[1], states=[RunState.PENDING, RunState.RUNNING], workflow="backup") == [4, 2]
    assert await found(after=ids[2], labels={"env": "prod"}) == [5, 4, 3]


async def test_a_list_has_exactly_the_runs_that_meet_the_conditions(store: Store) -> None:
    """WatchRuns asks the conditions, ListRuns asks the store."""
    await with_workflow(store, "backup", "other")
    chance = Random(15)
    for _ in range(40):
        known = await store.list_runs(limit=100)
        link = chance.choice(known).id if known and chance.random() < 0.5 else ""
        linked = {chance.choice(["retry_of", "parent_run"]): link} if link else {}
        labels = dict(chance.sample([("env", "prod"), ("team", "a")], chance.randint(0, 2)))
        run = await stored_run(store, chance.choice(["backup", "other"]), labels=labels, **linked)
        if chance.random() < 0.5:
            await save(store, run, finished(run, chance.choice([RunState.SUCCEEDED, RunState.FAILED])))
    runs = await store.list_runs(limit=100)
    search, matched = RunSearch(store), 0
    for _ in range(400):
        one, other = chance.choices(runs, k=2)
        possible: dict[str, Any] = {
            "workflow": one.workflow,
            "states": frozenset({one.state, RunState.RUNNING}),
            "parent_run": other.parent_run,
            "retry_of": other.retry_of,
            "labels": one.labels,
            "after": other.id,
            "before": one.id,
            "ids": frozenset({one.id, other.id}),
        }
        wanted = {name: possible[name] for name in chance.sample(sorted(possible), chance.randint(0, 3))}
        if "workflow" in wanted and chance.random() < 0.5:
            wanted["number"] = one.number
        conditions = RunConditions(**wanted)
        expected = [run for run in runs if conditions.match(run)]
        assert await search.read(conditions, conditions.before, 100) == expected, wanted
        matched += len(expected) < len(runs) and bool(expected)
    assert matched > 100, "most conditions choose some runs"


async def test_ids_are_found_by_their_start_or_end(store: Store) -> None:
    await with_workflow(store)
    made = [f"0190{number:04x}-0000-7000-8000-00000000{end}" for number, end in enumerate(["aaaa", "bbbb", "0190"])]
    for run_id in made:
        await store.create_run(new_run(id=run_id, steps=1), max_active=None)
    assert await store.find_ids(IdKind.RUN, "0190", 10) == made[::-1]
    assert await store.find_ids(IdKind.RUN, "0190", 2) == made[:0:-1]
    assert await store.find_ids(IdKind.RUN, "01900001", 10) == [made[1]]
    assert await store.find_ids(IdKind.RUN, "00bbbb", 10) == [made[1]]
    assert await store.find_ids(IdKind.RUN, made[0], 10) == [made[0]]
    assert await store.find_ids(IdKind.RUN, "cccc", 10) == await store.find_ids(IdKind.RUN, "%", 10) == []
    for kind in set(IdKind) - {IdKind.RUN}:
        assert await store.find_ids(kind, "0190", 10) == await store.find_ids(kind, "bbbb", 10) == []


async def test_attempts_of_runs(store: Store) -> None:
    await with_workflow(store)
    other = await stored_run(store)
    other = await save(store, other, launched(other, "s0"))
    run = await stored_run(store)
    attempts = []
    for step in ("s0", "s1", "s0", "s2"):
        if run.steps[step].attempt is not None:
            # Again, as a retry would: the step is open still.
            attempt = run.steps[step].attempt
            assert attempt is not None
            failed = replace(attempt, state=AttemptState.FAILED)
            run = await save(store, run, touched(run, {step: replace(run.steps[step], attempt=failed)}))
        run = await save(store, run, launched(run, step))
        latest = run.steps[step].attempt
        assert latest is not None
        attempts.append(latest.id)

    async def listed(run_id: str = "", step: str = "", before: str = "", limit: int = 9) -> list[str]:
        found = await store.list_attempts(run_id=run_id, step=step, before=before, limit=limit)
        return [attempt.id for attempt in found]

    assert await listed(run.id) == attempts[::-1]
    assert await listed(run.id, limit=2) == attempts[:1:-1]
    assert await listed(run.id, before=attempts[2]) == attempts[1::-1]
    assert await listed(run.id, "s0") == [attempts[2], attempts[0]]
    assert await listed(run.id, "s0", before=attempts[2]) == [attempts[0]]
    foreign = other.steps["s0"].attempt
    assert foreign is not None
    assert await listed() == [*attempts[::-1], foreign.id]
    assert await listed(step="s0") == [attempts[2], attempts[0], foreign.id]
    assert await listed("nope") == []

    async def chosen(*states: AttemptState, **given: Any) -> list[str]:
        return [attempt.id for attempt in await store.list_attempts(states=states, **given)]

    live = [AttemptState.STARTING, AttemptState.RUNNING]
    assert await chosen(workflow="backup") == await listed()
    assert await chosen(workflow="nope") == []
    assert await chosen(workflow="backup", step="s0", after=foreign.id) == [attempts[2], attempts[0]]
    assert await chosen(after=attempts[1], before=attempts[3]) == [attempts[2]]
    failed_ones = await chosen(AttemptState.FAILED)
    assert failed_ones
    filters: list[dict[str, Any]] = [{}, {"workflow": "backup"}, {"run_id": run.id}, {"step": "s0", "run_id": run.id}]
    for given in filters:
        assert await chosen(AttemptState.FAILED, **given) == failed_ones
        rest = await chosen(*live, AttemptState.COMPLETED, **given)
        everything = await chosen(**given)
        assert sorted([*rest, *failed_ones]) == sorted(everything)
        assert await chosen(*AttemptState, **given) == everything
        assert await chosen(*AttemptState, limit=2, **given) == everything[:2]
    assert await chosen(AttemptState.FAILED, step="s0") == failed_ones
    assert await chosen(job="nope") == await chosen(AttemptState.FAILED, job="nope") == []

    in_order = await store.run_attempts(run.id)
    assert [attempt.id for attempt in in_order] == attempts
    assert [attempt.ordinal for attempt in in_order] == [0, 1, 2, 3]
    of_step = await store.run_attempts(run.id, step="s0", from_ordinal=1)
    assert [attempt.id for attempt in of_step] == [attempts[2]]
    page = await store.run_attempts(run.id, from_ordinal=1, limit=2)
    assert [attempt.id for attempt in page] == attempts[1:3]
    assert await store.run_attempts("nope") == []

    assert await store.get_attempt(attempts[3]) == run.steps["s2"].attempt
    assert await store.get_attempt("nope") is None
    assert (await whole(store, run.id)).steps["s0"].attempt == in_order[2]


async def test_history_tells_what_each_change_touched(store: Store) -> None:
    await with_workflow(store)
    stages = [await stored_run(store)]

    async def step(event: str, after: Run) -> None:
        following = replace(after, sequence=stages[-1].sequence + 1)
        stages.append(await save(store, stages[-1], following, event))

    await step("run_started", launched(stages[-1], "s0"))
    await step("attempt_ended", launched(ended(stages[-1], "s0"), "s1"))
    await step("attempt_ended", ended(stages[-1], "s1"))
    await step("cancel_requested", finished(stages[-1], RunState.CANCELLED))

    entries = await store.history(stages[0].id)
    assert [entry.sequence for entry in entries] == [1, 2, 3, 4]
    assert [entry.event for entry in entries] == [
        "run_started",
        "attempt_ended",
        "attempt_ended",
        "cancel_requested",
    ]
    assert {entry.at for entry in entries} == {later(2)}
    for entry, stage, names in zip(entries, stages[1:], (["s0"], ["s0", "s1"], ["s1"], []), strict=True):
        assert entry.run == replace(stage, steps={name: stage.steps[name] for name in names})
    page = await store.history(stages[0].id, after=1, limit=2)
    assert page == entries[1:3]
    assert await store.history(stages[0].id, after=4) == []


async def test_ids_need_not_be_made_in_order(store: Store) -> None:
    """A clock that was set back must not break anything: order is by id, numbers go on."""
    await with_workflow(store)
    early, late = new_id(), new_id()
    await stored_run(store, id=late)
    await stored_run(store, id=early)
    assert [(run.id, run.number) for run in await store.list_runs()] == [(late, 1), (early, 2)]
