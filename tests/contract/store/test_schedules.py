"""Schedules: those that come and go with a definition, and those that a subject has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from contract.builders import NOW, later, request, text, with_workflow
from contract.conftest import NewStore
from contract.scheduled import entry, line, reminder, with_schedules
from toban.definition import DefinitionKind
from toban.definition.timing.schedule_spec import Fold, Gap, Misfire, Schedule
from toband.domain.schedule_model import FireOutcome, ScheduleEntry
from toband.ports import ConflictError, Firing, RequestReusedError, Store
from toband.store import SqlStore
from toband.store.rows import schedules

HOURLY = Schedule(cron="0 * * * *")
DAILY = Schedule(cron="0 3 * * *")
FULL = Schedule(
    cron="30 2 * * mon",
    words="毎週月曜",
    timezone="Europe/Berlin",
    start=datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    end=datetime(2027, 1, 1, 0, 0, 0, 5, tzinfo=timezone(timedelta(hours=9))),
    max_occurrences=1 << 40,
    jitter=12.5,
    gap=Gap.SKIP,
    fold=Fold.BOTH,
    misfire=Misfire.RUN_ALL,
    misfire_grace=0.25,
    params={"target": "tape", "deep": {"list": [1, None, "ü\0"]}},
)


async def names(store: Store, **of: Any) -> list[str]:
    return [found.id for found in await store.list_schedules(**of)]


# -- of definitions


async def test_all_of_an_entry_comes_back(store: Store) -> None:
    full = entry(
        0,
        FULL,
        zone="Europe/Berlin",
        stored_at=later(-5),
        next_due=later(7),
        occurrences=1 << 35,
        caller="uid:7",
    )
    every = entry(1, Schedule(every=90.5), next_due=None)
    await with_schedules(store, full, every)
    assert await store.get_schedule("backup/0") == full
    assert await store.get_schedule("backup/1") == every
    assert await store.get_schedule("nope") is None
    assert await store.list_schedules(active_only=False) == [full, every]
    assert await store.list_schedules() == [full]


async def test_an_entry_of_somebody_else_is_refused(store: Store) -> None:
    for wrong in (entry(0, workflow="other"), reminder("a", workflow="backup")):
        with pytest.raises(ValueError, match="cannot store schedule"):
            await store.create_workflow(text(schedules=(wrong,)), at=NOW)
    assert await store.get_workflow("backup") is None


async def test_a_schedule_that_says_the_same_goes_on(store: Store) -> None:
    was = entry(0, HOURLY, stored_at=later(-100), next_due=later(3), occurrences=4)
    other = entry(1, DAILY, stored_at=later(-100), next_due=later(4), occurrences=5)
    await with_schedules(store, was, other)
    now_entries = (
        entry(0, HOURLY, stored_at=later(50), next_due=later(60)),
        entry(1, replace(DAILY, jitter=3), stored_at=later(50), next_due=later(61)),
    )
    await store.update_workflow(text(source="# 2", schedules=now_entries), at=later(50))
    assert await store.list_schedules() == [was, now_entries[1]]


async def test_a_schedule_goes_on_in_another_place(store: Store) -> None:
    """One before it was taken out of the definition."""
    daily = entry(1, DAILY, next_due=later(4), occurrences=5)
    await with_schedules(store, entry(0, HOURLY), daily)
    moved = entry(0, DAILY, stored_at=later(50), next_due=later(61))
    await store.update_workflow(text(source="# 2", schedules=(moved,)), at=later(50))
    assert await store.list_schedules() == [replace(daily, id="backup/0", index=0)]


async def test_two_that_say_the_same_each_go_on(store: Store) -> None:
    twins = [entry(place, HOURLY, occurrences=place, next_due=later(place)) for place in range(2)]
    await with_schedules(store, *twins)
    anew = [entry(place, HOURLY, next_due=later(90)) for place in range(3)]
    await store.update_workflow(text(source="# 2", schedules=tuple(anew)), at=later(50))
    assert await store.list_schedules() == [*twins, anew[2]]


async def test_another_zone_is_another_schedule(store: Store) -> None:
    """Even when the definition says the same: the daemon's own zone is not in it."""
    await with_schedules(store, entry(0, HOURLY, occurrences=3))
    moved = entry(0, HOURLY, zone="Asia/Tokyo", next_due=later(9))
    updated = await store.update_workflow(text(schedules=(moved,)), at=later(1))
    assert updated is not None
    assert not updated[1]
    assert await store.list_schedules() == [moved]


async def test_words_keep_what_they_meant(store: Store) -> None:
    """`in 3 days` does not move whenever something else of the workflow is changed."""
    was = entry(0, Schedule(words="in 3 days", at=later(3 * 86400)), next_due=later(3 * 86400))
    await with_schedules(store, was)
    again = entry(0, Schedule(words="in 3 days", at=later(4 * 86400)), next_due=later(4 * 86400))
    await store.update_workflow(text(source="# 2", schedules=(again,)), at=later(86400))
    assert await store.list_schedules() == [was]
    other = entry(0, replace(again.spec, words="in 4 days"), next_due=again.next_due)
    await store.update_workflow(text(source="# 3", schedules=(other,)), at=later(86400))
    assert await store.list_schedules() == [other]


async def test_times_that_come_twice_are_still_the_same(store: Store) -> None:
    """Compared as objects, times in two zones are never equal there."""
    ambiguous = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    was = entry(0, Schedule(at=ambiguous), next_due=later(2), occurrences=1)
    await with_schedules(store, was)
    again = replace(was, occurrences=0, next_due=later(9))
    await store.update_workflow(text(source="# 2", schedules=(again,)), at=NOW)
    (found,) = await store.list_schedules()
    assert (found.next_due, found.occurrences) == (later(2), 1)


async def test_schedules_go_with_what_they_are_of(store: Store) -> None:
    await with_schedules(store, entry(0))
    await with_schedules(store, entry(0, workflow="other"), workflow="other")
    bound, _ = await store.create_schedule(reminder("a", workflow="backup"))
    await store.set_enabled("backup", False, at=NOW)
    assert await names(store) == [bound.id, "backup/0", "other/0"]
    assert await names(store, workflow="backup") == [bound.id, "backup/0"]
    await store.update_workflow(text("other", source="# 2"), at=NOW)
    assert await names(store) == [bound.id, "backup/0"]
    await store.delete_workflow("backup", at=NOW)
    assert await names(store) == [bound.id]


async def test_users_of_a_job_keep_theirs(store: Store) -> None:
    job = text("copy", kind=DefinitionKind.JOB)
    await store.create_workflow(job, at=NOW)
    was = entry(0, HOURLY, occurrences=3)
    await with_schedules(store, was, uses=frozenset(("copy",)))
    user = text(
        uses=frozenset(("copy",)),
        parsed={"steps": 2},
        schedules=(entry(0, HOURLY, next_due=later(9)), entry(1, DAILY)),
    )
    changed = replace(job, source="# 2")
    await store.update_workflow(changed, at=NOW, also=[user])
    assert await store.list_schedules() == [was, entry(1, DAILY)]
    with pytest.raises(ConflictError):
        await store.update_workflow(
            replace(job, source="# 3"),
            at=NOW,
            also=[replace(user, schedules=(), expected_version=9)],
        )
    assert len(await store.list_schedules()) == 2


async def test_a_repeated_request_stores_none_anew(store: Store) -> None:
    await store.create_workflow(text(schedules=(entry(0),)), at=NOW, request=request())
    await store.update_workflow(text(source="# 2"), at=NOW)
    await store.create_workflow(text(schedules=(entry(0),)), at=NOW, request=request())
    assert await store.list_schedules() == []


# -- what is due


async def test_what_is_due_by_its_alarm(store: Store) -> None:
    assert await store.earliest_alarm() is None
    assert await store.due_schedules(later(1000)) == []
    jittery = Schedule(every=60, jitter=50)
    entries = [
        entry(0, next_due=later(30)),
        entry(1, jittery, next_due=later(10)),
        entry(2, next_due=None),
        entry(3, next_due=later(31)),
    ]
    await with_schedules(store, *entries)
    alarm = entries[1].alarm
    assert alarm is not None
    assert alarm > later(10)
    assert await store.earliest_alarm() == min(alarm, later(30))
    by_alarm = sorted(
        (each for each in entries if each.alarm is not None),
        key=lambda each: each.alarm or NOW,
    )
    assert await store.due_schedules(later(1000)) == by_alarm
    assert await store.due_schedules(later(1000), limit=2) == by_alarm[:2]
    assert await store.due_schedules(alarm - timedelta(microseconds=1), limit=9) == [
        each for each in by_alarm if each.alarm is not None and each.alarm < alarm
    ]
    assert entries[1] in await store.due_schedules(alarm)


async def test_what_is_due_in_pages_and_from_some_time_on(store: Store) -> None:
    entries = [entry(n, next_due=later(at)) for n, at in enumerate((30, 10, 20, 20))]
    await with_schedules(store, *entries)
    by_alarm = [entries[1], entries[2], entries[3], entries[0]]
    assert await store.due_schedules(later(25), since=later(20)) == by_alarm[1:3]
    assert await store.due_schedules(later(99), after=(later(20), entries[2].id)) == by_alarm[2:]
    assert await store.due_schedules(later(20), after=(later(10), entries[1].id), limit=1) == [by_alarm[1]]
    assert await store.earliest_alarm(after=later(10)) == later(20)
    assert await store.earliest_alarm(after=later(30)) is None


async def test_those_that_are_due_when_the_daemon_starts(store: Store) -> None:
    await with_schedules(store, *(entry(place, Schedule(cron="@reboot"), next_due=None) for place in range(3)))
    await with_schedules(store, entry(0, workflow="other"), workflow="other")
    found = await store.start_schedules()
    assert [each.id for each in found] == ["backup/0", "backup/1", "backup/2"]
    assert await store.start_schedules(after="backup/0", limit=1) == [found[1]]
    # They always have something to come.
    assert await names(store, workflow="backup") == [each.id for each in found]
    assert await store.due_schedules(later(1_000_000)) == [entry(0, workflow="other")]


async def test_lists_are_walked(store: Store) -> None:
    for workflow in "ab":
        await with_schedules(store, *(entry(place, workflow=workflow) for place in range(3)), workflow=workflow)
    everything = ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]
    assert await names(store) == everything
    assert await names(store, limit=4) == everything[:4]
    assert await names(store, after="a/2") == everything[3:]
    assert await names(store, workflow="b", after="b/0", limit=1) == ["b/1"]
    assert await names(store, workflow="c") == []
    assert "6 schedules" in (await store.inspect()).facts


# -- of subjects


async def test_a_schedule_of_a_subject(store: Store) -> None:
    made = reminder("ticket-7", spec=FULL, dedupe_key="first", caller="uid:7")
    assert await store.create_schedule(made) == (made, True)
    assert await store.get_schedule(made.id) == made
    assert await store.list_schedules(subject="ticket-7") == [made]
    assert await store.list_schedules(subject="ticket-8") == []
    assert await store.list_schedules(subject="ticket-7", workflow="backup") == []
    assert await store.earliest_alarm() == made.alarm
    with pytest.raises(ValueError, match="has no subject"):
        await store.create_schedule(entry(0))


async def test_a_dedupe_key_stands_for_one_active_schedule(store: Store) -> None:
    first = reminder("a", dedupe_key="k")
    assert await store.create_schedule(first) == (first, True)
    assert await store.create_schedule(reminder("a", dedupe_key="k")) == (first, False)
    for other in (reminder("b", dedupe_key="k"), reminder("a", dedupe_key="l")):
        assert await store.create_schedule(other) == (other, True)
    for _ in range(2):
        assert (await store.create_schedule(reminder("a")))[1]
    await store.cancel_schedule(first.id, at=later(1))
    over = reminder("a", dedupe_key="k", next_due=None)
    assert await store.create_schedule(over) == (over, True)
    # That one has nothing to come any more.
    assert (await store.create_schedule(reminder("a", dedupe_key="k")))[1]


async def test_a_repeated_request_is_the_same_schedule(store: Store) -> None:
    first = reminder("a", dedupe_key="k")
    assert await store.schedule_of_request(request()) is None
    assert await store.create_schedule(first, request=request()) == (first, True)
    # It is as new to whoever asks again as it was to whoever asked.
    assert await store.create_schedule(reminder("a"), request=request()) == (first, True)
    assert await store.schedule_of_request(request()) == (first, True)
    # What was answered because of a dedupe key is remembered too, and told as it is now.
    again = request("r-2")
    assert await store.create_schedule(reminder("a", dedupe_key="k"), request=again) == (
        first,
        False,
    )
    gone = await store.cancel_schedule(first.id, at=later(1))
    assert gone is not None
    assert await store.create_schedule(reminder("a", dedupe_key="k"), request=again) == (
        gone,
        False,
    )
    assert await store.schedule_of_request(again) == (gone, False)
    with pytest.raises(RequestReusedError):
        await store.create_schedule(reminder("a"), request=request(digest="other"))


async def test_of_two_with_the_same_key_one_is_made(stores: list[Store]) -> None:
    made = await asyncio.gather(*(stores[n % 2].create_schedule(reminder("a", dedupe_key="k")) for n in range(6)))
    assert sum(new for _, new in made) == 1
    assert len({found.id for found, _ in made}) == 1


async def test_cancelling(store: Store) -> None:
    await with_schedules(store, entry(0))
    made, _ = await store.create_schedule(reminder("a", next_due=later(-5)))
    gone = replace(made, cancelled_at=later(1))
    assert await store.due_schedules(NOW) == [made]
    assert await store.cancel_schedule(made.id, at=later(1)) == gone
    assert await store.cancel_schedule(made.id, at=later(2)) == gone
    assert await store.due_schedules(NOW) == []
    assert await store.earliest_alarm() == entry(0).alarm
    assert await store.list_schedules(subject="a") == []
    assert await store.list_schedules(subject="a", active_only=False) == [gone]
    # One that is over stays as it is; those of definitions are not for it.
    over, _ = await store.create_schedule(reminder("a", next_due=None))
    assert await store.cancel_schedule(over.id, at=later(1)) == over
    assert await store.cancel_schedule("backup/0", at=later(1)) is None
    assert await store.cancel_schedule("nope", at=later(1)) is None
    assert await store.get_schedule("backup/0") == entry(0)


async def test_cancelling_all_of_a_subject(store: Store) -> None:
    await with_schedules(store, entry(0))
    made: list[ScheduleEntry] = []
    for subject in "aaab":
        made.append((await store.create_schedule(reminder(subject)))[0])
    await store.cancel_schedule(made[0].id, at=later(1))
    assert await store.cancel_by_subject("a", at=later(2)) == 2
    assert await store.cancel_by_subject("a", at=later(3)) == 0
    assert await store.cancel_by_subject("", at=later(3)) == 0
    found = await store.list_schedules(subject="a", active_only=False)
    assert [each.cancelled_at for each in found] == [later(1), later(2), later(2)]
    assert await store.list_schedules() == [made[3], entry(0)]


async def test_those_that_are_over_are_forgotten(store: Store) -> None:
    await with_schedules(store, entry(0, next_due=None, stored_at=later(-900)))
    made: dict[str, ScheduleEntry] = {}
    kinds: dict[str, dict[str, Any]] = {
        "active": {},
        "starting": {"spec": Schedule(cron="@reboot"), "next_due": None},
        "cancelled": {},
        "cancelled lately": {},
        "over": {"next_due": None},
        "over lately": {"next_due": None, "stored_at": later(-100)},
    }
    for subject, changes in kinds.items():
        new = reminder(subject, **({"stored_at": later(-900)} | changes))
        made[subject], _ = await store.create_schedule(new)
    for subject, due_at, late in (("fired", -800, 0), ("due lately", -100, 0), ("late", -800, 700)):
        due, _ = await store.create_schedule(reminder(subject, stored_at=later(-900), next_due=later(due_at)))
        told = line(due, later(due_at), FireOutcome.FIRED, at=later(due_at + late))
        made[subject] = replace(due, next_due=None, occurrences=1)
        assert await store.fire(Firing(before=due, after=made[subject], fires=(told,)))
    await store.cancel_schedule(made["cancelled"].id, at=later(-501))
    await store.cancel_schedule(made["cancelled lately"].id, at=later(-500))

    assert await store.forget_schedules(later(-500)) == 3
    assert await store.forget_schedules(later(-500)) == 0
    left = await store.list_schedules(active_only=False)
    gone = made.keys() - {each.subject for each in left}
    assert gone == {"cancelled", "over", "fired"}
    # What became of their due times stays, and so do schedules of definitions.
    assert len(await store.fires()) == 3
    assert "backup/0" in {each.id for each in left}


async def test_forgetting_many(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several transactions, so that other writers do not wait long."""
    query = schedules._FIND_OVER.limit(2)
    monkeypatch.setattr(schedules, "_FIND_OVER", query)
    for _ in range(5):
        await sql_store.create_schedule(reminder("a", next_due=None))
    assert await sql_store.forget_schedules(later(1)) == 5
    assert await sql_store.list_schedules(active_only=False) == []


async def test_schedules_are_there_after_a_restart(new_store: NewStore) -> None:
    store = await new_store()
    await with_workflow(store, "plain")
    await with_schedules(store, entry(0))
    made, _ = await store.create_schedule(reminder("a"))
    await store.close()
    again = await new_store()
    assert await again.list_schedules() == [made, entry(0)]
    assert entry(0).stored_at.tzinfo is UTC


async def test_those_of_subjects_alone(store: Store) -> None:
    await with_schedules(store, entry(0), entry(1))
    first, _ = await store.create_schedule(reminder("a", id="a", workflow="backup"))
    last, _ = await store.create_schedule(reminder("c", id="c"))
    assert await names(store) == ["a", "backup/0", "backup/1", "c"]
    assert await store.list_schedules(of_subjects=True) == [first, last]
    assert await names(store, of_subjects=True, workflow="backup") == ["a"]
    assert await names(store, of_subjects=True, after="a", limit=1) == ["c"]


async def test_a_renewed_schedule_has_another_rule_and_due_time(store: Store) -> None:
    before = entry(0, Schedule(cron="0 9 * * *", calendar={"country": "jp", "data": "1"}, business_day="only"))
    await with_schedules(store, before, entry(1))
    assert await store.list_schedules(with_calendar=True) == [before]
    calendar = {"country": "jp", "data": "2"}
    after = replace(before, spec=replace(before.spec, calendar=calendar), next_due=later(3600))
    assert await store.renew_schedule(before, after)
    assert await store.list_schedules() == [after, entry(1)]
    assert await store.earliest_alarm(after=later(60)) == later(3600)
    # What was decided or changed meanwhile stays.
    assert not await store.renew_schedule(before, replace(after, next_due=later(7200)))
    assert not await store.renew_schedule(replace(after, occurrences=3), replace(after, next_due=later(7200)))
    assert await store.list_schedules() == [after, entry(1)]


async def test_the_data_of_a_calendar_alone_makes_no_other_schedule(store: Store) -> None:
    calendar = {"country": "jp", "data": "1"}
    spec = Schedule(cron="0 9 * * *", calendar=calendar, business_day="only")
    stored = entry(0, spec, occurrences=3)
    await with_schedules(store, stored)
    newer = entry(0, replace(spec, calendar=calendar | {"data": "2"}), stored_at=later(60))
    await store.update_workflow(text(source="# 2", schedules=(newer,)), at=later(60))
    assert await store.list_schedules() == [stored]
    other = replace(newer, spec=replace(spec, calendar={"country": "us", "data": "2"}))
    await store.update_workflow(text(source="# 3", schedules=(other,)), at=later(60))
    assert await store.list_schedules() == [other]
