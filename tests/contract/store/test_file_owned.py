"""Definitions owned by files: stored all or none, and disabled when their file is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from contract.builders import NOW, later, text
from toban.definition import DefinitionKind
from toband.ports import (
    ConflictError,
    PutOutcome,
    PutResult,
    Store,
    StoredWorkflow,
    WorkflowExistsError,
    WorkflowOwnedError,
    WorkflowText,
)

FILE = "/etc/flows/a.yaml"
CREATED, UPDATED, UNCHANGED = PutOutcome


def owned(name: str, **changes: Any) -> WorkflowText:
    return text(name, **({"owner": FILE} | changes))


def outcomes(put: Mapping[str, PutResult]) -> Mapping[str, PutOutcome]:
    return {name: result.outcome for name, result in put.items()}


async def read(store: Store, name: str) -> StoredWorkflow:
    stored = await store.get_workflow(name)
    assert stored is not None
    return stored


async def test_a_file_is_stored_with_its_jobs_first(store: Store) -> None:
    user = owned("user", uses=frozenset({"tool"}))
    job = owned("tool", kind=DefinitionKind.JOB)
    put = await store.put_definitions([user, job], at=NOW)
    assert outcomes(put) == {"user": CREATED, "tool": CREATED}
    put = await store.put_definitions([user, job], at=later(1))
    assert outcomes(put) == {"user": UNCHANGED, "tool": UNCHANGED}
    assert (await read(store, "user")).etag == "1-0"
    put = await store.put_definitions([user, owned("tool", kind=job.kind, source="x")], at=NOW)
    assert outcomes(put) == {"user": UNCHANGED, "tool": UPDATED}
    assert [each.name for each in await store.list_file_owned()] == ["tool", "user"]


async def test_nothing_of_a_file_is_stored_if_a_part_cannot_be(store: Store) -> None:
    await store.create_workflow(text("taken"), at=NOW)
    with pytest.raises(WorkflowOwnedError) as refused:
        await store.put_definitions([owned("new"), owned("taken")], at=NOW)
    assert (refused.value.args[0], refused.value.owner) == ("taken", "api")
    with pytest.raises(WorkflowOwnedError):
        await store.put_definitions([owned("new"), owned("taken", kind=DefinitionKind.JOB)], at=NOW)
    await store.put_definitions([owned("mine")], at=NOW)
    with pytest.raises(WorkflowExistsError) as exists:
        await store.put_definitions([owned("new"), owned("mine", kind=DefinitionKind.JOB)], at=NOW)
    assert exists.value.kind is DefinitionKind.WORKFLOW
    with pytest.raises(ConflictError):
        await store.put_definitions([owned("new"), owned("b", uses=frozenset({"no"}))], at=NOW)
    assert await store.get_workflow("new") is None
    assert [each.name for each in await store.list_file_owned()] == ["mine"]


async def test_users_elsewhere_change_with_a_job_or_are_missed(store: Store) -> None:
    job = owned("tool", kind=DefinitionKind.JOB)
    await store.put_definitions([job], at=NOW)
    await store.create_workflow(text("user", uses=frozenset({"tool"})), at=NOW)
    changed = owned("tool", kind=DefinitionKind.JOB, source="x")
    with pytest.raises(ConflictError):
        await store.put_definitions([changed], at=NOW)
    anew = text("user", uses=frozenset({"tool"}), parsed={"steps": []}, expected_version=1)
    await store.put_definitions([changed], at=NOW, also=[anew])
    user = await read(store, "user")
    assert (user.version, user.owner) == (2, "api")


async def test_what_no_file_has_is_disabled_until_one_has_it_again(store: Store) -> None:
    await store.put_definitions([owned("left")], at=NOW)
    assert not await store.disown_definition("left", "/etc/flows/other.yaml", at=NOW)
    assert not await store.disown_definition("missing", FILE, at=NOW)
    assert await store.disown_definition("left", FILE, at=later(1))
    assert not await store.disown_definition("left", FILE, at=later(1))
    left = await read(store, "left")
    assert (left.enabled, left.owner, left.owner_removed, left.file) == (False, FILE, True, "")
    other = owned("left", owner="/etc/flows/b.yaml")
    with pytest.raises(WorkflowOwnedError):
        await store.put_definitions([other], at=NOW)
    put = await store.put_definitions([other], at=later(2), take_over={"left": left.owner})
    assert outcomes(put) == {"left": UPDATED}
    left = await read(store, "left")
    assert (left.enabled, left.version, left.file) == (True, 1, "/etc/flows/b.yaml")


@pytest.mark.parametrize("stored_as", DefinitionKind)
@pytest.mark.parametrize("source", ["the same", "another"])
async def test_what_no_file_has_is_enabled_when_somebody_stores_it_himself(
    store: Store, stored_as: DefinitionKind, source: str
) -> None:
    await store.put_definitions([owned("left", kind=stored_as, source="the same")], at=NOW)
    await store.disown_definition("left", FILE, at=later(1))
    updated = await store.update_workflow(text("left", kind=stored_as, source=source), at=later(2))
    assert updated is not None
    left, changed = updated
    assert (left.enabled, left.owner, changed) == (True, "api", True)
    # Unless the text itself says otherwise.
    await store.put_definitions([owned("off", kind=stored_as)], at=NOW)
    await store.disown_definition("off", FILE, at=later(1))
    await store.update_workflow(text("off", kind=stored_as, enabled=False), at=later(2))
    assert not (await read(store, "off")).enabled


async def test_what_no_file_has_stays_disabled_when_a_job_of_it_changes(store: Store) -> None:
    job = text("tool", kind=DefinitionKind.JOB)
    await store.create_workflow(job, at=NOW)
    user = owned("user", uses=frozenset({"tool"}))
    await store.put_definitions([user], at=NOW)
    await store.disown_definition("user", FILE, at=later(1))
    anew = owned("user", uses=frozenset({"tool"}), parsed={"steps": []})
    changed = text("tool", kind=DefinitionKind.JOB, source="x")
    await store.update_workflow(changed, at=later(2), also=[anew])
    left = await read(store, "user")
    assert (left.version, left.enabled, left.owner, left.owner_removed) == (2, False, FILE, True)


async def test_what_was_disabled_by_hand_stays_so(store: Store) -> None:
    await store.put_definitions([owned("paused")], at=NOW)
    await store.set_enabled("paused", False, at=NOW)
    await store.put_definitions([owned("paused", source="x")], at=later(1))
    paused = await read(store, "paused")
    assert (paused.enabled, paused.version) == (False, 2)
