"""Workflows: creating, changing, deleting, listing them and their versions."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from contract.builders import NOW, finished, later, save, stored_run, text, with_workflow
from toband.ports import (
    ActiveRunError,
    EtagMismatchError,
    Store,
    StoredWorkflow,
    WorkflowExistsError,
)


async def test_a_created_workflow_is_read_back_whole(store: Store) -> None:
    given = text(title="夜", labels={"team": "ops", "tier": "1"}, owner="/etc/toban/b.yaml")
    created = await store.create_workflow(given, at=NOW)
    assert created == await store.get_workflow("backup")
    assert (created.title, created.description) == ("夜", "Copies everything")
    assert created.labels == {"team": "ops", "tier": "1"}
    assert (created.enabled, created.version, created.owner) == (True, 1, "/etc/toban/b.yaml")
    assert (created.created_at, created.updated_at) == (NOW, NOW)
    assert created.etag
    definition = created.definition
    assert definition is not None
    assert definition == await store.get_version("backup", 1)
    assert (definition.source, definition.base_dir) == (given.source, given.base_dir)
    assert definition.parsed == given.parsed
    assert definition.digest == hashlib.sha256(given.source.encode()).hexdigest()
    assert definition.created_at == NOW


async def test_titles(store: Store) -> None:
    await store.create_workflow(text(title="夜"), at=NOW)
    await store.create_workflow(text("other", title="t"), at=NOW)
    assert await store.workflow_titles(["backup", "nope"]) == {"backup": "夜"}
    assert await store.workflow_titles([]) == {}


async def test_what_is_not_there(store: Store) -> None:
    assert await store.get_workflow("nope") is None
    assert await store.get_version("nope", 1) is None
    assert await store.update_workflow(text("nope"), at=NOW) is None
    assert await store.set_enabled("nope", True, at=NOW) is None
    assert await store.delete_workflow("nope", at=NOW) is False
    assert await store.list_versions("nope") == []
    assert await store.list_workflows() == []


async def test_a_name_is_taken_once(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    with pytest.raises(WorkflowExistsError):
        await store.create_workflow(text(source="other"), at=NOW)
    assert await store.get_workflow("backup") == first


async def test_of_concurrent_creations_one_wins(store: Store) -> None:
    results = await asyncio.gather(
        *(store.create_workflow(text(source=f"# {n}"), at=NOW) for n in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, StoredWorkflow) for result in results) == 1
    assert sum(isinstance(result, WorkflowExistsError) for result in results) == 7
    assert [version.version for version in await store.list_versions("backup")] == [1]


async def test_a_changed_source_makes_a_version(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    answer = await store.update_workflow(text(source="# 2", title="New", labels={"tier": "2"}), at=later(5))
    assert answer is not None
    second, changed = answer
    assert changed
    assert second == await store.get_workflow("backup")
    assert (second.version, second.title, second.labels) == (2, "New", {"tier": "2"})
    assert (second.created_at, second.updated_at) == (NOW, later(5))
    assert second.etag != first.etag
    # The old version stays as it was, and labels that are gone find nothing.
    assert await store.get_version("backup", 1) == first.definition
    assert await store.list_workflows(labels={"team": "ops"}) == []


async def test_a_changed_directory_makes_a_version(store: Store) -> None:
    await with_workflow(store)
    answer = await store.update_workflow(text(base_dir="/elsewhere"), at=later(5))
    assert answer is not None
    assert (answer[0].version, answer[1]) == (2, True)


async def test_an_unchanged_source_changes_nothing(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    assert await store.update_workflow(text(), at=later(5)) == (first, False)
    assert len(await store.list_versions("backup")) == 1


async def test_another_owner_is_a_change_without_a_version(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    answer = await store.update_workflow(text(owner="/etc/b.yaml"), at=later(5))
    assert answer is not None
    moved, changed = answer
    assert (changed, moved.version, moved.owner) == (True, 1, "/etc/b.yaml")
    assert moved.etag != first.etag


async def test_what_was_set_by_hand_outlives_a_new_version(store: Store) -> None:
    await with_workflow(store)
    await store.set_enabled("backup", False, at=later(1))
    answer = await store.update_workflow(text(source="# 2"), at=later(2))
    assert answer is not None
    assert answer[0].enabled is False


async def test_a_definition_that_says_otherwise_wins_over_the_hand(store: Store) -> None:
    await with_workflow(store)
    disabled = await store.update_workflow(text(source="# 2", enabled=False), at=later(1))
    assert disabled is not None
    assert disabled[0].enabled is False
    await store.set_enabled("backup", True, at=later(2))
    same = await store.update_workflow(text(source="# 3", enabled=False), at=later(3))
    assert same is not None
    assert same[0].enabled is True
    back = await store.update_workflow(text(source="# 4", enabled=True), at=later(4))
    assert back is not None
    assert back[0].enabled is True


async def test_set_enabled(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    off = await store.set_enabled("backup", False, at=later(1))
    assert off is not None
    assert (off.enabled, off.version, off.updated_at) == (False, 1, later(1))
    assert off.etag != first.etag
    assert off == await store.get_workflow("backup")
    # Nothing to do is no change.
    assert await store.set_enabled("backup", False, at=later(2)) == off


async def test_etags_guard_changes(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    answer = await store.update_workflow(text(source="# 2"), at=later(1), etag=first.etag)
    assert answer is not None
    second = answer[0]
    with pytest.raises(EtagMismatchError) as refused:
        await store.update_workflow(text(source="# 3"), at=later(2), etag=first.etag)
    assert refused.value.args[0] == second.etag
    with pytest.raises(EtagMismatchError) as refused:
        await store.delete_workflow("backup", at=NOW, etag=first.etag)
    assert refused.value.args[0] == second.etag
    assert await store.get_workflow("backup") == second
    assert await store.delete_workflow("backup", at=NOW, etag=second.etag) is True


async def test_no_two_states_share_an_etag(store: Store) -> None:
    seen = [(await store.create_workflow(text(), at=NOW)).etag]
    for count in range(3):
        answer = await store.update_workflow(text(source=f"# {count}"), at=NOW)
        assert answer is not None
        seen.append(answer[0].etag)
        for enabled in (False, True):
            toggled = await store.set_enabled("backup", enabled, at=NOW)
            assert toggled is not None
            seen.append(toggled.etag)
    await store.delete_workflow("backup", at=NOW)
    seen.append((await store.create_workflow(text(), at=NOW)).etag)
    assert len(set(seen)) == len(seen)


async def test_deleting_keeps_versions_and_runs(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, finished(run))
    assert await store.delete_workflow("backup", at=NOW) is True
    assert await store.get_workflow("backup") is None
    assert await store.list_workflows() == []
    assert await store.get_version("backup", 1) is not None
    assert await store.get_run(run.id) == run


async def test_deleting_is_refused_while_a_run_is_active(store: Store) -> None:
    await with_workflow(store)
    oldest = await stored_run(store)
    await stored_run(store)
    with pytest.raises(ActiveRunError) as refused:
        await store.delete_workflow("backup", at=NOW)
    assert (refused.value.args[0], refused.value.name) == (oldest.id, "backup#1")
    assert await store.get_workflow("backup") is not None


async def test_versions_go_on_counting_after_a_deletion(store: Store) -> None:
    await with_workflow(store)
    await store.update_workflow(text(source="# 2"), at=NOW)
    await store.delete_workflow("backup", at=NOW)
    again = await store.create_workflow(text(source="# 3"), at=NOW)
    assert again.version == 3
    versions = await store.list_versions("backup")
    assert [version.version for version in versions] == [3, 2, 1]


async def test_versions_are_paged_newest_first_without_their_text(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    for number in range(2, 6):
        await store.update_workflow(text(source=f"# {number}"), at=later(number))
    page = await store.list_versions("backup", limit=2)
    assert [version.version for version in page] == [5, 4]
    rest = await store.list_versions("backup", before=4)
    assert [version.version for version in rest] == [3, 2, 1]
    assert (page[0].source, page[0].parsed) == ("", {})
    assert (page[0].digest, page[0].created_at) == (
        hashlib.sha256(b"# 5").hexdigest(),
        later(5),
    )


async def test_workflows_are_listed_by_name(store: Store) -> None:
    # In order of code points, whatever the server's locale says of hyphens and capitals.
    names = ["B", "a", "a-b", "a0", "aB", "a_b", "ab", "b"]
    assert names == sorted(names)
    await with_workflow(store, *reversed(names))
    listed = await store.list_workflows()
    assert [workflow.name for workflow in listed] == names
    assert all(workflow.definition is None for workflow in listed)
    page = await store.list_workflows(after="a-b", limit=3)
    assert [workflow.name for workflow in page] == ["a0", "aB", "a_b"]
    assert await store.list_workflows(after="b") == []


async def test_pages_of_workflows_stay_stable_under_inserts(store: Store) -> None:
    await with_workflow(store, "b", "d", "f")
    first = await store.list_workflows(limit=2)
    await with_workflow(store, "a", "c", "e")
    second = await store.list_workflows(after=first[-1].name, limit=2)
    assert [workflow.name for workflow in (*first, *second)] == ["b", "d", "e", "f"]


async def test_all_labels_asked_for_must_be_there(store: Store) -> None:
    for name, labels in {
        "a": {"team": "ops", "tier": "1"},
        "b": {"team": "ops", "tier": "2"},
        "c": {"team": "web", "tier": "1"},
        "d": {"team": "ops", "tier": "1"},
        "e": {},
    }.items():
        await store.create_workflow(text(name, labels=labels), at=NOW)

    async def names(after: str = "", limit: int = 100, **labels: str) -> list[str]:
        found = await store.list_workflows(after=after, limit=limit, labels=labels)
        return [workflow.name for workflow in found]

    assert await names(team="ops") == ["a", "b", "d"]
    assert await names(team="ops", tier="1") == ["a", "d"]
    assert await names(tier="1", team="ops") == ["a", "d"]
    assert await names(team="ops", after="a", limit=1) == ["b"]
    assert await names(team="ops", after="b") == ["d"]
    assert await names(team="nobody") == []
    assert await names() == ["a", "b", "c", "d", "e"]
