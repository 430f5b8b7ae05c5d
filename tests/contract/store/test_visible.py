"""Lists for a caller that is limited to some workflows: only their rows, in order, with full pages."""

from __future__ import annotations

import random
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from contract.builders import NOW, launched, save, stored_run, text, with_workflow
from contract.scheduled import entry
from toban.definition import DefinitionKind
from toband.domain.attempt_model import AttemptState
from toband.domain.identity import Narrowing, Visible
from toband.domain.run_model import Run, RunState
from toband.ports import IdKind, Store

NAMES = ("nightly-a", "nightly_b", "nightly-10", "Nightly-a", "deploy", "deploy-web", "x")
PATTERNS = (
    "nightly-*",
    "nightly?b",
    "*",
    "?",
    "[dx]*",
    "[!n]*",
    "[!Nn]*",
    "nightly-[0-9]*",
    "nightly-[!0-9]",
    "nightly[_-]?",
    "nightly[]-]a",
    "nightly[!]]a",
    "deploy",
    "deploy[",
    "Nightly*",
    "%",
    "nightly.a",
    "(a|x)",
    "d\\*",
    "",
    "*-*",
    "[a-c]",
    "**y",
)


def by_names(*patterns: str) -> Visible:
    return (Narrowing(workflows=patterns),)


async def create_all(store: Store) -> None:
    for name in NAMES:
        await store.create_workflow(text(name), at=NOW)


async def names(store: Store, visible: Visible) -> list[str]:
    return [each.name for each in await store.list_workflows(visible=visible)]


async def run_of(store: Store, workflow: str, state: RunState = RunState.PENDING) -> Run:
    run = await stored_run(store, workflow)
    if state is RunState.PENDING:
        return run
    over = replace(run, sequence=1, state=state, started_at=NOW, finished_at=NOW if state.terminal else None)
    await save(store, run, over)
    return over


async def test_patterns_match_as_the_narrowing_does(store: Store) -> None:
    await create_all(store)
    for pattern in PATTERNS:
        expected = sorted(name for name in NAMES if fnmatchcase(name, pattern))
        assert sorted(await names(store, by_names(pattern))) == expected, pattern
    assert sorted(await names(store, by_names("x", "deploy*"))) == ["deploy", "deploy-web", "x"]


async def test_random_patterns_match_as_the_narrowing_does(store: Store) -> None:
    await create_all(store)
    choice = random.Random(7).choice
    for _ in range(150):
        pattern = "".join(choice("nightlydeploy-_*?[]!abN1") for _ in range(choice((1, 2, 3, 4, 6))))
        expected = sorted(name for name in NAMES if fnmatchcase(name, pattern))
        assert sorted(await names(store, by_names(pattern, "ni*["))) == expected, pattern


async def test_without_names_and_labels_nothing_is_visible(store: Store) -> None:
    await create_all(store)
    await run_of(store, "deploy")
    for visible in ((), (Narrowing(),)):
        assert await names(store, visible) == []
        assert await store.list_runs(visible=visible) == []
        assert await store.count_definitions(visible=visible) == {}


async def test_labels(store: Store) -> None:
    await store.create_workflow(text("a", labels={"team": "ops", "tier": "1"}), at=NOW)
    await store.create_workflow(text("b", labels={"team": "ops"}), at=NOW)
    await store.create_workflow(text("c", labels={"team": "dev"}), at=NOW)
    a, b, c = [await run_of(store, name) for name in "abc"]
    await store.create_workflow(text("gone"), at=NOW)
    gone = await run_of(store, "gone", RunState.FAILED)
    assert await store.delete_workflow("gone", at=NOW)
    ops, both = Narrowing(labels=(("team", "ops"),)), Narrowing(labels=(("team", "ops"), ("tier", "1")))
    assert await names(store, (ops,)) == ["a", "b"]
    assert await names(store, (both,)) == ["a"]
    assert await names(store, (both, Narrowing(workflows=("c",)))) == ["a", "c"]
    assert [run.id for run in await store.list_runs(visible=(ops,))] == [b.id, a.id]
    mixed = (Narrowing(workflows=("gone", "c"), labels=(("tier", "1"),)),)
    assert [run.id for run in await store.list_runs(visible=mixed)] == [gone.id, c.id, a.id]
    await store.update_workflow(text("b", labels={}), at=NOW)
    assert [run.id for run in await store.list_runs(visible=(ops,))] == [a.id]
    assert await store.labels_of(["a", "b", "gone"]) == {"a": {"team": "ops", "tier": "1"}, "b": {}}


@pytest.mark.parametrize("states", [(), (RunState.PENDING,), (RunState.PENDING, RunState.RUNNING)])
@pytest.mark.parametrize("spread", [3, 20])
async def test_pages_of_runs_are_full_and_in_order(store: Store, states: tuple[RunState, ...], spread: int) -> None:
    """Few workflows are read one by one, and many in one walk."""
    await with_workflow(store, "other", *(f"mine-{number}" for number in range(spread)))
    visible, mine = by_names("mine-*"), list[str]()
    for number in range(12):
        await run_of(store, "other")
        mine.append((await run_of(store, f"mine-{number % spread}")).id)
    found, before = list[str](), ""
    while page := await store.list_runs(states=states, visible=visible, before=before, limit=5):
        assert len(page) == min(5, len(mine) - len(found))
        found += [run.id for run in page]
        before = found[-1]
        await run_of(store, "other")
        await run_of(store, "mine-1")
    assert found == mine[::-1]


async def test_attempts_of_many_workflows(store: Store) -> None:
    names = [f"mine-{number}" for number in range(20)]
    await with_workflow(store, "other", *names)
    mine = []
    for name in [*names, "other"]:
        run = await stored_run(store, name)
        running = launched(run, "s0")
        await save(store, run, running)
        attempt = running.steps["s0"].attempt
        assert attempt is not None
        mine.append(attempt.id)
    found = await store.list_attempts(visible=by_names("mine-*"), limit=7)
    assert [each.id for each in found] == mine[-2:-9:-1]
    states = [AttemptState.STARTING, AttemptState.FAILED]
    found = await store.list_attempts(visible=by_names("mine-1", "mine-2"), states=states)
    assert [each.id for each in found] == [mine[2], mine[1]]
    assert await store.list_attempts(visible=by_names("none")) == []
    assert await store.list_runs(visible=by_names("none")) == []


async def test_every_way_to_find_runs(store: Store) -> None:
    await with_workflow(store, "mine", "other")
    parent = await run_of(store, "other")
    runs: dict[str, str] = {}
    for workflow in ("mine", "other"):
        run = await stored_run(store, workflow, parent_run=parent.id, retry_of=parent.id, labels={"k": "v"})
        runs[workflow] = run.id
    visible = by_names("mine")
    for conditions in (
        {"parent_run": parent.id},
        {"retry_of": parent.id},
        {"labels": {"k": "v"}},
        {"ids": list(runs.values())},
        {"labels": {"k": "v"}, "workflow": "mine"},
        {"states": [RunState.PENDING], "labels": {"k": "v"}},
    ):
        found = await store.list_runs(visible=visible, **conditions)
        assert [run.id for run in found] == [runs["mine"]], conditions
    assert await store.list_runs(visible=visible, workflow="other") == []
    assert await store.list_runs(visible=visible, workflow="other", number=1) == []
    origin = await store.run_origin(runs["mine"])
    assert origin is not None
    assert (origin.workflow, origin.parent_run) == ("mine", parent.id)
    assert await store.run_origin("none") is None


async def test_attempts_and_ids(store: Store) -> None:
    await with_workflow(store, "mine", "other")
    ids: dict[str, str] = {}
    for workflow in ("mine", "other"):
        run = await stored_run(store, workflow)
        running = launched(run, "s0")
        await save(store, run, running)
        attempt = running.steps["s0"].attempt
        assert attempt is not None
        ids[workflow] = attempt.id
    visible = by_names("mine")
    assert [each.id for each in await store.list_attempts(visible=visible)] == [ids["mine"]]
    assert await store.list_attempts(visible=visible, workflow="other") == []
    part = ids["mine"][:8]
    assert set(await store.find_ids(IdKind.PROCESS, part, 10)) >= set(ids.values())
    assert await store.find_ids(IdKind.PROCESS, part, 10, visible=visible) == [ids["mine"]]
    assert await store.find_ids(IdKind.PROCESS, ids["other"][-12:], 10, visible=visible) == []
    assert await store.find_ids(IdKind.EVENT, part, 10, visible=visible) == []


async def test_schedules_of_subjects(store: Store) -> None:
    for number, workflow in enumerate(("mine", "other", "")):
        await store.create_schedule(
            entry(number, id=f"s{number}", workflow=workflow, subject="issue-1", action="reminder", next_due=NOW)
        )
    found = await store.list_schedules(of_subjects=True, visible=by_names("mine"))
    assert [each.id for each in found] == ["s0"]


async def test_summaries_and_totals(store: Store) -> None:
    for name in ("mine", "other"):
        await store.create_workflow(text(name), at=NOW)
        await store.create_workflow(text(f"{name}-off", enabled=False), at=NOW)
        await store.create_workflow(text(f"{name}-job", kind=DefinitionKind.JOB), at=NOW)
        for state in (RunState.RUNNING, RunState.PENDING, RunState.FAILED):
            await run_of(store, name, state)
    visible = by_names("mine", "mine-*")
    everything = await store.run_totals(failed_since=NOW)
    assert (everything.disabled, everything.running, everything.waiting, everything.failures) == (2, 2, 2, 2)
    mine = await store.run_totals(failed_since=NOW, visible=visible)
    assert (mine.disabled, mine.running, mine.waiting, mine.failures) == (1, 1, 1, 1)
    assert await store.count_definitions(visible=visible) == {DefinitionKind.WORKFLOW: 2, DefinitionKind.JOB: 1}
    assert [run.workflow for run in await store.failed_runs(since=NOW, limit=9, visible=visible)] == ["mine"]
    expected = ["mine", "mine-job", "mine-off"]
    assert [each.stored.name for each in await store.list_summaries(visible=visible)] == expected
    assert [each.stored.name for each in await store.list_summaries(visible=visible, text="m")] == expected
    relevant = await store.relevant_summaries(failed_since=NOW, limit=9, visible=visible)
    assert [each.stored.name for each in relevant] == ["mine", "mine-off"]
    assert [
        each.stored.name for each in await store.relevant_summaries(failed_since=NOW, limit=1, visible=visible)
    ] == ["mine"]
