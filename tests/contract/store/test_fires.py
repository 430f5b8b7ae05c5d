"""Firing a schedule, and the ledger of its due times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from contract.builders import (
    NOW,
    ended,
    finished,
    later,
    launched,
    new_id,
    new_run,
    request,
    save,
    stored_run,
    text,
    with_workflow,
)
from contract.scheduled import (
    MINUTE,
    MINUTELY,
    entry,
    firing,
    line,
    reminder,
    started,
    with_schedules,
)
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run, RunState, Trigger
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.ports import ActiveRunError, Fired, Firing, RunGoneError, Store, StoreError
from toband.store import SqlStore
from toband.store.rows import fire_ledger

CAUGHT_UP, FIRED = FireOutcome.CAUGHT_UP, FireOutcome.FIRED
MISSED, SKIPPED = FireOutcome.MISSED, FireOutcome.SKIPPED


def keys(lines: Sequence[Fire]) -> list[tuple[str, float]]:
    return [(each.schedule_id, (each.due_at - NOW).total_seconds()) for each in lines]


async def test_what_was_decided_ahead_of_the_clock(store: Store) -> None:
    """It was decided at a clock that is right again."""
    going_on, over = entry(0), entry(1)
    await with_schedules(store, going_on, over)
    assert await store.decided_ahead(NOW) == (0, None)
    lines = (line(going_on, later(60), SKIPPED), line(going_on, later(120), SKIPPED))
    await store.fire(firing(going_on, lines=lines, at_most=None))
    what = firing(over, lines=(line(over, later(60), SKIPPED),), at_most=None)
    await store.fire(replace(what, after=replace(what.after, next_due=None)))
    assert await store.decided_ahead(NOW) == (1, later(120))
    assert await store.decided_ahead(later(120)) == (0, None)


# -- firing


async def test_a_run_its_line_and_the_schedule(store: Store) -> None:
    due = entry(0, replace(MINUTELY, jitter=20), next_due=later(60))
    await with_schedules(store, due)
    one, run = started(due, later(60), missed=(later(-60), later(0)))
    what = firing(due, (one, run), at_most=1)
    fired = await store.fire(what)
    made = replace(run, number=1)
    assert fired == Fired(runs=(made,))
    assert await store.fires() == [one]
    assert await store.get_schedule(due.id) == what.after
    assert await store.earliest_alarm() == what.after.alarm
    stored = await store.get_run(run.id)
    assert stored == made
    assert stored is not None
    assert (stored.trigger, stored.schedule, stored.scheduled_at, stored.missed) == (
        Trigger.SCHEDULE,
        "backup/0",
        later(60),
        (later(-60), later(0)),
    )
    # What a run knows of its schedule never changes, and history tells it too.
    moved = await save(store, stored, launched(stored, "s0"))
    (told,) = await store.history(run.id)
    assert (told.run.schedule, told.run.scheduled_at, told.run.missed) == (
        "backup/0",
        later(60),
        moved.missed,
    )
    assert (await store.list_runs())[0].missed == moved.missed


async def test_lines_without_runs(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    lines = (
        line(due, later(60), MISSED, reason=NotStarted(NotStartedReason.MISFIRE_SKIP, "no\0body"), more=1 << 40),
        line(due, later(120), SKIPPED, reason=NotStarted(NotStartedReason.DISABLED)),
    )
    what = firing(due, lines=lines, at_most=None)
    assert await store.fire(what) == Fired(runs=())
    assert await store.fires() == [
        lines[1],
        replace(lines[0], reason=NotStarted(NotStartedReason.MISFIRE_SKIP, "no\ufffdbody")),
    ]
    assert await store.get_schedule(due.id) == what.after


async def test_a_schedule_that_is_over(store: Store) -> None:
    due = entry(0, Schedule(at=later(60)))
    await with_schedules(store, due)
    over = replace(due, next_due=None, occurrences=1)
    one, run = started(due, later(60))
    fired = await store.fire(Firing(before=due, after=over, runs=((one, run, None),)))
    assert fired is not None
    assert await store.earliest_alarm() is None
    assert await store.list_schedules() == []
    assert await store.get_schedule(due.id) == over


async def test_one_that_is_due_when_the_daemon_starts(store: Store) -> None:
    due = entry(0, Schedule(cron="@reboot"), next_due=None)
    await with_schedules(store, due)
    one, run = started(due, later(5))
    what = Firing(before=due, after=replace(due, occurrences=1), runs=((one, run, 1),))
    assert await store.fire(what) is not None
    assert await store.fire(what) is None
    assert await store.start_schedules() == [what.after]


async def test_whoever_comes_late_writes_nothing(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    assert await store.fire(firing(due, started(due, later(60)), at_most=None)) is not None
    now = await store.get_schedule(due.id)
    assert now is not None
    for stale in (
        due,
        replace(now, occurrences=7),
        replace(now, next_due=later(61)),
        replace(now, stored_at=later(1)),
        replace(now, zone="Asia/Tokyo"),
        replace(now, spec=Schedule(every=61.0)),
        entry(9),
    ):
        late = firing(stale, started(stale, later(9000)), at_most=None)
        assert await store.fire(late) is None
    assert len(await store.list_runs()) == len(await store.fires()) == 1
    assert await store.get_schedule(due.id) == now
    await store.update_workflow(text(source="# 2"), at=NOW)
    assert await store.fire(firing(now, started(now, later(9000)), at_most=None)) is None


async def test_one_that_was_cancelled_does_not_fire(store: Store) -> None:
    await with_workflow(store)
    made, _ = await store.create_schedule(reminder("a", workflow="backup"))
    gone = await store.cancel_schedule(made.id, at=later(1))
    assert gone is not None
    for before in (made, gone):
        assert await store.fire(firing(before, started(before, later(90)), at_most=None)) is None
    assert await store.list_runs() == []


async def test_a_run_that_is_active_is_in_the_way(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    active = await stored_run(store)
    one, run = started(due, later(120), missed=(later(60),))
    # What the run stands for shares its fate.
    stood_for = line(due, later(60), CAUGHT_UP, run_id=run.id)
    what = firing(due, (one, run), lines=(stood_for,), at_most=1)
    fired = await store.fire(what)
    reason = NotStarted(NotStartedReason.OVERLAP, f"run {active.name} is active")
    skipped = [replace(each, outcome=SKIPPED, reason=reason, run_id="") for each in (one, stood_for)]
    assert fired == Fired(runs=(), skipped=tuple(skipped))
    assert await store.fires() == skipped
    assert [each.id for each in await store.list_runs()] == [active.id]
    assert await store.get_schedule(due.id) == what.after
    # Once it is over there is a place again.
    run = await save(store, active, launched(active, "s0"))
    run = await save(store, run, ended(run, "s0"))
    await save(store, run, finished(run))
    fired = await store.fire(firing(what.after, started(due, later(180)), at_most=1))
    assert fired is not None
    assert [each.number for each in fired.runs] == [2]


async def test_of_several_runs_as_many_as_there_is_place_for(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    pairs = [started(due, later(60 * place)) for place in range(1, 5)]
    fired = await store.fire(firing(due, *pairs, at_most=3))
    assert fired is not None
    assert [(run.id, run.number) for run in fired.runs] == [
        (run.id, number) for number, (_, run) in enumerate(pairs[:3], 1)
    ]
    assert keys(fired.skipped) == [("backup/0", 240.0)]
    assert fired.skipped[0].reason == NotStarted(NotStartedReason.OVERLAP, f"run {fired.runs[0].name} is active")
    assert [each.outcome for each in await store.fires()] == [SKIPPED, FIRED, FIRED, FIRED]


async def test_nothing_runs_twice_for_the_same_due_time(store: Store) -> None:
    """The workflow was made anew after the clock had been set back."""
    due = entry(0)
    await with_schedules(store, due)
    first = started(due, later(60))
    assert await store.fire(firing(due, first, at_most=None)) is not None
    await store.update_workflow(text(source="# 2"), at=NOW)
    anew = replace(due, stored_at=later(-30))
    await store.update_workflow(text(source="# 3", schedules=(anew,)), at=NOW)
    again, other = started(anew, later(60), version=2), started(anew, later(120), version=2)
    stood_for = line(anew, later(0), CAUGHT_UP, run_id=again[1].id)
    fired = await store.fire(firing(anew, again, other, lines=(stood_for,), at_most=None))
    assert fired is not None
    assert [run.id for run in fired.runs] == [other[1].id]
    assert fired.repeated == (again[0],)
    assert keys(fired.skipped) == [("backup/0", 0.0)]
    assert fired.skipped[0].reason == NotStarted(NotStartedReason.DECIDED_BEFORE)
    assert await store.fires() == [other[0], first[0], *fired.skipped]
    assert await store.get_schedule(due.id) == replace(anew, next_due=later(60) + 3 * MINUTE, occurrences=3)


async def test_a_due_time_that_is_told_twice_has_one_line(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    one = line(due, later(60), SKIPPED, reason=NotStarted(NotStartedReason.OTHER, "first"))
    fired = await store.fire(
        firing(due, lines=(one, replace(one, reason=NotStarted(NotStartedReason.OTHER, "x"))), at_most=None)
    )
    assert fired == Fired(runs=(), repeated=(replace(one, reason=NotStarted(NotStartedReason.OTHER, "x")),))
    assert await store.fires() == [one]


async def test_what_is_not_of_one_schedule_is_refused(store: Store) -> None:
    due, other = entry(0), entry(1)
    await with_schedules(store, due, other)
    for wrong in (
        Firing(before=due, after=other),
        Firing(before=due, after=due, fires=(line(other, later(60), MISSED),)),
        Firing(before=due, after=due, runs=((*started(other, later(60)), None),)),
    ):
        with pytest.raises(ValueError, match="cannot fire backup/0"):
            await store.fire(wrong)


async def test_a_run_that_cannot_be_stored_takes_all_back(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    for wrong, error in (({"version": 9}, StoreError), ({"from_run": new_id()}, RunGoneError)):
        pairs = (started(due, later(60)), started(due, later(120), **wrong))
        with pytest.raises(error):
            await store.fire(firing(due, *pairs, at_most=None))
    assert await store.fires() == []
    assert await store.list_runs() == []
    assert await store.get_schedule(due.id) == due


async def test_of_many_who_fire_one_gets_through(stores: list[Store]) -> None:
    due = entry(0)
    await with_schedules(stores[0], due)
    results = await asyncio.gather(
        *(stores[n % 2].fire(firing(due, started(due, later(60)), at_most=None)) for n in range(8))
    )
    assert sum(result is not None for result in results) == 1
    assert len(await stores[0].fires()) == len(await stores[0].list_runs()) == 1


async def test_many_fire_at_once(store: Store) -> None:
    """They share commits, and each has its own answer."""
    entries = [entry(place) for place in range(40)]
    await with_schedules(store, *entries)
    pairs = [started(each, later(60)) for each in entries]
    results = await asyncio.gather(
        *(store.fire(firing(each, pair, at_most=None)) for each, pair in zip(entries, pairs, strict=True))
    )
    made = [run for result in results if result is not None for run in result.runs]
    assert [run.id for run in made] == [run.id for _, run in pairs]
    assert sorted(run.number for run in made) == list(range(1, 41))
    assert len(await store.fires()) == 40


async def test_a_commit_that_fails_leaves_nothing(store: Store, arm: Callable[[str], None]) -> None:
    due = entry(0)
    await with_schedules(store, due)
    arm("store.before_commit=EIO")
    with pytest.raises(StoreError):
        await store.fire(firing(due, started(due, later(60)), at_most=None))
    arm("")
    assert await store.fires() == []
    assert await store.fire(firing(due, started(due, later(60)), at_most=None)) is not None


# -- the ledger


async def told(store: Store, of: ScheduleEntry, count: int) -> list[Fire]:
    """So many lines from a minute after NOW on, oldest first."""
    assert of.next_due is not None
    lines = [line(of, of.next_due + place * MINUTE, MISSED) for place in range(count)]
    assert await store.fire(firing(of, lines=tuple(lines), at_most=None)) is not None
    return lines


async def test_lines_are_told_newest_first(store: Store) -> None:
    await with_schedules(store, entry(0), entry(1))
    await with_schedules(store, entry(0, workflow="other"), workflow="other")
    lines = [each for of in (entry(0), entry(1), entry(0, workflow="other")) for each in await told(store, of, 3)]
    newest = sorted(lines, key=lambda each: (each.due_at, each.schedule_id), reverse=True)
    own = [each for each in newest if each.workflow == "backup"]

    assert await store.fires() == newest
    assert await store.fires(limit=4) == newest[:4]
    assert await store.fires(workflow="backup") == own
    assert await store.fires(schedule_id="backup/1") == own[::2]
    assert await store.fires(schedule_id="backup/1", workflow="other") == []
    assert await store.fires(workflow="nope") == []
    # Between two times, without them.
    assert await store.fires(before=later(180), after=later(60)) == newest[3:6]
    assert await store.fires(workflow="backup", before=later(121)) == own[2:]
    assert await store.fires(schedule_id="backup/0", after=later(119)) == own[1:4:2]
    # A page that ends among lines with the same due time is followed by the rest of them.
    walked: list[Fire] = []
    page = await store.fires(workflow="backup", limit=1)
    while page:
        walked += page
        last = page[-1]
        page = await store.fires(workflow="backup", before=last.due_at, before_schedule=last.schedule_id, limit=1)
    assert walked == own


async def test_lines_outlive_schedule_and_run(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    one, run = started(due, later(60))
    await store.fire(firing(due, (one, run), at_most=None))
    stored = await store.get_run(run.id)
    assert stored is not None
    moved = await save(store, stored, launched(stored, "s0"))
    moved = await save(store, moved, ended(moved, "s0"))
    await save(store, moved, finished(moved))
    last, _ = await store.create_run(new_run(), max_active=None)
    await store.delete_runs([run.id])
    moved = await save(store, last, launched(last, "s0"))
    await save(store, moved, finished(ended(moved, "s0")))
    await store.delete_workflow("backup", at=NOW)
    assert await store.fires(workflow="backup") == [one]


async def test_forgetting(sql_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await with_schedules(sql_store, entry(0), entry(1))
    many = await told(sql_store, entry(0), 9)
    few = await told(sql_store, entry(1), 4)
    removed: list[int] = []
    remove = fire_ledger.SqlFires._remove_lines

    async def counted(store: fire_ledger.SqlFires, lines: Sequence[fire_ledger.Key]) -> int:
        removed.append(len(lines))
        return await remove(store, lines)

    monkeypatch.setattr(fire_ledger.SqlFires, "_remove_lines", counted)
    assert await sql_store.forget_fires(many[1].due_at, 4) == 5 + 1
    assert await sql_store.fires(schedule_id="backup/0") == many[:4:-1]
    assert await sql_store.fires(schedule_id="backup/1") == few[:0:-1]
    assert removed == [2, 4]
    assert await sql_store.forget_fires(NOW - timedelta(days=90), 4) == 0
    assert await sql_store.forget_fires(later(1_000_000), 4) == 4 + 3
    assert await sql_store.fires() == []


async def test_forgetting_much_takes_several_transactions(store: Store) -> None:
    due = entry(0)
    await with_schedules(store, due)
    count = fire_ledger.FORGET_AT_ONCE + 5
    lines = await told(store, due, count)
    assert await store.forget_fires(NOW, 2) == count - 2
    assert await store.fires() == lines[: count - 3 : -1]


# -- backfill


def backfilled(of: ScheduleEntry, seconds: float) -> tuple[Fire, Run]:
    run = new_run(of.workflow, trigger=Trigger.BACKFILL, schedule=of.id, scheduled_at=later(seconds))
    return line(of, later(seconds), CAUGHT_UP, run_id=run.id), run


async def test_a_due_time_without_a_run_of_its_own_gets_one_once(store: Store) -> None:
    of = entry(next_due=later(300))
    await with_schedules(store, of)
    shared, own = started(of, later(120), missed=(later(60),))
    lines = (line(of, later(60), CAUGHT_UP, run_id=own.id), line(of, later(180), MISSED))
    await store.fire(firing(of, (shared, own), lines=lines, at_most=None))
    assert await store.own_runs(of.id, NOW, later(300)) == {later(120): own.id}
    made = {}
    for seconds in (-60, 60, 120, 180):
        fire, run = backfilled(of, seconds)
        run_id, new = await store.backfill(fire, run, again=False)
        assert (new is None) == (seconds == 120)
        assert run_id == (own.id if seconds == 120 else run.id)
        made[later(seconds)] = run_id
    assert await store.own_runs(of.id, later(-60), later(180)) == made
    assert await store.own_runs(of.id, later(60), later(120)) == {
        at: run_id for at, run_id in made.items() if later(60) <= at <= later(120)
    }
    fires = await store.fires(schedule_id=of.id)
    assert [(fire.due_at, fire.run_id) for fire in fires] == sorted(made.items(), reverse=True)
    # Again: nothing is stored.
    fire, run = backfilled(of, 60)
    assert await store.backfill(fire, run, again=False) == (made[later(60)], None)
    assert await store.get_run(run.id) is None


async def test_a_backfill_that_is_asked_for_again_has_further_runs_and_each_request_one(store: Store) -> None:
    of = entry(next_due=later(300))
    await with_schedules(store, of)
    fire, run = backfilled(of, 60)
    assert (await store.backfill(fire, run, again=True, request=request("r 0")))[1] is not None
    other_fire, other = backfilled(of, 60)
    assert await store.backfill(other_fire, other, again=True, request=request("r 0")) == (run.id, None)
    run_id, new = await store.backfill(other_fire, other, again=True, request=request("r 1"))
    assert (run_id, new) == (other.id, replace(other, number=2))
    # The first run stays the one of the due time.
    assert await store.own_runs(of.id, NOW, later(300)) == {later(60): run.id}


async def test_runs_of_a_backfill_are_not_in_the_way(store: Store) -> None:
    of = entry(next_due=later(300))
    await with_schedules(store, of)
    fire, run = backfilled(of, 60)
    _, stored = await store.backfill(fire, run, again=False)
    assert stored is not None
    await save(store, stored, replace(stored, state=RunState.RUNNING, sequence=stored.sequence + 1))
    _, is_new = await store.create_run(new_run(of.workflow), max_active=1)
    assert is_new
    with pytest.raises(ActiveRunError):
        await store.create_run(new_run(of.workflow), max_active=1)
