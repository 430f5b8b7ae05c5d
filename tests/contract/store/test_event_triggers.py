"""Event triggers of definitions, and the events about changed definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.builders import NOW, later, request, stored_run, text, with_workflow
from contract.event_builders import on
from contract.scheduled import entry
from toban.definition import DEFINITION_CHANGED, DefinitionKind, EventTrigger
from toban.definition.model.event_triggers import Pace
from toband.domain.emitted_events import Cause, EventSource, EventState, Listener
from toband.ports import (
    ActiveRunError,
    ConflictError,
    Store,
    WorkflowExistsError,
    WorkflowText,
)

FILE = "/etc/flows/a.yaml"
JOB = DefinitionKind.JOB


def heard(workflow: str, position: int = 0, **changes: Any) -> Listener:
    values: dict[str, Any] = {"condition": "", "priority": 0, "enabled": True}
    return Listener(workflow=workflow, position=position, **(values | changes))


# -- listening


async def test_triggers_are_found_by_type(store: Store) -> None:
    assert await store.listened_types() == frozenset()
    assert await store.listeners("A") == []
    triggers = (
        on("A", "B", "A", condition="event.payload.size > 3 // ü", priority=-100),
        on("C"),
        on("A", priority=100, scope="quick", pace=Pace(quiet=1.5, longest=15, key="event.payload.id")),
    )
    await store.create_workflow(text("second", triggers=triggers), at=NOW)
    await store.create_workflow(text("first", kind=JOB, triggers=(on("A"),)), at=NOW)
    await with_workflow(store, "deaf")
    condition = triggers[0].condition
    assert await store.listened_types() == {"A", "B", "C"}
    assert await store.listeners("A") == [
        heard("first"),
        heard("second", condition=condition, priority=-100),
        heard("second", 2, priority=100, scope="quick", pace=triggers[2].pace),
    ]
    assert await store.listeners("B") == [heard("second", condition=condition, priority=-100)]
    assert await store.listeners("C") == [heard("second", 1)]
    assert await store.listeners("a") == []


async def test_a_trigger_needs_its_priority(store: Store) -> None:
    with pytest.raises(ValueError, match="entry 0 has no priority"):
        await store.create_workflow(text(triggers=(EventTrigger(events=("A",)),)), at=NOW)
    assert await store.get_workflow("backup") is None


async def test_triggers_follow_the_definition(store: Store) -> None:
    await store.create_workflow(text(triggers=(on("A"), on("B"))), at=NOW)
    await store.update_workflow(text(source="# 2", triggers=(on("B"), on("C"))), at=NOW)
    assert await store.listened_types() == {"B", "C"}
    assert await store.listeners("B") == [heard("backup")]
    # Without a new version too.
    await store.update_workflow(text(source="# 2", triggers=(on("B", priority=7),)), at=NOW)
    assert await store.listeners("B") == [heard("backup", priority=7)]
    assert await store.listened_types() == {"B"}
    await store.update_workflow(text(source="# 3"), at=NOW)
    assert await store.listened_types() == frozenset()


async def test_one_that_is_disabled_is_still_known(store: Store) -> None:
    await store.create_workflow(text(triggers=(on("A"),)), at=NOW)
    await store.set_enabled("backup", False, at=NOW)
    assert await store.listeners("A") == [heard("backup", enabled=False)]
    assert await store.listened_types() == {"A"}


async def test_triggers_go_with_their_workflow(store: Store) -> None:
    await store.create_workflow(text(triggers=(on("A"),)), at=NOW)
    await store.create_workflow(text("other", triggers=(on("A"),)), at=NOW)
    await store.delete_workflow("backup", at=NOW)
    assert await store.listeners("A") == [heard("other")]


async def test_a_definition_that_is_refused_changes_no_trigger(store: Store) -> None:
    await store.create_workflow(text(triggers=(on("A"),)), at=NOW)
    for refused, error in (
        (text(source="# 2", triggers=(on("B"),), expected_version=9), ConflictError),
        (text(source="# 2", triggers=(on("B"),), uses=frozenset({"no"})), ConflictError),
        (text(kind=JOB, triggers=(on("B"),)), WorkflowExistsError),
    ):
        with pytest.raises(error):
            await store.update_workflow(refused, at=NOW)
    assert await store.listened_types() == {"A"}


async def test_a_repeated_request_stores_none_anew(store: Store) -> None:
    listening = text(triggers=(on("A"),))
    await store.create_workflow(listening, at=NOW, request=request())
    await store.update_workflow(text(source="# 2"), at=NOW)
    await store.create_workflow(listening, at=NOW, request=request())
    assert await store.listened_types() == frozenset()


# -- changes of definitions


async def listening(store: Store) -> None:
    """A listener of changes, which has received none so far."""
    await store.create_workflow(text("ear", triggers=(on(DEFINITION_CHANGED),)), at=NOW)


async def told(store: Store) -> list[tuple[str, str, str, int, str]]:
    """All events, oldest first: the type of the definition, the action, and its name."""
    found = []
    for event in await store.events_after(0, up_to=1000):
        assert (event.type, event.source, event.state) == (
            DEFINITION_CHANGED,
            EventSource.DAEMON,
            EventState.PENDING,
        )
        payload = event.payload
        assert set(payload) == {"entity", "action", "data"}
        data = payload["data"]
        assert set(data) == {"name", "title", "version", "owner"}
        found.append((payload["entity"], payload["action"], data["name"], data["version"], data["owner"]))
    return found


async def test_nobody_is_told_of_itself(store: Store) -> None:
    await with_workflow(store, "early")
    await listening(store)
    assert await store.last_event() == 0
    await store.create_workflow(text("late", triggers=(on(DEFINITION_CHANGED),)), at=later(5))
    assert await told(store) == [("workflow", "created", "late", 1, "api")]
    (event,) = await store.list_events()
    assert (event.at, event.caller, event.depth) == (later(5), "", 0)


async def test_nothing_is_told_where_nobody_listens(store: Store) -> None:
    await store.create_workflow(text(triggers=(on("A"),)), at=NOW)
    await store.update_workflow(text(source="# 2"), at=NOW)
    await store.set_enabled("backup", False, at=NOW)
    await store.delete_workflow("backup", at=NOW)
    assert await store.last_event() == 0


async def test_what_is_done_over_the_api(store: Store) -> None:
    await listening(store)
    await store.create_workflow(text(), at=NOW)
    await store.create_workflow(text("tool", kind=JOB), at=NOW)
    await store.update_workflow(text(source="# 2"), at=NOW)
    await store.update_workflow(text(source="# 2", owner="/a"), at=NOW)
    for enabled in (False, True):
        for _ in range(2):
            await store.set_enabled("backup", enabled, at=NOW)
    await store.delete_workflow("tool", at=NOW)
    assert await told(store) == [
        ("workflow", "created", "backup", 1, "api"),
        ("job", "created", "tool", 1, "api"),
        ("workflow", "updated", "backup", 2, "api"),
        ("workflow", "updated", "backup", 2, "/a"),
        ("workflow", "disabled", "backup", 2, "/a"),
        ("workflow", "enabled", "backup", 2, "/a"),
        ("job", "deleted", "tool", 1, "api"),
    ]


async def test_nothing_is_told_of_what_does_not_happen(store: Store) -> None:
    await listening(store)
    await store.create_workflow(text(), at=NOW, request=request())
    run = await stored_run(store)
    was = await store.last_event()
    await store.create_workflow(text(), at=NOW, request=request())
    # The same once more; schedules may differ in what the daemon itself adds to them.
    await store.update_workflow(text(schedules=(entry(0),)), at=NOW)
    await store.update_workflow(text("nope"), at=NOW)
    await store.set_enabled("backup", True, at=NOW)
    await store.set_enabled("nope", True, at=NOW)
    assert not await store.delete_workflow("nope", at=NOW)
    assert not await store.disown_definition("backup", FILE, at=NOW)
    with pytest.raises(WorkflowExistsError):
        await store.create_workflow(text(), at=NOW)
    with pytest.raises(ActiveRunError, match=run.id):
        await store.delete_workflow("backup", at=NOW)
    with pytest.raises(ConflictError):
        await store.update_workflow(text(source="# 2", expected_version=9), at=NOW)
    assert await store.last_event() == was


async def test_what_a_step_changes_is_one_deeper_in_its_chain(store: Store) -> None:
    by = Cause(run_id="r", step="only", depth=3)
    await listening(store)
    await store.create_workflow(text("a"), at=NOW, cause=by)
    await store.update_workflow(text("a", source="# 2"), at=NOW, cause=by)
    await store.set_enabled("a", False, at=NOW, cause=by)
    await store.delete_workflow("a", at=NOW, cause=by)
    await store.create_workflow(text("a"), at=NOW)
    assert [action for _, action, *_ in await told(store)] == [
        "created",
        "updated",
        "disabled",
        "deleted",
        "created",
    ]
    found = [(event.source_run, event.source_step, event.depth) for event in await store.events_after(0, up_to=1000)]
    assert found == [*(4 * [("r", "only", 4)]), ("", "", 0)]


async def test_users_of_a_job_are_told_of_too(store: Store) -> None:
    job = text("tool", kind=JOB)
    user = text("user", uses=frozenset({"tool"}), owner="/a")
    await store.create_workflow(job, at=NOW)
    await store.create_workflow(user, at=NOW)
    await store.create_workflow(text("idle", uses=frozenset({"tool"})), at=NOW)
    await listening(store)
    also = [replace(user, parsed={"steps": 2}, owner="x"), text("idle", uses=frozenset({"tool"}))]
    await store.update_workflow(replace(job, source="# 2"), at=NOW, also=[*also, text("gone")])
    assert await told(store) == [
        ("job", "updated", "tool", 2, "api"),
        ("workflow", "updated", "user", 2, "/a"),
    ]
    with pytest.raises(ConflictError):
        await store.update_workflow(replace(job, source="# 3"), at=NOW, also=also[:1])
    assert await store.last_event() == 2


async def test_what_files_do(store: Store) -> None:
    await listening(store)

    def owned(name: str, **changes: Any) -> WorkflowText:
        return text(name, **({"owner": FILE} | changes))

    user = owned("user", uses=frozenset({"tool"}))
    await store.put_definitions([user, owned("tool", kind=JOB)], at=NOW)
    await store.put_definitions([user, owned("tool", kind=JOB)], at=NOW)
    await store.put_definitions(
        [owned("tool", kind=JOB, source="x")], at=NOW, also=[replace(user, parsed={"steps": 2})]
    )
    with pytest.raises(ConflictError):
        await store.put_definitions([owned("a"), owned("b", uses=frozenset({"no"}))], at=NOW)
    await store.disown_definition("user", FILE, at=NOW)
    await store.put_definitions([replace(user, parsed={"steps": 2})], at=NOW, take_over={"user": FILE})
    await store.set_enabled("tool", False, at=NOW)
    await store.disown_definition("tool", FILE, at=NOW)
    assert await told(store) == [
        ("job", "created", "tool", 1, FILE),
        ("workflow", "created", "user", 1, FILE),
        ("job", "updated", "tool", 2, FILE),
        ("workflow", "updated", "user", 2, FILE),
        ("workflow", "disabled", "user", 2, FILE),
        ("workflow", "updated", "user", 2, FILE),
        ("job", "disabled", "tool", 2, FILE),
        ("job", "updated", "tool", 2, FILE),
    ]
