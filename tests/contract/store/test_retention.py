"""Retention queries: removable runs, protected runs, and the rows removed with a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import uuid_utils

from contract.builders import (
    NOW,
    ended,
    finished,
    later,
    launched,
    new_run,
    request,
    save,
    stored_run,
    text,
    touched,
    with_workflow,
)
from toban.definition import Retention
from toband.domain.attempt_model import Sample, Usage
from toband.domain.run_model import Pin, Run
from toband.ports import RunGoneError, RunSize, RunSpan, Store, StoredSize, WorkflowText

DAY = timedelta(days=1)


async def over(store: Store, workflow: str = "backup", **changes: Any) -> Run:
    """A run that has ended."""
    run = await stored_run(store, workflow, **changes)
    return await save(store, run, finished(run))


async def ids(store: Store, **how: Any) -> list[str]:
    return [run.id for run in await store.removable_runs(**how)]


def made_at(at: datetime, number: int) -> str:
    """An id with its time in front, as uuid7 has it."""
    digits = f"{int(at.timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"


async def test_the_last_run_of_a_workflow_and_active_ones_are_not_removable(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    first, active = await over(store), await stored_run(store)
    second, only = await over(store), await over(store, "other")
    last = await over(store)
    assert await ids(store) == [first.id, second.id]
    assert await ids(store, workflow="other") == []
    assert await ids(store, after=first.id) == [second.id]
    assert await ids(store, limit=1) == [first.id]
    asked = [first.id, active.id, only.id, last.id]
    assert await store.deletable_runs(asked) == [first.id, only.id, last.id]
    assert await store.delete_runs(asked) == [first.id, only.id, last.id]
    assert {run.id for run in await store.list_runs()} == {active.id, second.id}


async def test_the_last_run_of_a_deleted_workflow_is_removable(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    only, kept = await over(store), await over(store, "other")
    assert await ids(store) == []
    await store.delete_workflow("backup", at=NOW)
    assert await ids(store) == [only.id]
    assert {span.workflow: span.defined for span in await store.run_spans()} == {"backup": False, "other": True}
    assert await store.deletable_runs([kept.id]) == [kept.id]


async def test_versions_that_no_run_uses_are_forgotten(store: Store) -> None:
    await with_workflow(store)
    old = await over(store)
    for number in range(2, 6):
        await store.update_workflow(text(source=f"# {number}"), at=NOW)
    versions = partial(store.list_versions, "backup")
    assert await store.forget_versions(later(-9), 5) == 0
    assert await store.forget_versions(later(-9), 2) == 2
    assert [each.version for each in await versions()] == [5, 4, 1]
    await store.delete_runs([old.id])
    assert await store.forget_versions(later(-9), 2) == 1
    assert [each.version for each in await versions()] == [5, 4]


async def test_nothing_is_left_of_a_deleted_workflow(store: Store) -> None:
    await with_workflow(store)
    run = await over(store)
    await store.delete_workflow("backup", at=NOW)
    assert await store.forget_versions(later(9), 1) == 0, "a run uses it"
    await store.delete_runs([run.id])
    assert await store.forget_versions(later(-9), 1) == 0, "it was stored later"
    assert await store.forget_versions(later(9), 1) == 1
    assert await store.list_versions("backup") == []
    await with_workflow(store)
    again = await stored_run(store)
    assert (again.number, again.version) == (1, 1)


async def test_a_pinned_run_is_not_removable(store: Store) -> None:
    await with_workflow(store)
    first, second, active = await over(store), await over(store), await stored_run(store)
    await over(store)
    pin = Pin(at=later(9), by="uid:7", note="evidence, 証拠")
    assert [await store.pin_run(run.id, pin) for run in (first, active)] == [True, True]
    assert await store.pin_run("nope", pin) is False
    assert await store.get_run(first.id) == replace(first, pin=pin)
    assert [run.pin for run in await store.list_runs()] == [None, pin, None, pin]
    assert await ids(store) == [second.id]
    assert await store.deletable_runs([first.id, second.id]) == [second.id]
    assert await store.delete_runs([first.id, second.id]) == [second.id]

    # A transition leaves the pin as it is, and every entry of the history shows it.
    active = await save(store, active, launched(active, "s0"))
    assert await store.get_run(active.id) == replace(active, pin=pin)
    assert [entry.run.pin for entry in await store.history(active.id)] == [pin]
    changed = replace(pin, note="")
    assert await store.pin_run(first.id, changed)
    assert await store.get_run(first.id) == replace(first, pin=changed)
    assert await store.pin_run(first.id, None)
    assert await store.get_run(first.id) == first
    assert await store.delete_runs([first.id]) == [first.id]


async def test_numbers_go_on_when_the_last_run_was_deleted(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    runs = [await over(store) for _ in range(3)]
    await over(store, "other")
    # The last one, then one before it, then all that are left.
    for going in (runs[2:], runs[1:2], runs[:1]):
        assert await store.delete_runs([run.id for run in going]) == [run.id for run in going]
    fourth = await over(store)
    fifth = await over(store)
    assert (fourth.number, fifth.number) == (4, 5)
    await store.delete_runs([fifth.id])
    await store.delete_runs([fourth.id])
    await store.delete_workflow("backup", at=NOW)
    await with_workflow(store)
    assert (await stored_run(store)).number == 6
    assert (await stored_run(store, "other")).number == 2


async def test_runs_that_ended_before_a_time(store: Store) -> None:
    await with_workflow(store)
    old = await over(store, id=made_at(NOW, 1))
    long = await stored_run(store, id=made_at(NOW, 2))
    long = await save(store, long, replace(finished(long), finished_at=NOW + 3 * DAY))
    await over(store)
    assert await ids(store, workflow="backup", finished_before=later(3)) == []
    assert await ids(store, workflow="backup", finished_before=NOW + DAY) == [old.id]
    assert await ids(store, workflow="backup", finished_before=NOW + 9 * DAY) == [old.id, long.id]


async def test_ids_of_real_time_are_no_obstacle(store: Store) -> None:
    await with_workflow(store)
    made = []
    for _ in range(3):
        run_id = str(uuid_utils.uuid7())
        run = await stored_run(store, id=run_id, created_at=datetime.now(UTC))
        made.append(run_id)
        await save(store, run, replace(finished(run), finished_at=datetime.now(UTC)))
    assert await ids(store, finished_before=datetime.now(UTC)) == made[:2]
    assert await ids(store, finished_before=datetime.now(UTC) - DAY) == []


async def test_the_number_from_which_on_runs_are_kept(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    await over(store, "other")
    runs = [await over(store) for _ in range(5)]
    assert await store.kept_number("backup", 2) == 4
    assert await store.kept_number("backup", 5) == 1
    assert await store.kept_number("backup", 6) == 0
    assert await ids(store, workflow="backup", number_below=4) == [run.id for run in runs[:3]]
    # Numbers that are missing do not count.
    await store.delete_runs([runs[3].id])
    assert await store.kept_number("backup", 2) == 3


async def test_sizes_are_kept_summed_and_replaced(store: Store) -> None:
    await with_workflow(store, "backup", "other")
    one, two, active = await over(store), await over(store, "other"), await stored_run(store)
    assert [run.id for run in await store.unmeasured_runs()] == [one.id, two.id]
    assert [run.id for run in await store.unmeasured_runs(start=two.id)] == [two.id]
    assert [run.id for run in await store.unmeasured_runs(limit=1)] == [one.id]
    large = 1 << 45
    await store.save_sizes(
        {
            one.id: RunSize(bytes=large, log_bytes=7),
            two.id: RunSize(bytes=5, log_bytes=2),
            "gone": RunSize(bytes=1, log_bytes=1),
        }
    )
    assert await store.unmeasured_runs() == []
    assert await store.stored_size() == StoredSize(runs=3, bytes=large + 5, log_bytes=9)
    assert await store.stored_bytes(["other", "backup", "nope"]) == {"backup": large, "other": 5}
    assert await store.stored_bytes(["other"]) == {"other": 5}
    assert await store.stored_bytes([]) == {}
    await store.save_sizes({one.id: RunSize(bytes=3, log_bytes=1)})
    await save(store, active, finished(active))
    (found,) = await store.removable_runs()
    assert (found.id, found.size) == (one.id, RunSize(bytes=3, log_bytes=1))
    assert (found.workflow, found.number, found.finished_at) == ("backup", 1, later(3))
    await store.delete_runs([one.id])
    assert await store.stored_size() == StoredSize(runs=2, bytes=5, log_bytes=2)
    await store.save_sizes({})


async def test_all_that_is_a_runs_own_goes_with_it(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store)
    for step in ("s0", "s1"):
        run = await save(store, run, launched(run, step))
        run = await save(store, run, ended(run, step))
    run = await save(store, run, finished(run))
    attempts = await store.run_attempts(run.id)
    assert len(attempts) == 2
    sample = Sample(at=NOW, cpu=1.0, rss_bytes=1, processes=1)
    await store.save_usage({attempts[0].id: Usage(samples=(sample,))})
    await store.save_sizes({run.id: RunSize(bytes=9, log_bytes=9)})
    other = await over(store)

    assert await store.delete_runs([run.id]) == [run.id]
    assert await store.get_run(run.id) is None
    assert await store.history(run.id) == []
    assert await store.run_attempts(run.id) == []
    assert await store.get_attempt(attempts[0].id) is None
    assert not await store.usage_of([attempts[0].id])
    assert (await store.stored_size()).bytes == 0
    assert await store.get_run(other.id) == other
    assert await store.delete_runs([run.id]) == []
    assert await store.delete_runs([]) == []


async def test_rows_are_estimated_by_steps_and_launches(store: Store) -> None:
    await with_workflow(store)
    run = await stored_run(store, steps=40)
    small = finished(run)
    await save(store, run, touched(small, {}, sequence=small.sequence, launches=20))
    await over(store)
    (found,) = await store.removable_runs()
    assert 80 <= found.rows <= 200


async def test_a_request_whose_run_is_gone_says_so(store: Store) -> None:
    await with_workflow(store)
    run, _ = await store.create_run(new_run(), max_active=None, request=request())
    await save(store, run, finished(run))
    await over(store)
    await store.delete_runs([run.id])
    with pytest.raises(RunGoneError, match=run.id):
        await store.run_of_request(request())
    with pytest.raises(RunGoneError, match=run.id):
        await store.create_run(new_run(), max_active=None, request=request())
    assert len(await store.list_runs()) == 1


async def spans(store: Store) -> dict[str, RunSpan]:
    found = await store.run_spans()
    by_name = {span.workflow: span for span in found}
    assert len(by_name) == len(found)
    return by_name


async def test_between_what_the_runs_of_each_workflow_lie(store: Store) -> None:
    await with_workflow(store, "b", "a", "B", "ü", "never")
    assert await spans(store) == {}
    runs = {name: [await over(store, name) for _ in range(3)] for name in ("b", "a", "ü")}
    active = await stored_run(store, "B")
    found = await spans(store)
    assert found == {
        "B": RunSpan(workflow="B", first=1, last=1, oldest_id=active.id),
        **{name: RunSpan(workflow=name, first=1, last=3, oldest_id=made[0].id) for name, made in runs.items()},
    }
    await store.delete_runs([runs["a"][0].id, runs["b"][1].id])
    # Runs of a workflow that is gone still are there.
    await store.delete_workflow("b", at=NOW)
    later_found = await spans(store)
    assert later_found == found | {
        "a": RunSpan(workflow="a", first=2, last=3, oldest_id=runs["a"][1].id),
        "b": replace(found["b"], defined=False),
    }


async def test_sizes_of_more_workflows_than_one_statement_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toband.store.rows.retention._AT_ONCE", 3)
    names = [f"w{number}" for number in range(8)]
    await with_workflow(store, *names)
    runs = [await over(store, name, steps=0) for name in names * 2]
    await store.save_sizes({run.id: RunSize(bytes=run.number, log_bytes=0) for run in runs})
    assert await store.stored_bytes(names) == dict.fromkeys(names, 3)


def keeping(name: str, own: Retention | None, **changes: Any) -> WorkflowText:
    said = None if own is None else own.to_dict()
    return text(name, parsed={"steps": [{"id": "copy"}], "retention": said}, **changes)


async def test_what_workflows_say_themselves_is_that_of_their_current_version(store: Store) -> None:
    own = Retention(runs=3, age=86400.5)
    await store.create_workflow(keeping("a", own), at=NOW)
    await store.create_workflow(keeping("b", None), at=NOW)
    await store.create_workflow(text("c"), at=NOW)
    file = keeping("d", Retention(bytes=1 << 62), owner="/flows/d.yaml")
    await store.put_definitions([file], at=NOW)
    in_file = {"d": Retention(bytes=1 << 62)}
    assert await store.retention_rules() == {"a": own, **in_file}

    assert await store.update_workflow(keeping("a", own, title="A"), at=NOW)
    assert await store.retention_rules() == {"a": own, **in_file}
    changes: list[tuple[str, Retention | None]] = [
        ("b", own),
        ("b", Retention(runs=1)),
        ("a", None),
    ]
    for name, rules in changes:
        answer = await store.update_workflow(keeping(name, rules), at=NOW)
        assert answer is not None
    assert await store.retention_rules() == {"b": Retention(runs=1), **in_file}
    # In no file any more, it is still there, and says what it said.
    await store.disown_definition("d", "/flows/d.yaml", at=NOW)
    assert await store.retention_rules() == {"b": Retention(runs=1), **in_file}
    assert await store.delete_workflow("b", at=NOW)
    assert await store.retention_rules() == in_file


async def test_many_at_once(store: Store) -> None:
    await with_workflow(store)
    # At once too: one after the other each would wait for the disk twice.
    runs = await asyncio.gather(*(over(store, steps=0) for _ in range(620)))
    assert [run.number for run in runs] == list(range(1, 621))
    await store.save_sizes({run.id: RunSize(bytes=1, log_bytes=1) for run in runs})
    assert (await store.stored_size()).bytes == 620
    gone = await store.delete_runs([run.id for run in runs])
    assert gone == [run.id for run in runs]
    assert dict(await store.known_runs(gone)) == {}
    assert (await stored_run(store)).number == 621
