"""What retention asks of a store: what could go, what never goes, and what goes with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uuid_utils

from contract.builders import (
    NOW,
    ended,
    finished,
    later,
    launched,
    new_run,
    request,
    save,
    stored_run,
    touched,
    with_workflow,
)
from toband.domain.model import Run, RunState, Sample, Usage
from toband.ports import RunGoneError, RunSize, Store, StoredSize

DAY = timedelta(days=1)


async def over(store: Store, workflow: str = "backup", **changes: Any) -> Run:
    """A run that has ended."""
    run = await stored_run(store, workflow, **changes)
    return await save(store, run, finished(run))


async def ids(store: Store, **how: Any) -> list[str]:
    return [run.id for run in await store.removable_runs(**how)]


def made_at(at: datetime, number: int) -> str:
    """An id with its time in front, as uuid7 has it."""
    digits = f"{int(at.timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"


async def test_the_last_run_of_a_workflow_and_active_ones_are_not_removable(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    first, active = await over(store), await stored_run(store)
    second, only = await over(store), await over(store, "other")
    last = await over(store)
    assert await ids(store) == [first.id, second.id]
    assert await ids(store, workflow="other") == []
    assert await ids(store, after=first.id) == [second.id]
    assert await ids(store, limit=1) == [first.id]
    assert await store.delete_runs([first.id, active.id, only.id, last.id]) == [first.id]
    kept = {run.id for run in await store.list_runs()}
    assert kept == {active.id, second.id, only.id, last.id}


async def test_a_workflow_keeps_its_last_number_even_when_all_are_to_go(store: Store) -> None:
    await with_workflow(store)
    runs = [await over(store) for _ in range(3)]
    assert await store.delete_runs([run.id for run in runs]) == [run.id for run in runs[:2]]
    assert (await stored_run(store)).number == 4


async def test_runs_that_ended_before_a_time(store: Store) -> None:
    await with_workflow(store)
    old = await over(store, id=made_at(NOW, 1))
    long = await stored_run(store, id=made_at(NOW, 2))
    long = await save(store, long, replace(finished(long), finished_at=NOW + 3 * DAY))
    await over(store)
    assert await ids(store, workflow="backup", finished_before=later(3)) == []
    assert await ids(store, workflow="backup", finished_before=NOW + DAY) == [old.id]
    assert await ids(store, workflow="backup", finished_before=NOW + 9 * DAY) == [old.id, long.id]


async def test_ids_of_real_time_are_no_obstacle(store: Store) -> None:
    await with_workflow(store)
    made = []
    for _ in range(3):
        run_id = str(uuid_utils.uuid7())
        run = await stored_run(store, id=run_id, created_at=datetime.now(UTC))
        made.append(run_id)
        await save(store, run, replace(finished(run), finished_at=datetime.now(UTC)))
    assert await ids(store, finished_before=datetime.now(UTC)) == made[:2]
    assert await ids(store, finished_before=datetime.now(UTC) - DAY) == []


async def test_the_number_from_which_on_runs_are_kept(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    await over(store, "other")
    runs = [await over(store) for _ in range(5)]
    assert await store.kept_number("backup", 2) == 4
    assert await store.kept_number("backup", 5) == 1
    assert await store.kept_number("backup", 6) == 0
    assert await ids(store, workflow="backup", number_below=4) == [run.id for run in runs[:3]]
    # Numbers that are missing do not count.
    await store.delete_runs([runs[3].id])
    assert await store.kept_number("backup", 2) == 3


async def test_sizes_are_kept_summed_and_replaced(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    one, two, active = await over(store), await over(store, "other"), await stored_run(store)
    assert [run.id for run in await store.unmeasured_runs()] == [one.id, two.id]
    assert [run.id for run in await store.unmeasured_runs(start=two.id)] == [two.id]
    assert [run.id for run in await store.unmeasured_runs(limit=1)] == [one.id]
    large = 1 << 45
    await store.save_sizes(
        {
            one.id: RunSize(bytes=large, log_bytes=7),
            two.id: RunSize(bytes=5, log_bytes=2),
            "gone": RunSize(bytes=1, log_bytes=1),
        }
    )
    assert await store.unmeasured_runs() == []
    assert await store.stored_size() == StoredSize(runs=3, bytes=large + 5, log_bytes=9)
    assert await store.stored_size("other") == StoredSize(runs=1, bytes=5, log_bytes=2)
    assert await store.stored_size("nope") == StoredSize(runs=0, bytes=0, log_bytes=0)
    await store.save_sizes({one.id: RunSize(bytes=3, log_bytes=1)})
    await save(store, active, finished(active))
    (found,) = await store.removable_runs()
    assert (found.id, found.size) == (one.id, RunSize(bytes=3, log_bytes=1))
    assert (found.workflow, found.number, found.finished_at) == ("backup", 1, later(3))
    await store.delete_runs([one.id])
    assert await store.stored_size() == StoredSize(runs=2, bytes=5, log_bytes=2)
    await store.save_sizes({})


async def test_all_that_is_a_runs_own_goes_with_it(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    for step in ("s0", "s1"):
        run = await save(store, run, launched(run, step))
        run = await save(store, run, ended(run, step))
    run = await save(store, run, finished(run))
    attempts = await store.run_attempts(run.id)
    assert len(attempts) == 2
    sample = Sample(at=NOW, cpu=1.0, rss_bytes=1, processes=1)
    await store.save_usage({attempts[0].id: Usage(samples=(sample,))})
    await store.save_sizes({run.id: RunSize(bytes=9, log_bytes=9)})
    other = await over(store)

    assert await store.delete_runs([run.id]) == [run.id]
    assert await store.get_run(run.id) is None
    assert await store.history(run.id) == []
    assert await store.run_attempts(run.id) == []
    assert await store.get_attempt(attempts[0].id) is None
    assert not await store.usage_of([attempts[0].id])
    assert (await store.stored_size()).bytes == 0
    assert await store.get_run(other.id) == other
    assert await store.delete_runs([run.id]) == []
    assert await store.delete_runs([]) == []


async def test_rows_are_estimated_by_steps_and_launches(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=40)
    small = finished(run)
    await save(store, run, touched(small, {}, sequence=small.sequence, launches=20))
    await over(store)
    (found,) = await store.removable_runs()
    assert 80 <= found.rows <= 200


async def test_a_request_whose_run_is_gone_says_so(store: Store) -> None:
    await with_workflow(store)
    run, _ = await store.create_run(new_run(), max_active=None, request=request())
    await save(store, run, finished(run))
    await over(store)
    await store.delete_runs([run.id])
    with pytest.raises(RunGoneError, match=run.id):
        await store.run_of_request(request())
    with pytest.raises(RunGoneError, match=run.id):
        await store.create_run(new_run(), max_active=None, request=request())
    assert len(await store.list_runs()) == 1


async def test_all_workflows_that_ever_were_may_have_runs(store: Store) -> None:
    await with_workflow(store, "b", "a")
    await store.delete_workflow("b")
    assert await store.run_workflows() == ["a", "b"]


async def test_many_at_once(store: Store) -> None:
    await with_workflow(store)
    runs = [await over(store, steps=0) for _ in range(620)]
    await store.save_sizes({run.id: RunSize(bytes=1, log_bytes=1) for run in runs})
    assert (await store.stored_size()).bytes == 620
    gone = await store.delete_runs([run.id for run in runs])
    assert gone == [run.id for run in runs[:-1]]
    states = await store.known_runs([run.id for run in runs])
    assert dict(states) == {runs[-1].id: RunState.SUCCEEDED}
