"""The host monitor: conditions that appear and end by themselves, and ballast."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from doubles.clock import Clock
from doubles.host import MIB, FakeDescriptors, FakeDisk
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toband.engine.health import host_monitor as module
from toband.engine.health.admission import Admission
from toband.engine.health.health_conditions import Health
from toband.engine.health.host_monitor import HostMonitor
from toband.ports import (
    HealthStatus,
    Store,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreGoneError,
    StoreTakenOverError,
)
from toband.store import SqlStore


class Scene:
    def __init__(self, store: SqlStore) -> None:
        self.disk = FakeDisk()
        self.store = FaultyStore(store)
        self.descriptors = FakeDescriptors()
        self.health = Health(Clock())
        self.left_for: list[StoreTakenOverError] = []
        self.guard = HostMonitor(
            state_dir="/state",
            disk=self.disk,
            descriptors=self.descriptors,
            health=self.health,
            admission=Admission(self.disk, self.health, None),
            leave=self.left_for.append,
        )

    def told(self) -> dict[str, tuple[HealthStatus, str]]:
        return {each.name: (each.status, each.detail) for each in self.health.conditions}

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.guard.watch(cast(Store, self.store)))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def scene(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Scene:
    for name, value in (("LOOK_EVERY", 0.01), ("PROBE_EVERY", 0.02), ("PROBE_AGAIN", 0.02)):
        monkeypatch.setattr(module, name, value)
    return Scene(store)


def failure(code: int) -> OSError:
    return OSError(code, os.strerror(code))


async def test_a_full_disk_is_seen_without_anybody_asking_and_so_is_its_end(scene: Scene) -> None:
    async with scene.watching():
        await wait_for(lambda: scene.disk.held == scene.disk.ballast, "the ballast was not taken")
        scene.disk.free = 20 * MIB
        await wait_for(lambda: "disk" in scene.told(), "nobody noticed that the disk is full")
        assert scene.disk.held == scene.disk.ballast, "there is still space: the ballast stays"
        scene.disk.free = 900 * MIB
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


async def test_half_of_the_ballast_goes_when_nothing_is_left_and_the_rest_for_the_database(
    scene: Scene,
) -> None:
    async with scene.watching():
        await wait_for(lambda: scene.disk.held == scene.disk.ballast, "the ballast was not taken")
        scene.disk.free = scene.disk.held
        await wait_for(lambda: scene.disk.held < scene.disk.ballast, "no ballast was given up")
        assert scene.disk.held == scene.disk.ballast // 2
        for left in reversed(range(scene.disk.ballast // 2 // MIB)):
            assert scene.guard.make_room()
            assert scene.disk.held == left * MIB
        assert not scene.guard.make_room(), "there is nothing left to give"
        scene.disk.free = 900 * MIB
        await wait_for(lambda: scene.disk.held == scene.disk.ballast, "it was not taken again")


async def test_ballast_is_not_taken_where_it_would_make_others_be_refused(scene: Scene) -> None:
    scene.disk.free = 60 * MIB
    async with scene.watching():
        await wait_for(lambda: scene.disk.writes > 2, "it does not watch")
    assert scene.disk.held == 0
    assert not scene.told()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.EACCES])
async def test_a_state_directory_that_takes_no_writes_is_told_until_it_does(scene: Scene, code: int) -> None:
    async with scene.watching():
        scene.disk.refuses = failure(code)
        await wait_for(lambda: "state_dir" in scene.told(), "nobody noticed")
        assert scene.told()["state_dir"] == (
            HealthStatus.REFUSING,
            f"cannot write to /state: {os.strerror(code)}",
        )
        scene.disk.refuses = None
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


async def test_a_write_without_space_is_a_full_disk_whatever_is_free(scene: Scene) -> None:
    async with scene.watching():
        scene.disk.refuses = failure(errno.EDQUOT)
        await wait_for(lambda: "disk" in scene.told(), "nobody noticed")
        assert "state_dir" not in scene.told()
        scene.disk.refuses = None
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


async def test_descriptors_are_told_when_few_are_left_or_none(scene: Scene) -> None:
    async with scene.watching():
        scene.descriptors.found = (90, 100)
        await wait_for(lambda: "descriptors" in scene.told(), "nobody noticed")
        assert scene.told()["descriptors"][0] is HealthStatus.DEGRADED
        scene.disk.refuses = failure(errno.EMFILE)
        await wait_for(lambda: scene.told()["descriptors"][0] is HealthStatus.REFUSING, "nobody noticed")
        scene.disk.refuses, scene.descriptors.found = None, (89, 100)
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


async def test_a_disk_that_does_not_answer_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_WITHIN", 0.05)
    entered, answer = asyncio.Event(), asyncio.Event()

    async def hang(_: object) -> None:
        entered.set()
        await answer.wait()

    monkeypatch.setattr("toband.engine.health.host_monitor.asyncio.to_thread", hang)
    scene.disk.held = scene.disk.ballast
    async with scene.watching():
        await entered.wait()
        await wait_for(lambda: "state_dir" in scene.told(), "nobody noticed")
        assert "a small write has not finished" in scene.told()["state_dir"][1]
        monkeypatch.undo()
        answer.set()
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (StoreFullError("full"), "full; free some space"),
        (StoreBusyError("locked"), "locked; end the program that has it locked"),
        (StoreError("lost"), "lost; run `toban system doctor` for details"),
    ],
)
async def test_a_database_that_fails_is_asked_until_it_works(scene: Scene, error: StoreError, hint: str) -> None:
    scene.store.fail("try_write", error)
    async with scene.watching():
        await wait_for(lambda: scene.disk.writes > 0, "it does not watch")
        assert scene.store.calls["try_write"] == 0, "one that works is not asked"
        scene.guard.failed(error)
        assert scene.told()["database"] == (HealthStatus.REFUSING, hint)
        await wait_for(lambda: scene.store.calls["try_write"] > 2, "it was not asked")
        assert "database" in scene.told()
        scene.store.repair()
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")


async def test_a_write_that_works_clears_it_at_once(scene: Scene) -> None:
    scene.guard.failed(StoreError("lost"))
    scene.guard.worked()
    assert not scene.told()


async def test_there_is_room_to_start(scene: Scene) -> None:
    scene.disk.held = scene.disk.ballast
    scene.guard.make_room_to_start()
    assert scene.disk.held == scene.disk.ballast
    scene.disk.free = scene.disk.held + 4096
    scene.guard.make_room_to_start()
    assert scene.disk.held == scene.disk.ballast // 2
    scene.disk.free = scene.disk.held
    scene.guard.make_room_to_start()
    assert scene.disk.held == scene.disk.ballast // 2 - MIB
    scene.disk.free = scene.disk.held = 0
    scene.guard.make_room_to_start()


def test_a_daemon_whose_database_was_taken_over_leaves(scene: Scene) -> None:
    error = StoreTakenOverError("another toband took it over")
    scene.guard.failed(error)
    assert scene.left_for == [error]


async def test_a_database_that_was_deleted_is_noticed_without_a_write(scene: Scene) -> None:
    async with scene.watching():
        gone = StoreGoneError("/s/toban.db was deleted")
        scene.store.fail("check_files", gone)
        scene.store.fail("try_write", gone)
        await wait_for(lambda: "database" in scene.told(), "nobody noticed")
        status, detail = scene.told()["database"]
        assert (status, "restore a backup" in detail) == (HealthStatus.REFUSING, True)
        scene.store.repair()
        await wait_for(lambda: not scene.told(), "nobody noticed the end of it")
