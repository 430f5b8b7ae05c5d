"""The ledger in plain words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from toban.definition.timing.model import Schedule
from toband.domain.schedules import Fire, FireOutcome, ScheduleEntry
from toband.engine.explaining import Known, told

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
DUE = datetime(2026, 3, 2, 3, tzinfo=UTC)
ENTRY = ScheduleEntry(
    id="w/0", workflow="w", spec=Schedule(cron="0 3 * * *"), zone="UTC", stored_at=DUE, next_due=NOW
)
FIRE = Fire(
    schedule_id="w/0", workflow="w", due_at=DUE, outcome=FireOutcome.FIRED, at=DUE, run_id="r1"
)
KNOWN = Known(
    workflow="w", enabled=True, draining=False, now=NOW, asked=None, entries=(ENTRY,), fires=(FIRE,),
    before=DUE, after=DUE + timedelta(days=1),
)  # fmt: skip


def test_what_happened_last_and_what_comes_next() -> None:
    assert told(KNOWN) == (
        "It is to run every day at 03:00 (UTC).",
        "It was due at 2026-03-02 03:00:00 UTC, and run r1 was started, 0.0 s later.",
        "It is due next at 2026-03-03 03:00:00 UTC.",
    )


def test_why_it_did_not_run() -> None:
    skipped = replace(
        FIRE, outcome=FireOutcome.SKIPPED, reason="overlap: run r0 is active", run_id=""
    )
    missed = replace(FIRE, outcome=FireOutcome.MISSED, reason="nobody was there", run_id="", more=3)
    caught_up = replace(FIRE, outcome=FireOutcome.CAUGHT_UP, at=NOW)
    said = told(replace(KNOWN, asked=DUE, fires=(skipped, missed, caught_up)))
    assert said == (
        "It was due at 2026-03-02 03:00:00 UTC and was skipped: overlap: run r0 is active.",
        (
            "It was due at 2026-03-02 03:00:00 UTC and was missed: nobody was there. "
            "So were 3 due times before it."
        ),
        (
            "It was due at 2026-03-02 03:00:00 UTC and nobody was there; run r1 was started for it at "
            "2026-03-02 12:00:00 UTC."
        ),
    )


def test_a_time_at_which_it_was_not_due() -> None:
    asked = DUE + timedelta(hours=1)
    said = told(replace(KNOWN, asked=asked, fires=()))
    assert said == (
        "It was not due at 2026-03-02 04:00:00 UTC, or longer ago than the ledger is kept.",
        "The nearest due times are 2026-03-02 03:00:00 UTC and 2026-03-03 03:00:00 UTC.",
    )
    ahead = told(replace(KNOWN, asked=NOW + timedelta(hours=1), fires=(), before=None))
    assert ahead[0] == "2026-03-02 13:00:00 UTC has not come yet."
    assert ahead[1] == "The nearest due time is 2026-03-03 03:00:00 UTC."


def test_what_is_in_the_way_now() -> None:
    said = told(replace(KNOWN, enabled=False, draining=True))
    assert "It is disabled now: due times are skipped until it is enabled." in said
    assert "The daemon is draining now: due times are skipped until it resumes." in said


def test_without_a_schedule_and_at_its_end() -> None:
    none = told(replace(KNOWN, entries=(), fires=()))
    assert none == ("w has no schedule: it runs only when somebody starts it.",)
    assert told(replace(KNOWN, after=None))[-1] == "It will not be due again."
    assert "It has not been due yet." in told(replace(KNOWN, fires=()))


def test_a_workflow_that_events_start_says_so() -> None:
    listening = replace(KNOWN, entries=(), fires=(), after=None, events=("A", "B"))
    (said,) = told(listening)
    assert said.startswith("w has no schedule. It is started by events (A, B): ")
    assert "`toban events resolve A`" in said
    assert any("events (A)" in sentence for sentence in told(replace(KNOWN, events=("A",))))


def test_a_schedule_of_a_subject_is_told_as_an_event() -> None:
    entry = replace(ENTRY, id="s", subject="issue-42")
    fire = replace(FIRE, run_id="", reason="event e1")
    said = told(replace(KNOWN, entries=(entry,), fires=(fire,)))
    assert said[0] == "It is to run every day at 03:00 (UTC), for issue-42."
    assert said[1].endswith("and event e1 was emitted, 0.0 s later.")
