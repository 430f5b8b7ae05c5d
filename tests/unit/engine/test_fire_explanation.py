"""The ledger in plain words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban.definition.timing.schedule_spec import ClockChange, Schedule
from toband.domain.emitted_events import (
    Emitted,
    EventRun,
    EventRunOutcome,
    EventSource,
    EventState,
)
from toband.domain.not_started import NotStarted, NotStartedReason
from toband.domain.run_model import Run
from toband.domain.schedule_model import Fire, FireOutcome, ScheduleEntry
from toband.engine.schedules.due_times import Upcoming
from toband.engine.schedules.fire_explanation import FireFacts, Near, explain_fires

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
DUE = datetime(2026, 3, 2, 3, tzinfo=UTC)
ENTRY = ScheduleEntry(id="w/0", workflow="w", spec=Schedule(cron="0 3 * * *"), zone="UTC", stored_at=DUE, next_due=NOW)
FIRE = Fire(schedule_id="w/0", workflow="w", due_at=DUE, outcome=FireOutcome.FIRED, at=DUE, run_id="r1")
NEXT = Upcoming(
    due=DUE + timedelta(days=1),
    at=DUE + timedelta(days=1),
    zone="UTC",
    index=0,
    change=ClockChange.NONE,
    blackout="",
)
KNOWN = FireFacts(
    workflow="w",
    enabled=True,
    draining=False,
    now=NOW,
    asked=None,
    entries=(ENTRY,),
    fires=(FIRE,),
    before=Near(at=DUE, zone="UTC"),
    after=NEXT,
)


def row(workflow: str, *, run_id: str = "", reason: NotStarted | None = None) -> EventRun:
    outcome = EventRunOutcome.STARTED if run_id else EventRunOutcome.SKIPPED
    return EventRun(workflow=workflow, priority=0, outcome=outcome, run_id=run_id, reason=reason)


def test_how_late_a_run_was_is_readable() -> None:
    late = replace(FIRE, at=DUE + timedelta(seconds=416572.6))
    assert explain_fires(replace(KNOWN, fires=(late,)))[1].endswith("run r1 was started 4d 19h late.")


@pytest.mark.parametrize(("locks", "text"), [(["db"], "lock db"), (["db", "gpu"], "locks db, gpu")])
def test_a_run_that_waits_for_locks(locks: list[str], text: str) -> None:
    said = explain_fires(replace(KNOWN, locked={"r1": locks}))
    assert said[1].endswith(f"run r1 was started on time, and waits for {text}.")


def test_what_happened_last_and_what_comes_next() -> None:
    assert explain_fires(KNOWN) == (
        "Runs every day at 03:00 (UTC).",
        "It was due at 2026-03-02 03:00:00 UTC; run r1 was started on time.",
        "It is due next at 2026-03-03 03:00:00 UTC.",
    )


def test_why_it_did_not_run() -> None:
    skipped = replace(
        FIRE, outcome=FireOutcome.SKIPPED, reason=NotStarted(NotStartedReason.OVERLAP, "run r0 is active"), run_id=""
    )
    missed = replace(
        FIRE,
        outcome=FireOutcome.MISSED,
        reason=NotStarted(NotStartedReason.OTHER, "the daemon was down"),
        run_id="",
        more=3,
    )
    caught_up = replace(FIRE, outcome=FireOutcome.CAUGHT_UP, at=NOW, more=7)
    said = explain_fires(replace(KNOWN, asked=DUE, fires=(skipped, missed, caught_up)))
    assert said == (
        "It was due at 2026-03-02 03:00:00 UTC and was skipped: overlap: run r0 is active.",
        (
            "It was due at 2026-03-02 03:00:00 UTC and was missed: the daemon was down. "
            "The same happened to 3 earlier due times."
        ),
        (
            "It was due at 2026-03-02 03:00:00 UTC, when the daemon was not running; run r1 was started for it at "
            "2026-03-02 12:00:00 UTC. It also stands for 7 earlier due times."
        ),
    )


def test_a_time_at_which_it_was_not_due() -> None:
    asked = DUE + timedelta(hours=1)
    said = explain_fires(replace(KNOWN, asked=asked, fires=()))
    assert said == (
        "It was not due at 2026-03-02 04:00:00 UTC, or the ledger no longer has that time.",
        "The nearest due times are 2026-03-02 03:00:00 UTC and 2026-03-03 03:00:00 UTC.",
    )
    ahead = explain_fires(replace(KNOWN, asked=NOW + timedelta(hours=1), fires=(), before=None))
    assert ahead == (
        "It is not scheduled at 2026-03-02 13:00:00 UTC.",
        "The nearest due time is 2026-03-03 03:00:00 UTC.",
    )


def test_a_time_to_come_at_which_it_is_due() -> None:
    then = replace(KNOWN, asked=NEXT.due, fires=(), due=NEXT)
    assert explain_fires(then) == ("It is due then, at 2026-03-03 03:00:00 UTC.",)
    (nearby,) = explain_fires(replace(then, asked=NEXT.due - timedelta(seconds=20)))
    assert nearby == "It is due near that, at 2026-03-03 03:00:00 UTC."
    shut = replace(NEXT, blackout="blackout until 2026-03-03T04:00:00+00:00")
    (said,) = explain_fires(replace(then, due=shut))
    assert said == (
        "It is due then, at 2026-03-03 03:00:00 UTC, but no run starts then: blackout until 2026-03-03T04:00:00+00:00."
    )


def test_a_due_time_that_waits_for_its_jitter() -> None:
    waits = replace(NEXT, due=NOW - timedelta(minutes=5), at=NOW + timedelta(minutes=5))
    (said,) = explain_fires(replace(KNOWN, asked=waits.due, fires=(), due=waits))
    assert said == ("It was due at 2026-03-02 11:55:00 UTC, its run 10m later (jitter); it has not been decided yet.")
    assert explain_fires(replace(KNOWN, after=waits))[-1] == (
        "It was due at 2026-03-02 11:55:00 UTC, its run 10m later (jitter)."
    )


def test_each_time_is_on_the_clocks_of_its_own_schedule() -> None:
    tokyo = replace(ENTRY, id="w/1", index=1, zone="Asia/Tokyo")
    said = explain_fires(
        replace(
            KNOWN,
            entries=(ENTRY, tokyo),
            fires=(FIRE, replace(FIRE, schedule_id="w/1")),
            after=replace(NEXT, zone="Asia/Tokyo"),
        )
    )
    assert said[2].startswith("It was due at 2026-03-02 03:00:00 UTC; ")
    assert said[3].startswith("It was due at 2026-03-02 12:00:00 JST; ")
    assert said[4] == "It is due next at 2026-03-03 12:00:00 JST."


def test_what_is_in_the_way_of_the_next_time() -> None:
    later = replace(NEXT, at=NEXT.due + timedelta(minutes=20), blackout="blackout until x")
    jittery = replace(ENTRY, spec=replace(ENTRY.spec, jitter=3600))
    said = explain_fires(replace(KNOWN, entries=(jittery,), after=later))
    assert said[0].startswith("Runs every day at 03:00 (UTC), ")
    assert said[0].endswith(" later each time (jitter).")
    assert said[-1] == (
        "It is due next at 2026-03-03 03:00:00 UTC, its run 20m later (jitter), "
        "but no run starts then: blackout until x."
    )


def test_schedules_that_have_run_out_are_told_as_such() -> None:
    over = replace(ENTRY, next_due=None)
    once = replace(over, spec=Schedule(at=DUE - timedelta(days=2000)), zone="Asia/Tokyo")
    ended = replace(over, spec=replace(ENTRY.spec, end=DUE - timedelta(days=2000)))
    known = replace(KNOWN, fires=(), before=None, after=None)
    said = explain_fires(replace(known, entries=(once,)))
    assert said == (
        "Was scheduled once at 2020-09-09 03:00+00:00 (Asia/Tokyo): that time has passed.",
        "It was never due, or the ledger no longer has it.",
        "It will not be due again.",
    )
    (never, *_) = explain_fires(replace(known, entries=(ended,)))
    assert never.endswith("until 2020-09-09 03:00+00:00 (UTC): it will never be due.")
    (was, *_) = explain_fires(replace(known, entries=(replace(ended, occurrences=3),)))
    assert was.endswith("until 2020-09-09 03:00+00:00 (UTC): it will not be due again.")


def test_a_schedule_of_boots_is_due_at_the_next() -> None:
    boots = replace(ENTRY, spec=Schedule(cron="@reboot"), next_due=None)
    known = replace(KNOWN, entries=(boots,), fires=(), before=None, after=None)
    assert explain_fires(known) == (
        "Runs once per boot of the machine.",
        "It has not been due yet.",
        "It is due at the next boot of the machine.",
    )
    both = explain_fires(replace(KNOWN, entries=(ENTRY, boots)))
    assert both[-2:] == (
        "It is due next at 2026-03-03 03:00:00 UTC.",
        "It is due at the next boot of the machine.",
    )
    over = replace(boots, spec=Schedule(cron="@reboot", max_occurrences=1), occurrences=1)
    assert explain_fires(replace(known, entries=(over,)))[-1] == "It will not be due again."


def test_a_zone_that_is_gone_is_named() -> None:
    lost = replace(ENTRY, zone="No/Where")
    said = explain_fires(replace(KNOWN, entries=(lost,), after=None))
    assert said[1].startswith("It was due at 2026-03-02 03:00:00 UTC; ")
    assert said[2].startswith('It cannot start: the time zone "No/Where" of schedule w/0 is not ')
    assert "give the schedule another zone" in said[2]
    assert not any("due again" in sentence for sentence in said)


def test_what_is_in_the_way_now() -> None:
    said = explain_fires(replace(KNOWN, enabled=False, draining=True))
    assert "It is disabled now: due times are skipped until it is enabled." in said
    assert "The daemon is draining now: due times are skipped until it resumes." in said


def test_without_a_schedule_and_at_its_end() -> None:
    none = explain_fires(replace(KNOWN, entries=(), fires=()))
    assert none == ("w has no schedule: it runs only when started by hand.",)
    over = replace(KNOWN, entries=(replace(ENTRY, next_due=None),), after=None)
    assert explain_fires(over)[-1] == "It will not be due again."
    assert "It has not been due yet." in explain_fires(replace(KNOWN, fires=()))


def test_a_workflow_that_events_start_says_so() -> None:
    listening = replace(KNOWN, entries=(), fires=(), after=None, events=("A", "B"))
    (said,) = explain_fires(listening)
    assert said.startswith("w has no schedule. It is started by events (A, B): ")
    assert "`toban events resolve A`" in said
    assert any("events (A)" in sentence for sentence in explain_fires(replace(KNOWN, events=("A",))))


def test_a_schedule_of_a_subject_is_told_as_an_event() -> None:
    entry = replace(ENTRY, id="s", subject="issue-42")
    fire = replace(FIRE, run_id="", event_id="e1")
    said = explain_fires(replace(KNOWN, entries=(entry,), fires=(fire,)))
    assert said[0] == "Runs every day at 03:00 (UTC), for issue-42."
    assert said[1].endswith("event e1 was emitted on time.")


@pytest.mark.parametrize(
    ("became", "said"),
    [
        ({"runs": (row("other", run_id="r1"), row("w", run_id="r2"))}, "; it started run w#2."),
        (
            {"runs": (row("other", run_id="r1"), row("w", reason=NotStarted(NotStartedReason.DISABLED)))},
            "; not started: disabled.",
        ),
        ({"state": EventState.PENDING}, "; its runs are not decided yet."),
        ({"reason": "cannot resolve it"}, "; nothing was started: cannot resolve it."),
    ],
)
def test_what_the_event_of_a_subject_started_is_told(became: dict[str, Any], said: str) -> None:
    event = Emitted(
        id="e1",
        type="SCHEDULE_TRIGGERED",
        payload={},
        at=DUE,
        source=EventSource.DAEMON,
        **{"state": EventState.RESOLVED, **became},
    )
    fire = replace(FIRE, run_id="", event_id="e1")
    late = replace(fire, outcome=FireOutcome.CAUGHT_UP)
    other = replace(fire, event_id="e2")
    run = Run(id="r2", workflow="w", version=1, number=2, created_at=DUE)
    known = replace(KNOWN, fires=(fire, late, other), emitted={"e1": event}, runs={"r2": run})
    lines = explain_fires(known)[1:4]
    assert lines[0].endswith(f"event e1 was emitted on time{said}")
    assert lines[1].endswith(f"event e1 was emitted for it at 2026-03-02 03:00:00 UTC{said}")
    assert lines[2].endswith("event e2 was emitted on time.")


def test_the_clocks_of_a_schedule_that_is_over() -> None:
    over = replace(KNOWN, entries=(), after=None, zones={"w/0": "Asia/Tokyo"})
    assert explain_fires(over)[0].startswith("It was due at 2026-03-02 12:00:00 JST; ")
