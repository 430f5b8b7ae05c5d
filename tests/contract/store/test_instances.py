"""Steps that are more than one process: instances, iterations, checks, and saves that look at few of many steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from contract.builders import (
    change,
    ended,
    finished,
    later,
    launched,
    new_attempt,
    save,
    stored_run,
    touched,
    with_workflow,
)
from toband.domain.attempt_model import AttemptState
from toband.domain.run_index import moving
from toband.domain.run_model import Artifact, Phase, Run, RunState, StepRun, StepState
from toband.ports import RunChange, Store, UpdateResult


def instances(parent: StepRun, items: list[object]) -> dict[str, StepRun]:
    return {
        f"{parent.id}[{number}]": StepRun(
            id=f"{parent.id}[{number}]",
            index=parent.index,
            parent=parent.id,
            instance=number,
            item=item,
            state=StepState.READY,
            evaluated=True,
        )
        for number, item in enumerate(items)
    }


def fanned_out(run: Run, step: str, items: list[object]) -> Run:
    """The step is a group, and its instances are there."""
    group = replace(
        run.steps[step],
        state=StepState.RUNNING,
        phase=Phase.GROUP,
        evaluated=True,
        instances=len(items),
        released=1,
        ended=0,
    )
    after = touched(run, {step: group}, state=RunState.RUNNING)
    # Where they belong, though they came last.
    return replace(after, steps=ordered({**after.steps, **instances(group, items)}))


def ordered(steps: Mapping[str, StepRun]) -> dict[str, StepRun]:
    return {step.id: step for step in sorted(steps.values(), key=lambda step: step.position)}


async def test_instances_are_added_by_a_transition(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    items: list[object] = [{"os": "三"}, None, 3, [1, "\0"]]
    run = await save(store, run, fanned_out(run, "s1", items))
    stored = await store.get_run(run.id)
    assert stored == run
    names = ["s0", "s1", "s1[0]", "s1[1]", "s1[2]", "s1[3]", "s2"]
    assert list(stored.steps) == names
    assert [step.item for step in stored.steps.values() if step.parent] == items
    assert moving(stored.steps) == frozenset(("s1", *names[2:6]))
    (entry,) = await store.history(run.id)
    changed = {name: run.steps[name] for name in names[1:6]}
    assert entry.run == replace(run, steps=changed)
    assert list(entry.run.steps) == list(changed)

    run = await save(store, run, launched(run, "s1[2]"))
    run = await save(store, run, ended(run, "s1[2]"))
    assert await store.get_run(run.id) == run
    (attempt,) = await store.run_attempts(run.id, step="s1[2]")
    assert attempt == run.steps["s1[2]"].attempt
    assert (await store.history(run.id))[-1].run.steps == {"s1[2]": run.steps["s1[2]"]}


async def test_instances_are_paged_with_their_steps(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=3)
    run = await save(store, run, fanned_out(run, "s0", list(range(4))))
    run = await save(store, run, fanned_out(run, "s2", list(range(3))))
    seen: list[StepRun] = []
    while True:
        after = seen[-1].position if seen else -1
        page = await store.get_run_page(run.id, after=after, limit=2)
        assert page is not None
        if not page.steps:
            break
        seen += page.steps.values()
    assert seen == list(ordered(run.steps).values())


async def test_the_last_of_very_many_instances(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=2)
    last = StepRun(id="s0[9999]", index=0, parent="s0", instance=9_999, item="z")
    run = await save(store, run, touched(run, {"s0[9999]": last}))
    stored = await store.get_run(run.id)
    assert stored is not None
    assert list(stored.steps) == ["s0", "s0[9999]", "s1"]
    assert stored.steps["s0[9999]"] == last


async def test_a_loop_of_iterations_and_checks(store: Store) -> None:
    """The step's attempt gives way to that of its check, and that to the next iteration."""
    await with_workflow(store)
    run = await stored_run(store)

    async def over(run: Run, exit_code: int) -> Run:
        live = run.steps["s0"].attempt
        assert live is not None
        gone = replace(live, state=AttemptState.COMPLETED, exit_code=exit_code)
        return await save(store, run, touched(run, {"s0": replace(run.steps["s0"], attempt=gone)}))

    for iteration in (1, 2):
        step = replace(
            run.steps["s0"],
            state=StepState.RUNNING,
            phase=Phase.RUN,
            iteration=iteration,
            attempt=new_attempt(run, "s0", iteration=iteration, job="fetch"),
        )
        run = await save(store, run, touched(run, {"s0": step}, launches=run.launches + 1))
        run = await over(run, 0)
        check = replace(new_attempt(run, "s0", iteration=iteration), step="s0.check")
        checking = replace(
            run.steps["s0"],
            state=StepState.CHECKING,
            phase=Phase.CHECK,
            checks=iteration,
            artifacts=(Artifact(name="log", path="s0/log", files=2, bytes=1 << 40),),
            attempt=check,
        )
        run = await save(store, run, touched(run, {"s0": checking}, launches=run.launches + 1))
        assert await store.get_run(run.id) == run
        assert (await store.history(run.id, limit=99))[-1].run.steps == {"s0": run.steps["s0"]}
        run = await over(run, iteration - 1)
        verdict = replace(
            run.steps["s0"],
            check_token=check.token,
            check_exit_code=0,
            fingerprint=f"print-{iteration}",
            unchanged=iteration == 2,
        )
        run = await save(store, run, touched(run, {"s0": verdict}))
        assert await store.get_run(run.id) == run

    attempts = await store.run_attempts(run.id)
    assert [(a.step, a.iteration, a.job) for a in attempts] == [
        ("s0", 1, "fetch"),
        ("s0.check", 1, ""),
        ("s0", 2, "fetch"),
        ("s0.check", 2, ""),
    ]
    assert len(await store.list_attempts(run_id=run.id, step="s0.check")) == 2
    incomplete = replace(run.steps["s0"], state=StepState.INCOMPLETE)
    run = await save(store, run, touched(run, {"s0": incomplete}, incomplete_steps=1))
    assert await store.get_run(run.id) == run
    again = replace(incomplete, state=StepState.RUNNING)
    assert await store.save(change(run, touched(run, {"s0": again}))) is UpdateResult.WRONG_STATE


async def test_the_steps_of_the_definition_are_read_without_instances(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    await stored_run(store)
    assert list(await store.defined_steps(run)) == list(run.steps.values())
    run = await save(store, run, launched(run, "s1"))
    run = await save(store, run, fanned_out(run, "s0", [1, 2, 3]))
    steps = [step for step in run.steps.values() if not step.parent]
    assert 1 < len(steps) < len(run.steps)
    assert list(await store.defined_steps(run)) == [replace(step, attempt=None) for step in steps]


async def test_a_pause_and_a_back_off(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    waiting = replace(
        run.steps["s0"],
        state=StepState.READY,
        retries=2,
        not_before=later(0.000001),
        spilled=70_000,
    )
    run = await save(store, run, touched(run, {"s0": waiting}, paused_at=later(5)))
    stored = await store.get_run(run.id)
    assert stored == run
    assert moving(stored.steps) == frozenset(("s0",))
    assert (await store.history(run.id))[0].run == replace(run, steps={"s0": waiting})
    run = await save(store, run, touched(run, {}, paused_at=None))
    assert await store.get_run(run.id) == run


class Watched(Mapping[str, StepRun]):
    """Steps that may be asked for by name, and not be walked through."""

    def __init__(self, steps: Mapping[str, StepRun]) -> None:
        self.steps = steps

    def __getitem__(self, name: str) -> StepRun:
        return self.steps[name]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all steps were looked at")

    def __len__(self) -> int:
        raise AssertionError("all steps were looked at")


async def test_a_save_looks_only_at_what_was_touched(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=5)
    after = launched(run, "s3")
    # The same as before: it may have been touched, and is not written.
    saved = RunChange(
        before=replace(run, steps=Watched(run.steps)),
        after=replace(after, steps=Watched(after.steps)),
        at=later(1),
        event="run_started",
        touched={"s3", "s1"},
    )
    assert await store.save(saved) is UpdateResult.UPDATED
    assert await store.get_run(run.id) == after
    (entry,) = await store.history(run.id)
    assert list(entry.run.steps) == ["s3"]

    # New ones too, in the order of their places.
    grown = fanned_out(after, "s4", [1, 2])
    added = {"s4[1]", "s4", "s4[0]"}
    saved = RunChange(before=after, after=grown, at=later(2), event="step_evaluated", touched=added)
    assert await store.save(saved) is UpdateResult.UPDATED
    assert await store.get_run(run.id) == grown
    assert list((await store.history(run.id))[-1].run.steps) == ["s4", "s4[0]", "s4[1]"]

    # And what was not named is not written, whatever it is.
    other = touched(grown, {"s0": replace(grown.steps["s0"], reason="unseen")}, error="x")
    saved = RunChange(before=grown, after=other, at=later(2), event="x", touched=frozenset())
    assert await store.save(saved) is UpdateResult.UPDATED
    assert await store.get_run(run.id) == replace(other, steps=grown.steps)


async def test_a_step_that_is_not_there_cannot_be_touched(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    wrong = RunChange(before=run, after=launched(run, "s0"), at=later(1), event="x", touched={"s0", "nope"})
    with pytest.raises(KeyError, match="nope"):
        await store.save(wrong)
    assert await store.get_run(run.id) == run


async def test_a_child_run_and_its_parent(store: Store) -> None:
    await with_workflow(store, "backup", "copy")
    parent = await stored_run(store)
    attempt = new_attempt(parent, "s0", child=True)
    step = replace(parent.steps["s0"], state=StepState.RUNNING, attempt=attempt)
    parent = await save(store, parent, touched(parent, {"s0": step}, state=RunState.RUNNING))
    assert await store.get_run(parent.id) == parent
    child = await stored_run(store, "copy", id=attempt.id, parent_run=parent.id, parent_step="s0")
    other = await stored_run(store, "copy", parent_run=parent.id, parent_step="s1")
    await stored_run(store, "copy", parent_run=other.id, parent_step="s0")
    other = await save(store, other, finished(other, RunState.FAILED))
    assert await store.get_run(child.id) == child

    async def children(workflow: str = "", before: str = "", limit: int = 9) -> list[str]:
        found = await store.list_runs(parent_run=parent.id, workflow=workflow, before=before, limit=limit)
        assert all(run.steps == {} for run in found)
        return [run.id for run in found]

    assert await children() == [other.id, child.id]
    assert await children(limit=1) == [other.id]
    assert await children(before=other.id) == [child.id]
    assert await children(workflow="backup") == []
    failed = await store.list_runs(parent_run=parent.id, states=[RunState.FAILED])
    assert [run.id for run in failed] == [other.id]
    assert await store.list_runs(parent_run=child.id) == []
