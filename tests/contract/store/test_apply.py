"""Definitions that are applied together: all or none, with versions, etags and repeated requests."""

from __future__ import annotations

import pytest

from contract.builders import NOW, later, request, text
from toban.definition import DefinitionKind
from toband.ports import EtagMismatchError, PutOutcome, PutResult, RequestReusedError, Store

CREATED, UPDATED, UNCHANGED = PutOutcome
JOB = DefinitionKind.JOB
TOOL = frozenset({"tool"})


async def test_results_have_versions_and_etags(store: Store) -> None:
    texts = [text("user", uses=TOOL), text("tool", kind=JOB)]
    first = await store.put_definitions(texts, at=NOW)
    assert first == {name: PutResult(outcome=CREATED, version=1, etag="1-0") for name in ("tool", "user")}
    again = await store.put_definitions([text("user", uses=TOOL, source="x"), texts[1]], at=later(1))
    assert again == {
        "tool": PutResult(outcome=UNCHANGED, version=1, etag="1-0"),
        "user": PutResult(outcome=UPDATED, version=2, etag="2-0"),
    }


async def test_a_changed_job_names_the_users_that_changed_with_it(store: Store) -> None:
    await store.put_definitions([text("tool", kind=JOB), text("other", kind=JOB)], at=NOW)
    await store.put_definitions(
        [text("a", uses=TOOL), text("b", uses=TOOL), text("c", uses=frozenset({"other"}))], at=NOW
    )
    also = [text("a", uses=TOOL, parsed={"steps": []}), text("b", uses=TOOL)]
    put = await store.put_definitions([text("tool", kind=JOB, source="x")], at=later(1), also=also)
    assert put["tool"].users == ("a",)


async def test_a_dry_run_answers_the_same_and_keeps_nothing(store: Store) -> None:
    await store.put_definitions([text("old")], at=NOW)
    texts = [text("old", source="x"), text("new")]
    dry = await store.put_definitions(texts, at=later(1), request=request(), dry_run=True)
    assert await store.get_workflow("new") is None
    assert [each.version for each in await store.list_versions("old")] == [1]
    assert await store.put_definitions(texts, at=later(1), request=request()) == dry
    assert (dry["old"].version, dry["new"].outcome) == (2, CREATED)


async def test_an_etag_that_is_not_the_current_one_stores_nothing(store: Store) -> None:
    await store.put_definitions([text("old")], at=NOW)
    for etags, current in (({"old": "9-9"}, "1-0"), ({"new": "1-0"}, "")):
        with pytest.raises(EtagMismatchError) as refused:
            await store.put_definitions([text("new"), text("old", source="x")], at=NOW, etags=etags)
        assert (refused.value.name, refused.value.args[0]) == (*etags, current)
    assert await store.get_workflow("new") is None
    put = await store.put_definitions([text("old", source="x")], at=NOW, etags={"old": "1-0"})
    assert put["old"].version == 2


async def test_a_repeated_request_answers_as_the_first_one_did(store: Store) -> None:
    await store.put_definitions([text("tool", kind=JOB)], at=NOW)
    await store.put_definitions([text("user", uses=TOOL)], at=NOW)
    texts, also = [text("tool", kind=JOB, source="x")], [text("user", uses=TOOL, parsed={"steps": []})]
    first = await store.put_definitions(texts, at=later(1), also=also, request=request())
    assert first["tool"].users == ("user",)
    await store.put_definitions([text("tool", kind=JOB, source="y")], at=later(2), also=[text("user", uses=TOOL)])
    assert await store.put_definitions(texts, at=later(3), also=also, request=request()) == first
    assert len(await store.list_versions("tool")) == 3
    with pytest.raises(RequestReusedError):
        await store.put_definitions(texts, at=later(3), request=request(digest="other"))
