"""Saving transitions: compare-and-set, and the fields that never change."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from contract.builders import (
    NOW,
    change,
    ended,
    finished,
    later,
    launched,
    new_attempt,
    new_run,
    save,
    stored_run,
    touched,
    with_workflow,
)
from toban.definition import ErrorClass
from toband.domain.attempt_model import Attempt, AttemptState
from toband.domain.run_model import Ending, EndingCause, Run, RunState, SkipReason, StepRun, StepState
from toband.ports import RunChange, Store, UpdateResult

UPDATED, NOT_FOUND, WRONG_STATE = (
    UpdateResult.UPDATED,
    UpdateResult.NOT_FOUND,
    UpdateResult.WRONG_STATE,
)


def live(run: Run, step: str) -> Attempt:
    attempt = run.steps[step].attempt
    assert attempt is not None
    return attempt


def with_attempt(run: Run, step: str, **changes: Any) -> Run:
    attempt = replace(live(run, step), **changes)
    return touched(run, {step: replace(run.steps[step], attempt=attempt)})


async def unchanged(store: Store, run: Run) -> bool:
    entries = await store.history(run.id)
    return await store.get_run(run.id) == run and len(entries) == run.sequence


async def test_a_whole_run(store: Store) -> None:
    """Every stage is there as it was saved: the run, its steps, their attempts."""
    await with_workflow(store)
    run = await stored_run(store)
    for step in run.steps:
        run = await save(store, run, launched(run, step))
        assert await store.get_run(run.id) == run
        run = await save(store, run, ended(run, step))
        assert await store.get_run(run.id) == run
        assert await store.get_attempt(live(run, step).id) == live(run, step)
    run = await save(store, run, finished(run))
    assert await store.get_run(run.id) == run
    assert await store.active_run_ids() == []


async def test_a_chained_step_is_one_save(store: Store) -> None:
    """The end of one and the launch of the next."""
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    after = replace(launched(ended(run, "s0"), "s1"), sequence=run.sequence + 1)
    run = await save(store, run, after)
    assert await store.get_run(run.id) == run
    assert len(await store.history(run.id)) == 2


async def test_all_that_a_transition_may_change(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    skipped = replace(run.steps["s1"], state=StepState.SKIPPED, skip_reason=SkipReason.CANCELLED)
    failed = replace(
        run.steps["s0"],
        state=StepState.FAILED,
        exit_code=3221225786,
        error_class=ErrorClass.RETRYABLE_RATE_LIMIT,
        attempt=replace(
            live(run, "s0"),
            state=AttemptState.TIMED_OUT,
            signal=9,
            error="no end in sight",
            error_class=ErrorClass.NON_RETRYABLE,
            command="other",
            boot_id="boot-2",
        ),
    )
    after = touched(
        run,
        {"s0": failed, "s1": skipped},
        error="s0 failed",
        failed_steps=1,
        ended_steps=2,
        total_steps=4,
        cancel_requested_at=later(7),
        ending=Ending(cause=EndingCause.CANCELLED, at=later(8)),
        timeout=2.5,
        sequence=17,
    )
    run = await save(store, run, after)
    assert await store.get_run(run.id) == run
    assert [entry.sequence for entry in await store.history(run.id)] == [1, 17]


async def test_an_unknown_run_is_not_found(store: Store) -> None:
    run = new_run()
    assert await store.save(change(run, launched(run, "s0"))) is NOT_FOUND
    assert await store.get_run(run.id) is None
    assert await store.list_attempts() == []


async def test_a_stale_sequence_is_refused(store: Store) -> None:
    await with_workflow(store)
    stale = await stored_run(store)
    run = await save(store, stale, launched(stale, "s0"))
    assert await store.save(change(stale, launched(stale, "s1"))) is WRONG_STATE
    ahead = replace(run, sequence=9)
    assert await store.save(change(ahead, finished(ahead))) is WRONG_STATE
    assert await unchanged(store, run)


async def test_another_state_is_refused(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    before = replace(run, state=RunState.RUNNING)
    assert await store.save(change(before, finished(before))) is WRONG_STATE
    assert await unchanged(store, run)


@pytest.mark.parametrize("state", [state for state in RunState if state.terminal])
async def test_a_terminal_run_never_changes(store: Store, state: RunState) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, finished(run, state))
    assert await store.save(change(run, touched(run, {}, state=RunState.RUNNING))) is WRONG_STATE
    assert await store.save(change(run, touched(run, {}, error="late"))) is WRONG_STATE
    assert await unchanged(store, run)


async def test_a_terminal_step_never_changes(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    run = await save(store, run, ended(run, "s0"))
    again = replace(run.steps["s0"], state=StepState.RUNNING)
    open_step = replace(run.steps["s1"], state=StepState.READY)
    after = touched(run, {"s0": again, "s1": open_step}, error="never seen")
    assert await store.save(change(run, after)) is WRONG_STATE
    assert await unchanged(store, run)


async def test_a_terminal_attempt_never_changes(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    run = await save(store, run, with_attempt(run, "s0", state=AttemptState.LOST))
    after = with_attempt(run, "s0", state=AttemptState.COMPLETED)
    assert await store.save(change(run, after)) is WRONG_STATE
    assert await unchanged(store, run)


async def test_a_report_with_a_superseded_token_changes_nothing(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    current = await save(store, run, with_attempt(run, "s0", token="second"))
    assert (await whole_attempt(store, current)).token == "second"
    # Right about the run, wrong about the token.
    confused = replace(current, steps=run.steps)
    after = with_attempt(confused, "s0", state=AttemptState.COMPLETED)
    assert await store.save(change(confused, after)) is WRONG_STATE
    assert await unchanged(store, current)


async def whole_attempt(store: Store, run: Run) -> Attempt:
    attempt = await store.get_attempt(live(run, "s0").id)
    assert attempt is not None
    return attempt


async def test_only_what_differs_is_written(store: Store) -> None:
    """A step that is the same object in both is left alone, even where the database knows better."""
    await with_workflow(store)
    run = await stored_run(store)
    imagined = replace(run.steps["s1"], reason="imagined")
    before = replace(run, steps={**run.steps, "s1": imagined})
    after = launched(before, "s0")
    assert await store.save(change(before, after)) is UPDATED
    stored = await store.get_run(run.id)
    assert stored is not None
    assert stored.steps["s1"] == run.steps["s1"]
    assert stored.steps["s0"] == after.steps["s0"]
    assert list((await store.history(run.id))[0].run.steps) == ["s0"]


async def test_steps_may_be_added(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=2)
    run = await save(store, run, touched(run, {"extra": StepRun(id="extra", index=2)}))
    assert await store.get_run(run.id) == run


async def test_many_steps_in_one_change(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=200)
    skipped = {
        name: replace(step, state=StepState.SKIPPED, skip_reason=SkipReason.ABORTED) for name, step in run.steps.items()
    }
    run = await save(store, run, touched(run, skipped, state=RunState.FAILED))
    assert await store.get_run(run.id) == run


async def test_of_concurrent_saves_of_one_run_exactly_one_wins(stores: list[Store]) -> None:
    await with_workflow(stores[0])
    run = await stored_run(stores[0], steps=16)
    for _ in range(3):
        rivals = [touched(run, {}, error=f"by {n}") for n in range(16)]
        results = await asyncio.gather(*(stores[n % 2].save(change(run, rival)) for n, rival in enumerate(rivals)))
        assert Counter(results) == {UPDATED: 1, WRONG_STATE: 15}
        run = rivals[results.index(UPDATED)]
        assert await unchanged(stores[0], run)


async def test_runs_advance_side_by_side(store: Store) -> None:
    await with_workflow(store)

    async def walk(run: Run) -> Run:
        for step in run.steps:
            run = await save(store, run, launched(run, step))
            run = await save(store, run, ended(run, step))
        return await save(store, run, finished(run))

    runs = [await stored_run(store) for _ in range(12)]
    for run in await asyncio.gather(*map(walk, runs)):
        assert await unchanged(store, run)


async def test_a_change_must_follow_on_its_run(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    for after in (replace(run, error="x"), new_run(sequence=1)):
        with pytest.raises(ValueError, match="cannot save"):
            await store.save(change(run, after))
    assert await unchanged(store, run)


async def test_a_living_attempt_is_not_forgotten(store: Store) -> None:
    """At most one attempt of a step lives, and none vanishes without its end having been stored."""
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    second = replace(run.steps["s0"], attempt=new_attempt(run, "s0"))
    with pytest.raises(ValueError, match="still lives"):
        await store.save(change(run, touched(run, {"s0": second})))
    assert await unchanged(store, run)


async def test_times_need_a_zone(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match="zone"):
        await store.save(change(run, touched(run, {}, started_at=naive)))
    with pytest.raises(ValueError, match="zone"):
        await store.save(RunChange(before=run, after=touched(run, {}), at=naive, event="x"))
    assert await unchanged(store, run)


async def test_what_processes_say_is_stored_whatever_it_is(store: Store) -> None:
    """NUL and halves of surrogate pairs are no text for a database; a run must not hang on them."""
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    broken = "bad\0byte \udcff 三"
    step = replace(
        run.steps["s0"],
        reason=broken,
        result={"said": broken},
        outputs={"said": broken},
        attempt=replace(live(run, "s0"), error=broken, command=broken),
    )
    assert await store.save(change(run, touched(run, {"s0": step}, error=broken))) is UPDATED
    stored = await store.get_run(run.id)
    assert stored is not None
    mended = "bad\ufffdbyte \ufffd 三"
    assert (stored.error, stored.steps["s0"].reason) == (mended, mended)
    assert (live(stored, "s0").error, live(stored, "s0").command) == (mended, mended)
    # In JSON every character has its escape.
    assert stored.steps["s0"].result == {"said": broken}
    assert stored.steps["s0"].outputs == {"said": broken}
    assert (await store.history(run.id))[-1].run == replace(stored, steps={"s0": stored.steps["s0"]})


async def test_microseconds_are_kept(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    at = NOW.replace(microsecond=999_999)
    run = await save(store, run, touched(run, {}, started_at=at))
    stored = await store.get_run(run.id)
    assert stored is not None
    assert stored.started_at == at
    assert stored.started_at.utcoffset() is not None
