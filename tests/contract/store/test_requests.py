"""Repeated requests: the first answer again, and nothing made twice."""

from __future__ import annotations

import asyncio

import pytest

from contract.builders import (
    NOW,
    finished,
    later,
    new_run,
    request,
    save,
    text,
    with_workflow,
)
from toband.ports import ActiveRunError, RequestReusedError, Store, WorkflowExistsError


async def test_creating_a_workflow_again_answers_as_before(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW, request=request())
    await store.update_workflow(text(source="# 2", title="Other"), at=later(1))
    assert await store.create_workflow(text(), at=later(2), request=request()) == first
    # Even when it is gone meanwhile: the answer tells what was, it makes nothing.
    await store.delete_workflow("backup", at=NOW)
    assert await store.create_workflow(text(), at=later(3), request=request()) == first
    assert await store.get_workflow("backup") is None


async def test_updating_a_workflow_again_answers_as_before(store: Store) -> None:
    await with_workflow(store)
    changing, idle = request("u-1", "Update"), request("u-2", "Update")
    second = await store.update_workflow(text(source="# 2"), at=later(1), request=changing)
    same = await store.update_workflow(text(source="# 2"), at=later(2), request=idle)
    await store.update_workflow(text(source="# 3"), at=later(3))
    again = await store.update_workflow(text(source="# 2"), at=later(4), request=changing)
    assert again == second
    assert second is not None
    assert second[1] is True
    assert await store.update_workflow(text(source="# 2"), at=later(5), request=idle) == same
    assert same is not None
    assert same[1] is False
    assert [version.version for version in await store.list_versions("backup")] == [3, 2, 1]


async def test_a_repeated_update_needs_no_current_etag(store: Store) -> None:
    first = await store.create_workflow(text(), at=NOW)
    arguments = text(source="# 2")
    answer = await store.update_workflow(arguments, at=NOW, etag=first.etag, request=request())
    assert await store.update_workflow(arguments, at=NOW, etag=first.etag, request=request()) == answer


async def test_creating_a_run_again_answers_the_run_as_it_is_now(store: Store) -> None:
    await with_workflow(store)
    run, new = await store.create_run(new_run(), max_active=1, request=request())
    assert new
    run = await save(store, run, finished(run))
    again = await store.create_run(new_run(), max_active=1, request=request())
    assert again == (run, False)
    assert len(await store.list_runs()) == 1


async def test_a_repeated_request_is_not_refused_for_its_own_run(store: Store) -> None:
    await with_workflow(store)
    run, _ = await store.create_run(new_run(), max_active=1, request=request())
    assert await store.create_run(new_run(), max_active=1, request=request()) == (run, False)
    with pytest.raises(ActiveRunError):
        await store.create_run(new_run(), max_active=1, request=request("r-2"))


async def test_the_run_of_a_request(store: Store) -> None:
    await with_workflow(store)
    assert await store.run_of_request(request()) is None
    run, _ = await store.create_run(new_run(), max_active=None, request=request())
    assert await store.run_of_request(request()) == run
    run = await save(store, run, finished(run))
    assert await store.run_of_request(request()) == run
    assert await store.run_of_request(request("r-2")) is None
    with pytest.raises(RequestReusedError):
        await store.run_of_request(request(digest="other"))


async def test_another_body_is_refused(store: Store) -> None:
    await store.create_workflow(text(), at=NOW, request=request(digest="a"))
    other = request(digest="b")
    with pytest.raises(RequestReusedError):
        await store.create_workflow(text("other"), at=NOW, request=other)
    with pytest.raises(RequestReusedError):
        await store.update_workflow(text(source="# 2"), at=NOW, request=other)
    with pytest.raises(RequestReusedError):
        await store.create_run(new_run(), max_active=None, request=other)
    assert await store.get_workflow("other") is None
    assert await store.list_runs() == []


async def test_callers_and_calls_have_ids_of_their_own(store: Store) -> None:
    await with_workflow(store)
    made = [
        await store.create_run(new_run(), max_active=None, request=key)
        for key in (
            request("1", "Start", "me"),
            request("2", "Start", "me"),
            request("1", "Other", "me"),
            request("1", "Start", "you"),
        )
    ]
    assert all(new for _, new in made)
    assert len({run.id for run, _ in made}) == 4


async def test_what_failed_may_be_tried_again_with_the_same_id(store: Store) -> None:
    await with_workflow(store)
    with pytest.raises(WorkflowExistsError):
        await store.create_workflow(text(), at=NOW, request=request())
    await store.delete_workflow("backup", at=NOW)
    assert (await store.create_workflow(text(), at=NOW, request=request())).version == 2
    assert await store.update_workflow(text("nope"), at=NOW, request=request("r-2")) is None
    await with_workflow(store, "nope")
    assert await store.update_workflow(text("nope"), at=NOW, request=request("r-2")) is not None


async def test_of_the_same_request_at_once_one_makes_the_run(stores: list[Store]) -> None:
    await with_workflow(stores[0])
    results = await asyncio.gather(
        *(stores[n % 2].create_run(new_run(), max_active=None, request=request()) for n in range(10))
    )
    assert sum(new for _, new in results) == 1
    assert len({run.id for run, _ in results}) == 1
    assert len(await stores[0].list_runs()) == 1


async def test_old_requests_are_forgotten(store: Store) -> None:
    await with_workflow(store)
    for second in range(4):
        run = new_run(created_at=later(second))
        await store.create_run(run, max_active=None, request=request(f"r-{second}"))
    assert await store.forget_requests(later(2)) == 2
    assert await store.forget_requests(later(2)) == 0
    forgotten, kept = request("r-1"), request("r-2")
    assert (await store.create_run(new_run(), max_active=None, request=forgotten))[1] is True
    assert (await store.create_run(new_run(), max_active=None, request=kept))[1] is False
