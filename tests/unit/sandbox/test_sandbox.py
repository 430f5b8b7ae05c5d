"""Worker processes: work beyond a limit is ended, and other work is not affected."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from helpers.wait import wait_for
from toban.definition import RenderError, Scope, parse, render
from toband.ports import OverLimitError
from toband.sandbox import worker_process
from toband.sandbox.worker_pool import ProcessSandbox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="time is limited by a signal")

FOREVER = range(10**18)


@pytest.fixture
async def sandbox() -> AsyncIterator[ProcessSandbox]:
    made = ProcessSandbox()
    yield made
    pids = made.pids
    await made.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_a_worker_is_kept_for_the_next_request(sandbox: ProcessSandbox) -> None:
    assert not sandbox.pids
    first = await sandbox.call(os.getpid, key="a", seconds=5)
    assert first == await sandbox.call(os.getpid, key="b", seconds=5)
    assert sandbox.pids == (first,)
    assert first != os.getpid()


async def test_a_definition_is_read_there(sandbox: ProcessSandbox) -> None:
    text = "name: a\ndescription: d\nsteps: {a: {run: x, for_each: [1, 2]}}\n"
    assert await sandbox.call(parse, text, key="a", seconds=5) == parse(text)


async def test_what_a_function_raises_is_raised_here(sandbox: ProcessSandbox) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await sandbox.call(int, "x", key="a", seconds=5)
    text = "name: a\ndescription: d\nsteps: {a: {run: 'echo {{ 1 / 0 }}'}}\n"
    workflow = parse(text).documents[0].workflow
    assert workflow is not None
    scope = Scope(params={}, run={}, env={}, steps={})
    with pytest.raises(RenderError, match="divide by zero"):
        await sandbox.call(render, workflow, workflow.steps["a"], scope, key="a", seconds=5)
    assert len(sandbox.pids) == 1


async def test_processor_time_ends_it(sandbox: ProcessSandbox) -> None:
    before = await sandbox.call(os.getpid, key="a", seconds=5)
    with pytest.raises(OverLimitError, match=r"it took longer than 0.2 s"):
        await sandbox.call(sum, FOREVER, key="a", seconds=0.2)
    assert await sandbox.call(os.getpid, key="a", seconds=5) != before


async def test_the_clock_ends_what_only_waits(sandbox: ProcessSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "LEAST_WALL", 0.2)
    with pytest.raises(OverLimitError, match=r"it took longer than 0.01 s"):
        await sandbox.call(time.sleep, 1000, key="a", seconds=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit it")
async def test_memory_ends_it(sandbox: ProcessSandbox) -> None:
    with pytest.raises(OverLimitError, match="it needed more than 512 MiB of memory"):
        await sandbox.call(bytes, 1024**3, key="a", seconds=5)
    assert len(await sandbox.call(bytes, 1024**2, key="a", seconds=5)) == 1024**2


async def test_a_worker_that_dies_ends_its_request_only(sandbox: ProcessSandbox) -> None:
    with pytest.raises(OverLimitError, match="memory"):
        await sandbox.call(os.abort, key="a", seconds=5)
    assert await sandbox.call(abs, -1, key="a", seconds=5) == 1


async def test_what_stops_the_daemon_is_left_to_the_daemon(sandbox: ProcessSandbox) -> None:
    pid = await sandbox.call(os.getpid, key="a", seconds=5)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert await sandbox.call(os.getpid, key="a", seconds=5) == pid


async def test_abandoned_requests_release_their_slot(sandbox: ProcessSandbox) -> None:
    """Eight abandoned requests delay no other."""
    abandoned = [asyncio.create_task(sandbox.call(sum, FOREVER, key=f"{number}", seconds=1000)) for number in range(8)]
    await wait_for(lambda: len(sandbox.pids) == 2, "two of them are under way")
    for task in abandoned:
        task.cancel()
    assert await sandbox.call(abs, -1, key="other", seconds=5) == 1
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*abandoned, return_exceptions=True)
    )


async def test_keys_take_turns() -> None:
    sandbox = ProcessSandbox(workers=1)
    done: list[str] = []

    async def ask(key: str) -> None:
        await sandbox.call(abs, -1, key=key, seconds=5)
        done.append(key)

    async with asyncio.TaskGroup() as group:
        for key in ("many", "many", "many", "many", "one"):
            group.create_task(ask(key))
    await sandbox.close()
    assert done.index("one") <= 2


async def test_workers_end_when_there_is_no_work() -> None:
    sandbox = ProcessSandbox(idle=0.01)
    pid = await sandbox.call(os.getpid, key="a", seconds=5)
    await wait_for(lambda: not sandbox.pids and not psutil.pid_exists(pid), "the worker has ended")
    await sandbox.close()
