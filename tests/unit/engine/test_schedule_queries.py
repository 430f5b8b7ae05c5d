"""When workflows are due next, and explanations of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contract.builders import text
from doubles.clock import Clock
from doubles.locks import run_locks
from toban.definition.timing.schedule_spec import Schedule
from toband.domain.emitted_events import Emitted, EventRun, EventRunOutcome, EventSource, EventState
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.drain import DrainMode
from toband.engine.errors import ZoneGoneError
from toband.engine.schedules.active_blackouts import ActiveBlackouts
from toband.engine.schedules.due_times import jitter_by
from toband.engine.schedules.schedule_queries import ScheduleQueries
from toband.ports import EventResolution, Firing
from toband.store import SqlStore

NOW = datetime(2026, 3, 2, 12, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hour: int, day: int = 2) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


def entry(spec: Schedule, next_due: datetime | None, index: int = 0, **more: Any) -> ScheduleEntry:
    made = ScheduleEntry(
        id=f"w/{index}",
        workflow="w",
        index=index,
        spec=spec,
        zone="UTC",
        stored_at=NOW - timedelta(days=1),
        next_due=next_due,
    )
    return replace(made, **more)


async def outlook(store: SqlStore, *entries: ScheduleEntry, blackout: Sequence[str] = ()) -> ScheduleQueries:
    """Of the workflow `w`, which has these schedules now and no others."""
    await store.delete_workflow("w", at=NOW)
    own = tuple(each for each in entries if not each.subject)
    await store.create_workflow(text("w", parsed={"blackout": blackout}, schedules=own), at=NOW)
    for each in entries:
        if each.subject:
            await store.create_schedule(each)
    return ScheduleQueries(
        store=store,
        clock=Clock(NOW),
        blackouts=ActiveBlackouts((), "UTC"),
        draining=DrainMode(),
        locks=run_locks().table,
    )


async def write(store: SqlStore, *lines: Fire) -> None:
    """Writes lines into the ledger."""
    for schedule_id in {line.schedule_id for line in lines}:
        of = await store.get_schedule(schedule_id)
        assert of is not None
        found = tuple(line for line in lines if line.schedule_id == schedule_id)
        assert await store.fire(Firing(before=of, after=of, fires=found)) is not None


HOURLY = Schedule(cron="0 * * * *")


async def due(found: ScheduleQueries, count: int = 3, start: datetime | None = None) -> list[datetime]:
    return [each.due for each in await found.preview("w", count, start)]


async def test_times_of_all_schedules_in_order(store: SqlStore) -> None:
    halves = entry(Schedule(cron="30 * * * *"), NOW + timedelta(minutes=20), 1)
    bound = entry(Schedule(at=at(13) + HOUR / 4), at(13) + HOUR / 4, id="0-bound", subject="s")
    found = await due(await outlook(store, entry(HOURLY, at(13)), halves, bound), 4)
    assert found == [at(12) + HOUR / 2, at(13), at(13) + HOUR / 4, at(13) + HOUR / 2]


async def test_what_was_decided_before_the_clock_was_put_right_does_not_come_again(store: SqlStore) -> None:
    ahead = await outlook(store, entry(HOURLY, at(18)))
    assert await due(ahead, 2) == [at(18), at(19)]
    explained = await ahead.explain("w")
    assert explained.after == at(18)
    assert explained.sentences[-1] == "It is due next at 2026-03-02 18:00:00 UTC."
    asked = await ahead.explain("w", at(15))
    assert asked.sentences[0] == "It is not scheduled at 2026-03-02 15:00:00 UTC."
    assert asked.after == at(18)


async def test_a_limit_is_counted_from_what_is_due_next(store: SqlStore) -> None:
    limited = entry(replace(HOURLY, max_occurrences=5), at(13), occurrences=2)
    assert await due(await outlook(store, limited), 10) == [at(13), at(14), at(15)]
    assert await due(await outlook(store, limited), 10, at(13)) == [at(14), at(15)]
    assert await due(await outlook(store, limited), 10, datetime(2030, 1, 1, tzinfo=UTC)) == []


async def test_nothing_is_shown_from_before_what_is_due_next(store: SqlStore) -> None:
    assert await due(await outlook(store, entry(HOURLY, at(13))), 1, at(0, day=1)) == [at(13)]


async def test_one_that_waits_for_its_jitter_is_still_to_come(store: SqlStore) -> None:
    waiting = entry(replace(HOURLY, jitter=7200.0), at(12))
    jitter = jitter_by(waiting)
    assert jitter > timedelta(minutes=10)
    (first, *_) = await (await outlook(store, waiting)).preview("w", 1)
    assert (first.due, first.at) == (at(12), at(12) + jitter)
    assert await due(await outlook(store, waiting), 1, NOW) == [at(13)]
    (said,) = (await (await outlook(store, waiting)).explain("w", at(12))).sentences
    assert said.startswith("It was due at 2026-03-02 12:00:00 UTC, its run ")


async def test_blackouts_are_marked_and_told(store: SqlStore) -> None:
    shut = await outlook(store, entry(HOURLY, at(13)), blackout=["0 13 * * */30m"])
    found = await shut.preview("w", 2)
    assert [each.blackout for each in found] == ["blackout until 2026-03-02T13:30:00+00:00", ""]
    assert (await shut.explain("w")).sentences[-1] == (
        "It is due next at 2026-03-02 13:00:00 UTC, but no run starts then: blackout until 2026-03-02T13:30:00+00:00."
    )


@pytest.mark.parametrize(
    ("window", "until"),
    [
        ("0 0 * * */24h", "blackout until further notice"),
        ("* * * * * */2s", "blackout until further notice"),
        ("* * 1-7 * */1m", "blackout until 2026-03-02T14:41:00+00:00 or longer"),
    ],
)
async def test_a_window_without_an_end_in_sight_says_so(store: SqlStore, window: str, until: str) -> None:
    (first,) = await (await outlook(store, entry(HOURLY, at(13)), blackout=[window])).preview("w", 1)
    assert first.blackout == until


async def test_a_time_to_come_is_told_with_those_around_it(store: SqlStore) -> None:
    hourly = await outlook(store, entry(HOURLY, at(13)))
    far = at(6, day=20)
    explained = await hourly.explain("w", far)
    assert explained.sentences == ("It is due then, at 2026-03-20 06:00:00 UTC.",)
    assert (explained.before, explained.after) == (far - HOUR, far + HOUR)
    between = await hourly.explain("w", far + HOUR / 2)
    assert between.sentences == (
        "It is not scheduled at 2026-03-20 06:30:00 UTC.",
        "The nearest due times are 2026-03-20 06:00:00 UTC and 2026-03-20 07:00:00 UTC.",
    )
    limited = await outlook(store, entry(replace(HOURLY, max_occurrences=3), at(13)))
    assert (await limited.explain("w", far)).sentences == (
        "It is not scheduled at 2026-03-20 06:00:00 UTC.",
        "The nearest due time is 2026-03-02 15:00:00 UTC.",
    )


async def test_the_ledger_knows_the_times_before(store: SqlStore) -> None:
    hourly = await outlook(store, entry(HOURLY, at(13)))
    await write(
        store,
        Fire(
            schedule_id="w/0",
            workflow="w",
            due_at=at(11),
            outcome=FireOutcome.FIRED,
            at=at(11),
            run_id="r1",
        ),
    )
    explained = await hourly.explain("w", NOW)
    assert (explained.before, explained.after) == (at(11), at(13))


async def test_a_schedule_that_has_run_out_is_not_denied(store: SqlStore) -> None:
    over = await outlook(store, entry(Schedule(at=datetime(2020, 1, 1, tzinfo=UTC)), None))
    (first, *_, last) = (await over.explain("w")).sentences
    assert first == "Was scheduled once at 2020-01-01 00:00+00:00 (UTC): that time has passed."
    assert last == "It will not be due again."
    assert await due(over) == []


async def test_a_zone_that_is_gone_is_named(store: SqlStore) -> None:
    lost = await outlook(store, entry(HOURLY, at(13), zone="No/Where"), entry(HOURLY, at(13), 1))
    with pytest.raises(ZoneGoneError, match='the time zone "No/Where" of schedule w/0 is not in'):
        await lost.preview("w", 3)
    sentences = (await lost.explain("w")).sentences
    assert any('"No/Where"' in sentence for sentence in sentences)
    assert sentences[-1] == "It is due next at 2026-03-02 13:00:00 UTC."
    assert (await lost.explain("w", at(13))).sentences[0].startswith("It is due then")


async def test_of_many_due_times_those_are_told_that_somebody_means(store: SqlStore) -> None:
    often = Schedule(cron="* * * * * *")
    seconds = await outlook(store, entry(often, at(13)), entry(often, at(13), 1))
    lines = [
        Fire(
            schedule_id=f"w/{index}",
            workflow="w",
            due_at=at(11) + timedelta(seconds=second),
            outcome=FireOutcome.FIRED,
            at=at(11) + timedelta(seconds=second),
            run_id="r1",
        )
        for second in range(0, 100, 2)
        for index in (0, 1)
    ]
    await write(store, *lines)
    asked = at(11) + timedelta(seconds=10)
    exact = await seconds.explain("w", asked)
    assert [fire.due_at for fire in exact.fires] == [asked, asked]
    nearest = await seconds.explain("w", asked + timedelta(seconds=1))
    assert [(fire.due_at - asked).total_seconds() for fire in nearest.fires] == [4, 2, 2, 0, 0]
    assert len(nearest.sentences) == 5


async def test_a_time_to_come_is_told_of_although_others_have_just_passed(store: SqlStore) -> None:
    often = await outlook(store, entry(Schedule(cron="*/2 * * * * *"), NOW + timedelta(seconds=2)))
    await write(
        store,
        Fire(
            schedule_id="w/0",
            workflow="w",
            due_at=NOW,
            outcome=FireOutcome.FIRED,
            at=NOW,
            run_id="r1",
        ),
    )
    (sentence,) = (await often.explain("w", NOW + timedelta(seconds=10))).sentences
    assert sentence.startswith("It is due then, at ")


async def test_what_a_schedule_of_a_subject_started_is_looked_up(store: SqlStore) -> None:
    """Also of one that is over, which tells the time on its own clocks."""
    over = entry(HOURLY, None, id="0-over", subject="s", zone="Asia/Tokyo")
    found = await outlook(store, over)
    line = Fire(
        schedule_id=over.id,
        workflow="w",
        due_at=at(11),
        outcome=FireOutcome.FIRED,
        at=at(11),
        event_id="e1",
    )
    skipped = EventRun(
        workflow="w", priority=0, outcome=EventRunOutcome.SKIPPED, reason=NotStarted(NotStartedReason.DISABLED)
    )
    await write(store, line, replace(line, due_at=at(10), event_id="gone"))
    await store.add_events(
        [
            Emitted(
                id="e1",
                type="SCHEDULE_TRIGGERED",
                payload={},
                at=at(11),
                source=EventSource.DAEMON,
            )
        ]
    )
    await store.resolve_event(EventResolution(event_id="e1", state=EventState.RESOLVED, at=at(11), skipped=(skipped,)))
    first, second = (await found.explain("w")).sentences
    assert first == ("It was due at 2026-03-02 20:00:00 JST; event e1 was emitted on time; not started: disabled.")
    assert second.endswith("event gone was emitted 1h late.")
