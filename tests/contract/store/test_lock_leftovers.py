"""Locks that stay held after an attempt: written with its end, and kept when the run is deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contract.builders import NOW, finished, later, new_run, save, stored_run, with_workflow
from toband.domain.lock_rules import LockLeftover, LockUser
from toband.domain.run_model import Run
from toband.ports import RunChange, Store, UpdateResult


def leftover(run: Run, lock: str = "db", **changes: Any) -> LockLeftover:
    made = LockLeftover(
        lock=lock,
        user=LockUser(run.id, "s0"),
        attempt_id="attempt-1",
        run_id=run.id,
        workflow=run.workflow,
        number=run.number,
        step="s0.check",
        since=NOW,
        boot_id="boot",
        pids=(7, 12),
    )
    return replace(made, **changes)


async def test_they_come_with_their_transition_and_stay_until_they_are_deleted(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    made = (leftover(run), leftover(run, "gpu", user=LockUser(run.id), boot_id="", pids=()))
    change = RunChange(before=run, after=finished(run), at=later(3), event="attempt_ended", lock_leftovers=made)
    assert await store.save(change) is UpdateResult.UPDATED
    assert await store.list_lock_leftovers() == list(made)
    await store.delete_lock_leftovers(made[:1])
    await store.delete_lock_leftovers(made[:1])
    assert await store.list_lock_leftovers() == list(made[1:])


async def test_a_transition_that_is_refused_leaves_none(store: Store) -> None:
    await with_workflow(store)
    stale = await stored_run(store)
    await save(store, stale, replace(stale, sequence=stale.sequence + 1))
    for before in (stale, new_run()):
        change = RunChange(before=before, after=finished(before), at=NOW, event="x", lock_leftovers=(leftover(before),))
        assert await store.save(change) is not UpdateResult.UPDATED
    assert not await store.list_lock_leftovers()
