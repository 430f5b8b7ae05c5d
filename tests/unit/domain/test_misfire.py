"""Misfire decisions: due times that are on time, late, missed, or blocked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from toban.definition.timing.schedule_spec import Misfire, Schedule
from toband.domain import misfire
from toband.domain.misfire import (
    DECIDED_AT_ONCE,
    LINES_AT_ONCE,
    Circumstances,
    Decision,
    at_boot,
)
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.schedule_model import FireOutcome, ScheduleEntry, first_due

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
DISABLED = NotStarted(NotStartedReason.DISABLED)
BLACKOUT = NotStarted(NotStartedReason.BLACKOUT, "until 04:00")
HOUR = timedelta(hours=1)


def hourly(**spec: object) -> ScheduleEntry:
    """Due at one o'clock, and every hour from then on."""
    made = Schedule(cron="0 * * * *", **spec)  # type: ignore[arg-type]
    entry = ScheduleEntry(id="w/0", workflow="w", spec=made, zone="UTC", stored_at=MIDNIGHT, next_due=None)
    return first_due(entry, MIDNIGHT)


def decide(entry: ScheduleEntry, **given: object) -> Decision:
    """All of it, however many parts it has."""
    circumstances = Circumstances(**given)  # type: ignore[arg-type]
    decision = misfire.decide(entry, circumstances)
    while decision.carried is not None:
        decision = misfire.decide(decision.entry, circumstances, decision.carried)
    return decision


def hours(times: object) -> list[int]:
    return [at.hour for at in times]  # type: ignore[attr-defined]


def started(decision: Decision) -> list[tuple[int, str, list[int]]]:
    return [(s.due_at.hour, s.outcome.value, hours(s.missed)) for s in decision.starts]


def lines(decision: Decision) -> list[tuple[int, str]]:
    return [(fire.due_at.hour, fire.outcome.value) for fire in decision.fires]


def test_nothing_is_due_before_its_time() -> None:
    entry = hourly()
    decision = decide(entry, now=MIDNIGHT + HOUR - timedelta(seconds=1))
    assert decision == Decision(fires=(), starts=(), entry=entry)


def test_what_is_due_starts_and_the_next_is_known() -> None:
    decision = decide(hourly(), now=MIDNIGHT + HOUR)
    assert started(decision) == [(1, "FIRED", [])]
    assert decision.fires == ()
    assert decision.entry.next_due == MIDNIGHT + 2 * HOUR
    assert decision.entry.occurrences == 1


def test_a_little_late_is_on_time() -> None:
    late = decide(hourly(), now=MIDNIGHT + HOUR + timedelta(seconds=4))
    assert started(late) == [(1, "FIRED", [])]


def test_of_several_only_the_last_is_on_time() -> None:
    every_second = replace(hourly(), spec=Schedule(cron="* * * * * *"), next_due=MIDNIGHT)
    decision = decide(every_second, now=MIDNIGHT + timedelta(seconds=3))
    (start,) = decision.starts
    assert (start.due_at.second, start.outcome) == (3, FireOutcome.FIRED)
    assert [at.second for at in start.missed] == [0, 1, 2]


def test_missed_times_get_one_run_that_knows_them() -> None:
    decision = decide(hourly(misfire_grace=86400.0), now=MIDNIGHT + 4.5 * HOUR)
    assert started(decision) == [(4, "CAUGHT_UP", [1, 2, 3])]
    assert (lines(decision), decision.entry.occurrences) == ([], 4)


def test_the_run_that_is_due_stands_for_those_that_were_missed() -> None:
    decision = decide(hourly(misfire_grace=86400.0), now=MIDNIGHT + 4 * HOUR)
    assert started(decision) == [(4, "FIRED", [1, 2, 3])]


def test_all_of_them_can_be_caught_up() -> None:
    entry = hourly(misfire=Misfire.RUN_ALL, misfire_grace=86400.0)
    decision = decide(entry, now=MIDNIGHT + 3 * HOUR)
    assert started(decision) == [(1, "CAUGHT_UP", []), (2, "CAUGHT_UP", []), (3, "FIRED", [])]


def test_missed_times_can_be_left() -> None:
    decision = decide(hourly(misfire=Misfire.SKIP), now=MIDNIGHT + 3 * HOUR)
    assert started(decision) == [(3, "FIRED", [])]
    assert lines(decision) == [(1, "MISSED"), (2, "MISSED")]


def test_what_is_older_than_the_grace_is_missed() -> None:
    decision = decide(hourly(misfire_grace=3600.0), now=MIDNIGHT + 4.5 * HOUR)
    assert started(decision) == [(4, "CAUGHT_UP", [])]
    assert lines(decision) == [(1, "MISSED"), (2, "MISSED"), (3, "MISSED")]
    assert decision.fires[0].reason == NotStarted(
        NotStartedReason.MISFIRE_GRACE, "the daemon was not running for longer than 3600 s"
    )


def test_what_is_in_the_way_skips_everything() -> None:
    decision = decide(hourly(), now=MIDNIGHT + 2 * HOUR, in_the_way=DISABLED)
    assert decision.starts == ()
    assert lines(decision) == [(1, "SKIPPED"), (2, "SKIPPED")]
    assert {fire.reason for fire in decision.fires} == {DISABLED}
    assert decision.entry.next_due == MIDNIGHT + 3 * HOUR


def test_what_was_due_in_a_blackout_is_not_put_off() -> None:
    """Nobody was there for the window, and it has ended since."""

    def shut(at: datetime) -> NotStarted | None:
        return BLACKOUT if 2 <= at.hour < 4 else None

    entry = hourly(misfire=Misfire.RUN_ONCE, misfire_grace=86400.0)
    decision = decide(entry, now=MIDNIGHT + 5.5 * HOUR, shut=shut)
    assert started(decision) == [(5, "CAUGHT_UP", [1, 4])]
    assert lines(decision) == [(2, "SKIPPED"), (3, "SKIPPED")]
    assert {fire.reason for fire in decision.fires} == {BLACKOUT}
    assert decision.entry.occurrences == 5
    assert decision.entry.next_due == MIDNIGHT + 6 * HOUR


def test_if_all_was_due_in_a_blackout_nothing_starts() -> None:
    decision = decide(hourly(), now=MIDNIGHT + 2 * HOUR, shut=lambda _: "blackout")
    assert started(decision) == []
    assert lines(decision) == [(1, "SKIPPED"), (2, "SKIPPED")]


def test_a_blackout_covers_the_start_and_not_the_due_time() -> None:
    entry = hourly(jitter=600.0)
    assert entry.alarm is not None
    starts_at = entry.alarm

    def shut(at: datetime) -> str:
        return "blackout" if at >= starts_at else ""

    assert lines(decide(entry, now=starts_at, shut=shut)) == [(1, "SKIPPED")]


def test_it_is_due_as_often_as_it_may() -> None:
    entry = hourly(max_occurrences=2, misfire=Misfire.RUN_ALL, misfire_grace=86400.0)
    decision = decide(entry, now=MIDNIGHT + 5 * HOUR)
    assert [start.due_at.hour for start in decision.starts] == [1, 2]
    assert decision.entry.next_due is None
    assert decide(decision.entry, now=MIDNIGHT + 9 * HOUR).starts == ()


def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    fired = decide(hourly(), now=MIDNIGHT + HOUR).entry
    assert decide(fired, now=MIDNIGHT + HOUR - timedelta(minutes=30)).starts == ()
    assert decide(fired, now=MIDNIGHT + HOUR).starts == ()


def test_jitter_moves_the_start_and_not_the_due_time() -> None:
    entry = hourly(jitter=600.0)
    assert entry.alarm is not None
    wait = entry.alarm - (MIDNIGHT + HOUR)
    assert timedelta(0) < wait < timedelta(seconds=600)
    assert decide(entry, now=entry.alarm - timedelta(seconds=1)).starts == ()
    decision = decide(entry, now=entry.alarm)
    assert started(decision) == [(1, "FIRED", [])]


def test_a_long_absence_is_told_in_few_lines_and_not_all_at_once() -> None:
    every_second = replace(hourly(), spec=Schedule(cron="* * * * * *"), next_due=MIDNIGHT)
    entry, now, rounds = every_second, MIDNIGHT + 4 * HOUR, 0
    runs = 0
    while (decision := decide(entry, now=now)).entry is not entry:
        assert len(decision.fires) <= LINES_AT_ONCE
        told = sum(1 + fire.more for fire in decision.fires)
        stood_for = sum(1 + len(start.missed) + start.more for start in decision.starts)
        assert told + stood_for == decision.entry.occurrences - entry.occurrences
        assert decision.entry.occurrences - entry.occurrences <= DECIDED_AT_ONCE
        runs += len(decision.starts)
        entry, rounds = decision.entry, rounds + 1
    assert rounds == 3
    assert entry.occurrences == 4 * 3600 + 1
    assert runs == 1
    assert entry.next_due is not None
    assert entry.next_due > now


def test_outcomes_are_told_apart() -> None:
    assert {outcome.value for outcome in FireOutcome} == {"FIRED", "CAUGHT_UP", "SKIPPED", "MISSED"}


SECOND = timedelta(seconds=1)


def every_second(**spec: object) -> ScheduleEntry:
    made = Schedule(cron="* * * * * *", **spec)  # type: ignore[arg-type]
    return replace(hourly(), spec=made, next_due=MIDNIGHT)


def test_one_run_stands_for_all_however_many_were_missed_and_knows_the_last() -> None:
    now = MIDNIGHT + 4 * HOUR
    decision = decide(every_second(misfire_grace=86400.0), now=now + timedelta(milliseconds=10))
    (start,) = decision.starts
    assert (start.due_at, start.outcome) == (now, FireOutcome.FIRED)
    assert len(start.missed) == LINES_AT_ONCE
    assert start.missed[-1] == now - SECOND
    assert 1 + len(start.missed) + start.more == decision.entry.occurrences == 4 * 3600 + 1


def test_a_part_of_a_decision_is_bounded() -> None:
    given = Circumstances(now=MIDNIGHT + 4 * HOUR)
    part = misfire.decide(every_second(misfire_grace=86400.0), given)
    assert part.carried is not None
    assert (part.starts, part.fires) == ((), ())
    assert part.entry.occurrences == DECIDED_AT_ONCE


def test_as_many_are_caught_up_as_may_be_and_the_rest_stays_due() -> None:
    entry = hourly(misfire=Misfire.RUN_ALL, misfire_grace=86400.0)
    now = MIDNIGHT + 4.5 * HOUR
    decision = decide(entry, now=now, catch_up=1)
    assert started(decision) == [(1, "CAUGHT_UP", [])]
    assert decision.waits
    assert decision.entry.next_due == MIDNIGHT + 2 * HOUR
    nothing = decide(decision.entry, now=now, catch_up=0)
    assert (nothing.starts, nothing.waits, nothing.entry) == ((), True, decision.entry)


def test_what_is_too_old_does_not_wait_to_be_caught_up() -> None:
    decision = decide(hourly(), now=MIDNIGHT + 4.5 * HOUR, catch_up=0)
    assert lines(decision) == [(1, "MISSED"), (2, "MISSED"), (3, "MISSED")]
    assert decision.waits
    assert decision.entry.next_due == MIDNIGHT + 4 * HOUR


def test_what_is_due_now_does_not_wait_for_what_was_missed() -> None:
    decision = decide(hourly(misfire_grace=86400.0), now=MIDNIGHT + 3 * HOUR, catch_up=0)
    assert started(decision) == [(3, "FIRED", [1, 2])]
    assert not decision.waits


def test_of_each_that_was_missed_the_run_waits_for_the_one_before() -> None:
    entry = hourly(misfire=Misfire.RUN_ALL, misfire_grace=86400.0)
    decision = decide(entry, now=MIDNIGHT + 2.5 * HOUR, one_by_one=True)
    assert (decision.starts, decision.waits) == ((), True)
    here = decide(entry, now=MIDNIGHT + HOUR, here_since=MIDNIGHT, one_by_one=True)
    assert started(here) == [(1, "FIRED", [])]


def test_a_daemon_that_is_only_slow_has_missed_nothing() -> None:
    now = MIDNIGHT + 20 * SECOND
    decision = decide(every_second(misfire=Misfire.SKIP), now=now, here_since=MIDNIGHT + 15 * SECOND)
    assert [start.due_at.second for start in decision.starts] == [15, 16, 17, 18, 19, 20]
    assert {start.outcome for start in decision.starts} == {FireOutcome.FIRED}
    assert {fire.outcome for fire in decision.fires} == {FireOutcome.MISSED}
    assert len(decision.fires) == 15


def test_the_grace_of_a_time_at_which_somebody_was_there_does_not_count() -> None:
    now = MIDNIGHT + HOUR + 20 * SECOND
    decision = decide(hourly(misfire_grace=0.0), now=now, here_since=MIDNIGHT, catch_up=0)
    assert started(decision) == [(1, "FIRED", [])]


def test_what_was_due_before_a_blackout_waits_for_its_end() -> None:
    def shut(at: datetime) -> NotStarted | None:
        return BLACKOUT if 2 <= at.hour < 4 else None

    now = MIDNIGHT + 2.2 * HOUR
    given = {"here_since": now, "shut": shut, "catch_up": 0, "waited_for": BLACKOUT.text}
    entry = hourly(misfire_grace=7200.0)
    decision = decide(entry, now=now, **given)
    assert (decision.starts, decision.fires, decision.waits) == ((), (), True)
    # Its grace ends first.
    late = decide(entry, now=MIDNIGHT + 3.5 * HOUR, **given)
    assert lines(late) == [(1, "MISSED"), (2, "SKIPPED"), (3, "SKIPPED")]
    assert late.fires[0].reason is not None
    assert late.fires[0].reason.detail == "not caught up within 7200 s: blackout until 04:00"
    # Or the window.
    after = decide(hourly(misfire_grace=86400.0), now=MIDNIGHT + 4.5 * HOUR, shut=shut, here_since=now)
    assert started(after) == [(4, "CAUGHT_UP", [1])]
    assert lines(after) == [(2, "SKIPPED"), (3, "SKIPPED")]


def test_a_boot_counts_and_knows_its_limits() -> None:
    entry = replace(hourly(), spec=Schedule(cron="@reboot", max_occurrences=1), next_due=None)
    booted = at_boot(entry, MIDNIGHT, MIDNIGHT + SECOND)
    assert [start.due_at for start in booted.starts] == [MIDNIGHT]
    assert at_boot(booted.entry, MIDNIGHT + HOUR, MIDNIGHT + HOUR).starts == ()
    for spec in (
        Schedule(cron="@reboot", start=MIDNIGHT + SECOND),
        Schedule(cron="@reboot", end=MIDNIGHT - SECOND),
    ):
        other = replace(entry, spec=spec)
        decision = at_boot(other, MIDNIGHT, MIDNIGHT + HOUR)
        assert (decision.starts, decision.fires, decision.entry) == ((), (), other)
