"""Changes of watched files become events: which workflows get them, how many, and retries while the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest

from contract.builders import NOW, text
from contract.event_builders import on
from doubles.clock import Clock
from doubles.store import FaultyStore
from helpers.wait import wait_for
from toban.definition import FILE_CHANGED
from toband.backoff import Backoff
from toband.engine.errors import RefusedError
from toband.engine.events import path_events as module
from toband.engine.events.path_events import PathEvents
from toband.engine.health.health_conditions import Health
from toband.ports import FileChange, PathChange, StoreError, TriggerStore, WatchChanges
from toband.store import SqlStore


class FakePaths:
    def __init__(self) -> None:
        self.followed: list[Mapping[str, Collection[float]]] = []
        self.batches: asyncio.Queue[Sequence[WatchChanges]] = asyncio.Queue()
        self.found: dict[str, str] = {}

    @property
    def troubles(self) -> Mapping[str, str]:
        return self.found

    def follow(self, paths: Mapping[str, Collection[float]]) -> None:
        self.followed.append(dict(paths))

    async def changes(self) -> Sequence[WatchChanges]:
        return await self.batches.get()


class Scene:
    def __init__(self, store: SqlStore) -> None:
        self.store = FaultyStore(store)
        self.listens = False
        self.paths = FakePaths()
        self.health = Health(Clock())
        self.stored: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.tries = 0
        self.now = 1000.0
        self.watches = PathEvents(
            store=cast(TriggerStore, self.store),
            paths=self.paths,
            announce=self.announce,
            conditions=self.health,
            clock=lambda: self.now,
        )

    async def watch(self, workflow: str, path: str, *events: str, settle: float = 0.0) -> None:
        """Stores a workflow that watches the path and is started by these events."""
        self.listens = FILE_CHANGED in events
        made = text(
            workflow, title=f"Title of {workflow}", watches={path: settle}, triggers=(on(*events),) if events else ()
        )
        if await self.store.get_workflow(workflow) is None:
            await self.store.create_workflow(made, at=NOW)
        else:
            await self.store.update_workflow(made, at=NOW)

    async def announce(self, event_type: str, payloads: Sequence[Any]) -> None:
        assert event_type == FILE_CHANGED
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.stored += payloads

    def happens(self, *names: str, watch: str = "/in", more: int = 0, settle: float = 0.0) -> None:
        changes = tuple(PathChange(path=f"{watch}/{name}", change=FileChange.ADDED) for name in names)
        self.paths.batches.put_nowait([WatchChanges(watch=watch, settle=settle, changes=changes, more=more)])

    @property
    def trouble(self) -> str:
        return next((each.detail for each in self.health.conditions if each.name == "watches"), "")

    def _looked(self) -> bool:
        return bool(self.paths.followed) if self.listens else self.store.calls["listened_types"] > 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watches.run())
        await wait_for(self._looked, "a first look")
        yield
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE", 0.001)
    monkeypatch.setattr(module, "Backoff", partial(Backoff, 0.001, 0.01))


@pytest.fixture
async def scene(store: SqlStore) -> Scene:
    made = Scene(store)
    await made.watch("sort", "/in", FILE_CHANGED)
    return made


async def test_everybody_who_watches_a_path_gets_an_event(scene: Scene) -> None:
    await scene.watch("copy", "/in", FILE_CHANGED)
    async with scene.running():
        scene.happens("a", "b", more=7)
        await wait_for(lambda: len(scene.stored) == 4, "the events")
    copy, sort = ({"workflow": name, "workflow_title": f"Title of {name}"} for name in ("copy", "sort"))
    assert scene.stored == [
        {"path": "/in/a", "change": "added", **copy, "watch": "/in"},
        {"path": "/in/b", "change": "added", **copy, "watch": "/in", "more": 7},
        {"path": "/in/a", "change": "added", **sort, "watch": "/in"},
        {"path": "/in/b", "change": "added", **sort, "watch": "/in", "more": 7},
    ]


async def test_each_watch_gets_what_waited_as_long_as_it_says(scene: Scene) -> None:
    await scene.watch("copy", "/in", FILE_CHANGED, settle=5.0)
    async with scene.running():
        assert scene.paths.followed == [{"/in": {0.0, 5.0}}]
        scene.happens("a", settle=5.0)
        scene.happens("b")
        await wait_for(lambda: len(scene.stored) == 2, "the events")
        await scene.watch("copy", "/in", FILE_CHANGED, settle=1.0)
        scene.watches.changed()
        await wait_for(lambda: scene.paths.followed[-1] == {"/in": {0.0, 1.0}}, "another time")
    assert [(each["path"], each["workflow"]) for each in scene.stored] == [("/in/a", "copy"), ("/in/b", "sort")]


async def test_a_name_that_could_not_be_told_as_it_is_says_so(scene: Scene) -> None:
    change = PathChange(path="/in/bad\ufffd.csv", change=FileChange.ADDED, altered=True)
    async with scene.running():
        scene.paths.batches.put_nowait([WatchChanges(watch="/in", changes=(change,))])
        await wait_for(lambda: scene.stored, "an event")
    [payload] = scene.stored
    assert (payload["path"], payload["altered"]) == ("/in/bad\ufffd.csv", True)


async def test_nothing_is_watched_while_nobody_listens(scene: Scene) -> None:
    await scene.watch("sort", "/in", "ORDER")
    async with scene.running():
        await wait_for(lambda: scene.store.calls["listened_types"] == 1, "a read")
        assert scene.paths.followed == []
        await scene.watch("sort", "/in", "ORDER", FILE_CHANGED)
        scene.watches.changed()
        await wait_for(lambda: scene.paths.followed == [{"/in": {0.0}}], "a watch")
        # What is watched already is left alone.
        await scene.watch("copy", "/in", FILE_CHANGED)
        scene.watches.changed()
        await wait_for(lambda: scene.store.calls["listened_types"] == 3, "a read")
        await scene.watch("copy", "/in")
        await scene.watch("sort", "/in")
        scene.watches.changed()
        await wait_for(lambda: len(scene.paths.followed) == 2, "an end of watching")
        assert scene.paths.followed[-1] == {}
        scene.happens("late")
        await wait_for(scene.paths.batches.empty, "that it is taken")
    assert scene.stored == []


async def test_a_store_that_cannot_be_read_is_asked_again(scene: Scene) -> None:
    async with scene.running():
        scene.store.fail("listened_types", StoreError("cannot read the database: gone"))
        await scene.watch("copy", "/out", FILE_CHANGED)
        reads = scene.store.calls["listened_types"]
        scene.watches.changed()
        await wait_for(lambda: scene.store.calls["listened_types"] > reads, "a try that fails")
        scene.store.repair()
        await wait_for(lambda: scene.paths.followed[-1] == {"/in": {0.0}, "/out": {0.0}}, "another try")


@pytest.mark.parametrize(
    "error",
    [
        StoreError("cannot write to the database: gone"),
        RefusedError("take an event", "the disk is full", condition="disk"),
        ZeroDivisionError("a mistake of ours"),
    ],
)
async def test_what_cannot_be_stored_is_kept(scene: Scene, error: Exception) -> None:
    async with scene.running():
        scene.error = error
        scene.happens("a")
        await wait_for(lambda: scene.tries >= 3, "several tries")
        scene.happens("b")
        scene.error = None
        await wait_for(lambda: len(scene.stored) == 2, "both events")
    assert [each["path"] for each in scene.stored] == ["/in/a", "/in/b"]
    assert scene.trouble == ""


async def test_no_more_is_kept_than_there_is_room_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MOST", 1200)
    async with scene.running():
        scene.error = StoreError("cannot write to the database: gone")
        for number in range(13):
            scene.happens(*(f"{number}-{each}" for each in range(100)))
        await wait_for(lambda: "100 changes of watched files were dropped" in scene.trouble, "it")
        scene.error = None
        await wait_for(lambda: len(scene.stored) >= 1200, "the rest")
        await wait_for(lambda: not scene.trouble, "well again")
    assert [each["path"] for each in scene.stored][:1] == ["/in/1-0"]
    assert len(scene.stored) == 1200


async def test_what_is_dropped_while_it_is_being_stored_is_not_stored_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_MOST", 100)
    going_on = asyncio.Event()

    async def slowly(event_type: str, payloads: Sequence[Any]) -> None:
        scene.tries += 1
        await going_on.wait()
        scene.stored += payloads

    scene.watches._announce = slowly
    async with scene.running():
        scene.happens("first")
        await wait_for(lambda: scene.tries == 1, "that it is under way")
        scene.happens(*(f"{each}" for each in range(100)))
        await wait_for(lambda: bool(scene.trouble), "that one was dropped")
        going_on.set()
        await wait_for(lambda: len(scene.stored) == 101, "all of them")
    assert len({each["path"] for each in scene.stored}) == 101


async def test_what_cannot_be_watched_is_told_until_it_can(scene: Scene) -> None:
    async with scene.running():
        scene.paths.found = {"/in": "no more watches; raise the limit", "/x": "denied"}
        scene.paths.batches.put_nowait([])
        await wait_for(lambda: bool(scene.trouble), "the trouble")
        assert scene.trouble.startswith("cannot watch /in: no more watches; raise the limit")
        assert scene.trouble.endswith("and 1 more like it")
        scene.paths.found = {}
        scene.paths.batches.put_nowait([])
        await wait_for(lambda: not scene.trouble, "well again")


async def test_a_watch_that_never_rests_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def goes_on(seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            scene.now += 5
            scene.happens("again")
            await wait_for(scene.paths.batches.empty, "that it is taken")

    async with scene.running():
        await goes_on(590)
        assert scene.trouble == ""
        # A pause, and it begins anew.
        scene.now += 11
        await goes_on(590)
        assert scene.trouble == ""
        await goes_on(20)
        await wait_for(lambda: "/in, which sort watches, has been changing" in scene.trouble, "it")
        monkeypatch.setattr(module, "PAUSE", 0.01)
        scene.now += 60
        scene.paths.batches.put_nowait([])
        await wait_for(lambda: not scene.trouble, "well again")
