"""Paths that workflows watch come and go with their definitions."""

from __future__ import annotations

from dataclasses import replace

from contract.builders import NOW, text
from toband.ports import Store


async def watched(store: Store) -> list[tuple[str, str]]:
    return [(each.workflow, each.path) for each in await store.watched_paths()]


async def test_by_workflow_and_in_order(store: Store) -> None:
    await store.create_workflow(text("b", watches={"/z": 2.0, "/a": 0.0, "/ü ber": 0.5}), at=NOW)
    await store.create_workflow(text("a", title="夜間バッチ", watches={"/z": 7.25}), at=NOW)
    await store.create_workflow(text("c"), at=NOW)
    assert await watched(store) == [("a", "/z"), ("b", "/z"), ("b", "/a"), ("b", "/ü ber")]
    assert [each.settle for each in await store.watched_paths()] == [7.25, 2.0, 0.0, 0.5]
    assert [each.title for each in await store.watched_paths()] == ["夜間バッチ", *["Nightly backup"] * 3]


async def test_another_time_alone_is_stored_too(store: Store) -> None:
    before = text("a", watches={"/one": 1.0})
    await store.create_workflow(before, at=NOW)
    await store.update_workflow(replace(before, watches={"/one": 60.0}), at=NOW)
    assert [each.settle for each in await store.watched_paths()] == [60.0]


async def test_they_are_those_of_the_current_definition(store: Store) -> None:
    before = text("a", watches={"/one": 1.0, "/two": 2.0})
    await store.create_workflow(before, at=NOW)
    # They may change without a new version: where the definition is tells what is meant.
    for paths in (("/two",), ("/two", "/three", "/one"), (), ("/one",)):
        updated = await store.update_workflow(replace(before, watches=dict.fromkeys(paths, 3.0)), at=NOW)
        assert updated is not None
        assert await watched(store) == [("a", path) for path in paths]
    assert await store.delete_workflow("a", at=NOW)
    assert await watched(store) == []


async def test_those_of_disabled_workflows_are_not_watched(store: Store) -> None:
    await store.create_workflow(text("a", watches={"/a": 1.0}), at=NOW)
    await store.create_workflow(text("b", watches={"/b": 1.0}, enabled=False), at=NOW)
    assert await watched(store) == [("a", "/a")]
    await store.set_enabled("a", False, at=NOW)
    await store.set_enabled("b", True, at=NOW)
    assert await watched(store) == [("b", "/b")]


async def test_they_come_with_definitions_of_files(store: Store) -> None:
    definition = text("a", watches={"/a": 1.0}, owner="/flows/a.yaml")
    await store.put_definitions([definition], at=NOW)
    assert await watched(store) == [("a", "/a")]
    await store.disown_definition("a", "/flows/a.yaml", at=NOW)
    assert await watched(store) == []
    [owned] = await store.list_file_owned()
    await store.put_definitions([definition], at=NOW, take_over={"a": owned.owner})
    assert await watched(store) == [("a", "/a")]
