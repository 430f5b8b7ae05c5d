"""Jobs: stored beside workflows, and changed together with those that use them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contract.builders import NOW, finished, later, request, save, stored_run, text
from toban.definition import DefinitionKind
from toband.ports import (
    ActiveRunError,
    ConflictError,
    Counts,
    JobInUseError,
    Store,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowText,
)

WORKFLOW, JOB = DefinitionKind


def job(name: str = "fetch", **changes: Any) -> WorkflowText:
    return text(name, kind=JOB, **changes)


def user(name: str, *jobs: str, **changes: Any) -> WorkflowText:
    return text(name, uses=frozenset(jobs or ("fetch",)), **changes)


async def with_job(store: Store, *users: str) -> None:
    await store.create_workflow(job(), at=NOW)
    for name in users:
        await store.create_workflow(user(name), at=NOW)


async def read(store: Store, name: str) -> StoredWorkflow:
    stored = await store.get_workflow(name)
    assert stored is not None
    return stored


async def names(store: Store, **how: Any) -> list[str]:
    return [stored.name for stored in await store.list_workflows(**how)]


async def test_a_job_is_stored_beside_workflows(store: Store) -> None:
    created = await store.create_workflow(job(), at=NOW, request=request())
    assert (created.kind, created.version) == (JOB, 1)
    assert await store.get_workflow("fetch") == created
    assert await store.create_workflow(job(), at=NOW, request=request()) == created
    await store.create_workflow(text(), at=NOW)
    assert (await read(store, "backup")).kind is WORKFLOW
    await store.create_workflow(job("copy", labels={"team": "web"}), at=NOW)

    assert await names(store) == ["backup"]
    assert await names(store, kind=JOB) == ["copy", "fetch"]
    assert await names(store, kind=None) == ["backup", "copy", "fetch"]
    assert await names(store, kind=JOB, after="copy") == ["fetch"]
    assert await names(store, kind=JOB, labels={"team": "ops"}) == ["fetch"]
    assert await names(store, kind=None, labels={"team": "ops"}) == ["backup", "fetch"]
    assert await store.counts() == Counts(workflows=1, active_runs=0, jobs=2)
    assert (await store.inspect()).facts[1:] == ["1 workflow", "0 runs", "2 jobs"]


async def test_a_job_has_runs(store: Store) -> None:
    await with_job(store)
    run = await stored_run(store, "fetch")
    with pytest.raises(ActiveRunError):
        await store.delete_workflow("fetch", at=NOW)
    await save(store, run, finished(run))
    assert [span.workflow for span in await store.run_spans()] == ["fetch"]
    assert await store.delete_workflow("fetch", at=NOW) is True


async def test_names_are_shared(store: Store) -> None:
    await with_job(store)
    await store.create_workflow(text(), at=NOW)
    for taken, has in ((text("fetch"), JOB), (job("backup"), WORKFLOW), (job(), JOB)):
        with pytest.raises(WorkflowExistsError) as refused:
            await store.create_workflow(taken, at=NOW)
        assert (refused.value.args[0], refused.value.kind) == (taken.name, has)
        if taken.kind is not has:
            with pytest.raises(WorkflowExistsError) as refused:
                await store.update_workflow(taken, at=NOW)
            assert refused.value.kind is has
    assert (await read(store, "fetch")).version == 1


async def test_deleting_by_kind(store: Store) -> None:
    await with_job(store)
    assert await store.delete_workflow("fetch", at=NOW, kind=WORKFLOW) is False
    assert await store.get_workflow("fetch") is not None
    assert await store.delete_workflow("fetch", at=NOW, kind=JOB) is True
    # The name is free, for either kind.
    assert (await store.create_workflow(text("fetch"), at=NOW)).version == 2


async def test_who_uses_a_job(store: Store) -> None:
    await with_job(store, "b", "a")
    await store.create_workflow(job("copy"), at=NOW)
    await store.create_workflow(user("c", "fetch", "copy"), at=NOW)
    assert await store.workflows_using("fetch") == ["a", "b", "c"]
    assert await store.workflows_using("copy") == ["c"]
    assert await store.workflows_using("nope") == []
    # As the current version has it.
    await store.update_workflow(user("a", "copy", source="# 2"), at=NOW)
    assert await store.workflows_using("fetch") == ["b", "c"]
    assert await store.workflows_using("copy") == ["a", "c"]
    await store.delete_workflow("c", at=NOW)
    assert await store.workflows_using("copy") == ["a"]


async def test_a_job_in_use_cannot_be_deleted(store: Store) -> None:
    await with_job(store, "b", "a")
    with pytest.raises(JobInUseError) as refused:
        await store.delete_workflow("fetch", at=NOW)
    assert refused.value.args[0] == ("a", "b")
    await store.delete_workflow("a", at=NOW)
    await store.update_workflow(text("b", source="# alone"), at=NOW)
    assert await store.delete_workflow("fetch", at=NOW) is True


async def test_a_new_parsed_form_is_a_new_version(store: Store) -> None:
    """The same text, made with another job."""
    await with_job(store, "a")
    answer = await store.update_workflow(user("a", parsed={"steps": ("x",)}), at=later(1))
    assert answer is not None
    assert (answer[0].version, answer[1]) == (2, True)
    same = await store.update_workflow(user("a", parsed={"steps": ("x",)}), at=later(2))
    assert same == (answer[0], False)


async def test_a_changed_job_takes_its_users_along(store: Store) -> None:
    await with_job(store, "a", "b")
    await store.create_workflow(user("c", owner="/etc/c.yaml"), at=NOW)
    await store.set_enabled("a", False, at=NOW)
    before = {name: await read(store, name) for name in "abc"}
    also = [
        user("a", parsed={"new": "a"}, expected_version=1),
        # As it was: this one overrides all that changed.
        user("b", expected_version=1),
        user("c", parsed={"new": "c"}),
        user("gone", parsed={"new": "gone"}, expected_version=3),
    ]
    answer = await store.update_workflow(job(source="# 2"), at=later(1), request=request(), also=also)
    assert answer is not None
    assert (answer[0].version, answer[1]) == (2, True)
    for name, version in (("a", 2), ("b", 1), ("c", 2)):
        stored = await read(store, name)
        assert stored.version == version
        if version == 1:
            assert stored == before[name]
        else:
            assert stored.definition is not None
            assert stored.definition.parsed == {"new": name}
            assert stored.definition.source == text().source
            assert (stored.etag, stored.updated_at) == (f"{version}-0", later(1))
    assert (await read(store, "a")).enabled is False, "as it was set by hand"
    assert (await read(store, "c")).owner == "/etc/c.yaml", "and whose it was"
    assert await store.get_workflow("gone") is None
    assert await store.workflows_using("fetch") == ["a", "b", "c"]
    # Once is enough.
    again = await store.update_workflow(job(source="# 2"), at=later(2), request=request(), also=also)
    assert again == answer
    assert (await read(store, "a")).version == 2


async def test_a_user_that_changed_meanwhile_is_decided_on_anew(store: Store) -> None:
    await with_job(store, "a", "b")
    await store.update_workflow(user("b", source="# 2"), at=NOW)
    also = [user(name, parsed={"new": name}, expected_version=1) for name in "ab"]
    with pytest.raises(ConflictError) as refused:
        await store.update_workflow(job(source="# 2"), at=NOW, also=also)
    assert refused.value.args[0] == "b"
    assert [(await read(store, name)).version for name in ("fetch", "a", "b")] == [1, 1, 2]


async def test_no_user_is_left_behind(store: Store) -> None:
    """One that came to use the job after the others were made anew."""
    await with_job(store, "a", "b")
    with pytest.raises(ConflictError) as refused:
        await store.update_workflow(job(source="# 2"), at=NOW, also=[user("a", parsed={})])
    assert refused.value.args[0] == "b"
    assert (await read(store, "a")).version == 1
    # What makes no version of the job concerns nobody.
    answer = await store.update_workflow(job(title="Other"), at=NOW)
    assert answer is not None
    assert (answer[0].title, answer[0].version, answer[1]) == ("Other", 1, True)


async def test_a_workflow_needs_its_jobs_as_it_was_made_with_them(store: Store) -> None:
    with pytest.raises(ConflictError) as refused:
        await store.create_workflow(user("a"), at=NOW)
    assert refused.value.args[0] == "fetch"
    await store.create_workflow(text("fetch"), at=NOW)
    with pytest.raises(ConflictError):
        await store.create_workflow(user("a"), at=NOW)
    await store.delete_workflow("fetch", at=NOW)
    await store.create_workflow(job(), at=NOW)
    with pytest.raises(ConflictError):
        await store.create_workflow(user("a", job_versions={"fetch": 1}), at=NOW)
    await store.create_workflow(user("a", job_versions={"fetch": 2}), at=NOW)
    with pytest.raises(ConflictError):
        await store.update_workflow(user("a", source="# 2", job_versions={"fetch": 1}), at=NOW)
    assert (await read(store, "a")).version == 1


async def test_a_job_and_its_users_never_part(stores: list[Store]) -> None:
    """Whoever comes between reads again: in the end every user is made of the job as it is."""
    await stores[0].create_workflow(job(parsed={"job": -1}), at=NOW)

    async def change(number: int) -> None:
        store = stores[number % 2]
        while True:
            users = [await read(store, name) for name in await store.workflows_using("fetch")]
            also = [user(each.name, parsed={"job": number}, expected_version=each.version) for each in users]
            try:
                parsed = {"job": number}
                await store.update_workflow(job(source=f"# {number}", parsed=parsed), at=NOW, also=also)
            except ConflictError:
                continue
            return

    async def use(number: int) -> None:
        store = stores[number % 2]
        while True:
            current = await read(store, "fetch")
            assert current.definition is not None
            made = user(
                f"user-{number}",
                parsed=current.definition.parsed,
                job_versions={"fetch": current.version},
            )
            try:
                await store.create_workflow(made, at=NOW)
            except ConflictError:
                continue
            return

    await asyncio.gather(*(act(number) for number in range(6) for act in (change, use)))
    current = (await read(stores[0], "fetch")).definition
    assert current is not None
    users = await stores[0].workflows_using("fetch")
    assert len(users) == 6
    for name in users:
        made = (await read(stores[0], name)).definition
        assert made is not None
        assert made.parsed == current.parsed
