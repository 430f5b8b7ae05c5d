"""The clock and the files of steps that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from doubles.clock import Clock
from helpers.wait import wait_for
from toband.engine.runs import file_waits, wait_clock
from toband.engine.runs.file_waits import FileWaits
from toband.engine.runs.wait_clock import Key, WaitClock
from toband.ports import FileMark

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)


def key(number: int) -> Key:
    return ("run", f"s[{number}]", 1)


async def test_the_clock_rings_in_order_and_follows_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_clock, "LOOK_EVERY", 0.01)
    rung: list[Key] = []
    clock = Clock(NOW)
    times = WaitClock(clock, rung.append)
    for number, hours in enumerate((5, 1, 3, -1)):
        times.add(NOW + timedelta(hours=hours), key(number))
    await wait_for(lambda: rung == [key(3)], "a time that has passed does not ring")
    # The clock is set, or the machine has slept.
    clock.at = NOW + timedelta(hours=4)
    await wait_for(lambda: len(rung) == 3, "the clock that was set is not read")
    assert rung == [key(3), key(1), key(2)]
    times.add(clock.at, key(4))
    await wait_for(lambda: rung[-1] == key(4), "a time that is added later does not ring")
    times.close()


class Files:
    def __init__(self) -> None:
        self.found: dict[str, FileMark] = {}
        self.looks = 0
        self.errors = 1

    async def look(self, paths: Collection[str]) -> Mapping[str, FileMark]:
        self.looks += 1
        if self.errors:
            self.errors -= 1
            raise OSError(5, "the disk fails")
        return {path: mark for path, mark in self.found.items() if path in paths}


async def test_a_file_is_complete_when_it_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_waits, "LOOK_EVERY", 0.01)
    files, came, tasks = Files(), list[Key](), list[asyncio.Task[None]]()
    wall = NOW.timestamp()

    def start(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.get_running_loop().create_task(work))

    waits = FileWaits(files, Clock(NOW), came.append, start)
    waits.add(key(0), "/old", 600.0)
    waits.add(key(1), "/now", 0.0)
    waits.add(key(2), "/new", 600.0)
    waits.add(key(3), "/soon", 0.05)
    waits.add(key(4), "/gone", 0.0)
    files.found = {
        "/old": FileMark((1, 1), wall - 601),
        "/now": FileMark((2, 1), wall),
        "/new": FileMark((3, 1), wall - 10),
        "/soon": FileMark((4, 1), wall),
    }
    await wait_for(lambda: len(came) == 3, "what is complete is not found")
    assert set(came) == {key(0), key(1), key(3)}
    looks = files.looks
    await wait_for(lambda: files.looks > looks + 2, "it does not go on")
    assert len(came) == 3
    waits.forget(lambda each: each in (key(2), key(4)))
    (task,) = tasks
    await asyncio.wait_for(task, 20)
    waits.add(key(5), "/now", 0.0)
    await wait_for(lambda: came[-1] == key(5), "it does not begin again")
    await asyncio.wait_for(tasks[-1], 20)
