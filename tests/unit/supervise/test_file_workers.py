"""The turns of work on files: fair to every run, stopped at once, never in each other's way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from helpers.wait import wait_for
from toband.ports import StoppedError
from toband.supervise.files import file_workers as module
from toband.supervise.files.file_workers import SLOTS, Turn, Workers


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers("test")
    yield made
    made.close()
    await wait_for(lambda: not made.busy, "work outlived its test")


def endless(begun: Callable[[], object] = lambda: None) -> Callable[[Turn], None]:
    """Works until it is stopped."""

    def work(turn: Turn) -> None:
        begun()
        while turn.go_on():
            time.sleep(0.001)
        raise StoppedError

    return work


async def stopped(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_results_and_errors(workers: Workers) -> None:
    assert await workers.do("run", "", lambda _: 1) == 1

    def fail(_: Turn) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        await workers.do("run", "", fail)


async def test_endless_work_of_one_run_holds_up_no_other(workers: Workers) -> None:
    """The attack: as much work as there are slots, and more, that does not end."""
    bad = [asyncio.ensure_future(workers.do("bad", "", endless())) for _ in range(3 * SLOTS)]
    await wait_for(lambda: len(workers._active) == SLOTS, "the slots are not taken")
    for _ in range(20):
        assert await asyncio.wait_for(workers.do("good", "", lambda _: "done"), 10) == "done"
    assert not any(task.done() for task in bad)
    await stopped(*bad)


async def test_endless_work_of_many_runs_holds_up_no_other(workers: Workers) -> None:
    count = 5 * SLOTS
    bad = [asyncio.ensure_future(workers.do(f"bad {number}", "", endless())) for number in range(count)]
    await wait_for(lambda: len(workers._active) == count, "not all of them had a turn")
    for number in range(3):
        assert await asyncio.wait_for(workers.do(f"good {number}", "", lambda _: 1), 20) == 1
    await stopped(*bad)


async def test_at_most_so_many_work_at_a_time(workers: Workers) -> None:
    lock, at_work, most = threading.Lock(), 0, 0

    def work(turn: Turn) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.005)
        with lock:
            at_work -= 1

    await asyncio.gather(*(workers.do(f"run {n % 7}", "", work) for n in range(40)))
    assert most == SLOTS


async def test_work_of_a_call_that_is_cancelled_stops(workers: Workers) -> None:
    begun = threading.Event()
    task = asyncio.ensure_future(workers.do("run", "", endless(begun.set)))
    await wait_for(begun.is_set, "it did not begin")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_for(lambda: not workers.busy, "it did not stop")


async def test_work_that_waits_is_withdrawn(workers: Workers) -> None:
    bad = [asyncio.ensure_future(workers.do("bad", "", endless())) for _ in range(SLOTS)]
    await wait_for(lambda: len(workers._active) == SLOTS, "the slots are not taken")
    done: list[int] = []
    waits = asyncio.ensure_future(workers.do("bad", "", lambda _: done.append(1)))
    await asyncio.sleep(0)
    await stopped(waits, *bad)
    await wait_for(lambda: not workers.busy, "it did not stop")
    assert done == []


async def test_one_at_a_time_in_a_place(workers: Workers) -> None:
    """A second call may come while the work of a cancelled first one still winds down."""
    here, most = 0, 0

    def work(turn: Turn) -> None:
        nonlocal here, most
        here += 1
        most = max(most, here)
        for _ in range(3):
            time.sleep(0.001)
            turn.go_on()
        here -= 1

    calls = [asyncio.ensure_future(workers.do(f"{n % 3}", "place", work)) for n in range(12)]
    await asyncio.sleep(0)
    calls[3].cancel()
    calls[8].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert most == 1
    assert sum(isinstance(each, asyncio.CancelledError) for each in answers) == 2
    await wait_for(lambda: not workers._places, "a place is still taken")


async def test_closing_waits_for_nothing() -> None:
    workers = Workers("test")
    release = threading.Event()
    stuck = asyncio.ensure_future(workers.do("run", "", lambda _: release.wait(60)))
    paused = [asyncio.ensure_future(workers.do("run", "", endless())) for _ in range(9)]
    await wait_for(lambda: len(workers._active) == SLOTS, "they do not work")
    began = time.monotonic()
    workers.close()
    answers = await asyncio.gather(*paused, return_exceptions=True)
    assert all(isinstance(each, StoppedError) for each in answers)
    assert time.monotonic() - began < 10
    with pytest.raises(StoppedError):
        await workers.do("run", "", lambda _: None)
    release.set()
    await stuck


async def test_work_that_is_stuck_loses_its_slot_and_is_reported(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STUCK", 0.05)
    release = threading.Event()

    def hang(turn: Turn) -> bool:
        release.wait(60)
        return turn.go_on()

    bad = [asyncio.ensure_future(workers.do("bad", "", hang)) for _ in range(SLOTS)]
    await wait_for(lambda: len(workers._active) == SLOTS, "the slots are not taken")
    text = await wait_for(workers.trouble, "not reported")
    assert "made no progress" in text
    assert "run bad" in text
    assert await asyncio.wait_for(workers.do("good", "", lambda _: 1), 10) == 1
    release.set()
    assert await asyncio.gather(*bad) == [True] * SLOTS
    assert workers.trouble() == ""
    assert workers._free == SLOTS


async def test_a_run_reads_no_faster_than_its_rate() -> None:
    """What it has not read in the last second it may read at once; others are not slowed down by it."""
    workers = Workers("test", rate=1_000_000)

    def read(turn: Turn) -> float:
        for _ in range(30):
            turn.spend(50_000)
        return time.monotonic()

    def stop_reading(turn: Turn) -> None:
        while turn.go_on():
            turn.spend(1_000_000_000)
        raise StoppedError

    began = time.monotonic()
    assert await workers.do("small", "", read) - began < 10
    first, second = await asyncio.gather(*(workers.do("large", "", read) for _ in range(2)))
    assert max(first, second) - began >= 1.9, "three megabytes, less the first, in two seconds"
    reading = asyncio.ensure_future(workers.do("huge", "", stop_reading))
    await wait_for(lambda: workers._active and workers._free == SLOTS, "it holds its slot")
    await stopped(reading)
    await wait_for(lambda: not workers.busy, "it did not stop")
    assert workers._free == SLOTS
    workers.close()


def test_the_interpreter_does_not_wait_for_work_at_its_end() -> None:
    program = """
import asyncio, threading
from toband.supervise.files.file_workers import Workers

async def main():
    workers, begun = Workers("test"), threading.Event()
    work = lambda turn: (begun.set(), threading.Event().wait(3600))
    task = asyncio.ensure_future(workers.do("run", "", work))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    workers.close()
    task.cancel()

asyncio.run(main())
print("over", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("over\n", 0), done.stderr
