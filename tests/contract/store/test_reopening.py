"""Acknowledged writes are there after every end of the process, clean or not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.builders import (
    NOW,
    ended,
    finished,
    launched,
    new_run,
    request,
    save,
    stored_run,
    text,
    touched,
    with_workflow,
)
from contract.conftest import NewStore
from toband.ports import Store, StoreError
from toband.store import SqlStore

SAVER = Path(__file__).with_name("saver.py")
DEADLINE = 120.0
"""A hundred changes are synced one by one, on whatever disk there is."""


async def test_reopening_shows_everything(new_store: NewStore) -> None:
    first = await new_store()
    workflow = await first.create_workflow(text(), at=NOW, request=request())
    run = await stored_run(first)
    for step in run.steps:
        run = await save(first, run, launched(run, step))
        run = await save(first, run, ended(run, step))
    run = await save(first, run, finished(run))
    history = await first.history(run.id)
    attempts = await first.list_attempts()
    await first.close()

    second = await new_store()
    assert await second.get_workflow("backup") == workflow
    assert await second.get_run(run.id) == run
    assert await second.history(run.id) == history
    assert await second.list_attempts() == attempts
    assert await second.create_workflow(text(), at=NOW, request=request()) == workflow


async def test_closing_finishes_what_was_asked_for(new_store: NewStore) -> None:
    first = await new_store()
    await with_workflow(first)
    asked = [asyncio.create_task(first.create_run(new_run(steps=1), max_active=None)) for _ in range(50)]
    await asyncio.sleep(0)
    await first.close()
    made = {run.id for run, _ in await asyncio.gather(*asked)}
    second = await new_store()
    assert set(await second.active_run_ids()) == made
    assert len(made) == 50


async def test_a_closed_store_refuses(store: Store) -> None:
    await with_workflow(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await store.list_runs()
    with pytest.raises(StoreError, match="closed"):
        await store.create_run(new_run(), max_active=None)


async def test_a_store_that_was_never_opened_refuses(url: str) -> None:
    store = SqlStore(url)
    with pytest.raises(StoreError, match="not open"):
        await store.list_runs()
    with pytest.raises(StoreError, match="not open"):
        await store.create_run(new_run(), max_active=None)
    await store.close()


@contextmanager
def saver(url: str, run_id: str, failpoints: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that saves change after change, and prints the number of each one that was acknowledged."""
    environment = os.environ | {
        "TOBAN_FAILPOINTS": failpoints,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(
        [sys.executable, str(SAVER), url, run_id],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


async def started(store: SqlStore) -> str:
    await with_workflow(store)
    run = await stored_run(store)
    await save(store, run, launched(run, "s0"))
    await store.close()
    return run.id


async def saved(new_store: NewStore, run_id: str) -> int:
    """The last change that is there; all before it must be too."""
    store = await new_store()
    run = await store.get_run(run_id)
    assert run is not None
    entries = await store.history(run_id, limit=1_000_000)
    assert [entry.sequence for entry in entries] == list(range(1, run.sequence + 1))
    assert entries[-1].run.error == run.error
    # And the store is as good as ever.
    await save(store, run, touched(run, {}))
    return run.sequence


async def test_nothing_acknowledged_is_lost_by_kill_9(new_store: NewStore, url: str) -> None:
    run_id = await started(await new_store())

    def kill_in_the_middle() -> int:
        with saver(url, run_id) as process:
            assert process.stdout is not None
            acknowledged = 0
            for line in process.stdout:
                acknowledged = int(line)
                if acknowledged >= 100:
                    process.kill()
                    break
            # What it still said before it died counts as well.
            for line in process.stdout:
                acknowledged = int(line) if line.endswith("\n") else acknowledged
            process.wait(timeout=DEADLINE)
            return acknowledged

    acknowledged = await asyncio.wait_for(asyncio.to_thread(kill_in_the_middle), DEADLINE)
    assert acknowledged >= 100
    assert await saved(new_store, run_id) >= acknowledged


@pytest.mark.parametrize(("point", "extra"), [("before_commit", 0), ("after_commit", 1)])
async def test_killed_beside_the_commit(new_store: NewStore, url: str, point: str, extra: int) -> None:
    """Directly before the commit the change is not stored; directly after it, it is, although no answer was sent."""
    run_id = await started(await new_store())

    def run_until_killed() -> int:
        with saver(url, run_id, f"store.{point}=kill@20") as process:
            lines = process.communicate(timeout=DEADLINE)[0].splitlines()
            return int(lines[-1])

    acknowledged = await asyncio.wait_for(asyncio.to_thread(run_until_killed), DEADLINE)
    assert acknowledged == 1 + 19
    assert await saved(new_store, run_id) == acknowledged + extra
