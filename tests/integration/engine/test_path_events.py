"""From `watch` in a definition to the event: with a database and a real directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doubles.clock import SystemClock
from doubles.sandbox import InlineSandbox
from helpers.wait import wait_for
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.catalog import Workflows
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.errors import InvalidDefinitionError
from toband.engine.events.path_events import PathEvents
from toband.engine.health.health_conditions import Health
from toband.file_watch import path_changes
from toband.file_watch.watched_paths import WatchedPaths
from toband.store import SqlStore

DEFINITION = """\
name: sort
description: Sorts what comes in
priority: 7
on: [FILE_CHANGED, {event: ORDER, priority: 3}]
watch: [in, other/../in, /absolute]
steps: {only: {run: 'true'}}
"""


@dataclass
class Scene:
    store: SqlStore
    workflows: Workflows
    paths: WatchedPaths
    stored: list[Any]

    async def until(self, name: str) -> dict[str, Any]:
        """The event about a file of that name."""

        def found() -> dict[str, Any] | None:
            return next((each for each in self.stored if each["path"].endswith(name)), None)

        return await wait_for(found, f"word of {name}")


@pytest.fixture
async def scene(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(path_changes, "QUIET", 0.05)
    paths = WatchedPaths()
    health = Health(SystemClock())
    stored: list[Any] = []

    async def announce(event_type: str, payloads: Sequence[Any]) -> None:
        stored.extend(payloads)

    watches = PathEvents(store=store, paths=paths, announce=announce, conditions=health)
    applier = Applier(store=store, clock=SystemClock(), parser=DefinitionParser(InlineSandbox()))
    workflows = Workflows(applier, changed=watches.changed)
    made = Scene(store=store, workflows=workflows, paths=paths, stored=stored)
    task = asyncio.create_task(watches.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await paths.close()


async def test_from_the_definition_to_the_event(scene: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    await scene.workflows.create(DEFINITION, str(tmp_path), None)
    watched = [each.path for each in await scene.store.watched_paths()]
    assert watched == [str(folder), "/absolute"]
    [trigger] = await scene.store.listeners("FILE_CHANGED")
    assert (trigger.workflow, trigger.priority) == ("sort", 7)
    [trigger] = await scene.store.listeners("ORDER")
    assert trigger.priority == 3
    await wait_for(lambda: scene.paths._thread, "a watch")
    await scene.paths.settled()
    (folder / "one").write_text("x")
    assert await scene.until("one") == {
        "path": str(folder / "one"),
        "change": "added",
        "workflow": "sort",
        "workflow_title": "sort",
        "watch": str(folder),
    }
    # One that is disabled watches nothing, and so nobody does.
    await scene.workflows.set_enabled("sort", False)
    await wait_for(lambda: scene.paths._thread is None, "an end")
    await scene.workflows.set_enabled("sort", True)
    await wait_for(lambda: scene.paths._thread, "a watch")
    await scene.paths.settled()
    (folder / "two").write_text("x")
    await scene.until("two")
    await scene.workflows.delete("sort", "")
    await wait_for(lambda: scene.paths._thread is None, "an end")


async def test_a_path_that_is_nowhere(scene: Scene) -> None:
    with pytest.raises(InvalidDefinitionError) as refused:
        await scene.workflows.create(DEFINITION, "", None)
    [problem] = refused.value.problems
    assert "without a base directory; give an absolute path" in problem.message
