"""Schedules with calendars: stored with their data, and renewed when these change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toban.definition import JobType, Schedule, Step, Workflow
from toban.definition.timing.business_days import CalendarError
from toban.definition.timing.phrases.phrase import PhraseError
from toband.domain.schedule_model import ScheduleEntry, entries_of, renewed

FRIDAY = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAILY = Schedule(cron="0 9 * * *", business_day="only")
STEP = Step(id="s", name="s", job_type=JobType.SHELL, target="x", kwargs={}, env={})


def stored(*schedules: Schedule, default: Any = None, **fields: Any) -> list[ScheduleEntry]:
    workflow = Workflow(
        name="w", title="", labels={}, params={}, env={}, steps={"s": STEP}, schedules=schedules, **fields
    )
    found = entries_of(
        workflow, zone="UTC", now=FRIDAY, known={}, calendar=default, read_file=lambda path: Path(path).read_text()
    )
    return list(found)


def test_the_nearest_calendar_counts() -> None:
    own = replace(DAILY, calendar={"country": "us"})
    entries = stored(own, DAILY, calendar={"country": "jp"}, default={"country": "de"})
    assert [entry.spec.calendar["country"] for entry in entries] == ["us", "jp"]
    assert all(entry.spec.calendar["data"] for entry in entries)
    # Monday, 23 November, is a holiday of Japan.
    assert [entry.next_due and entry.next_due.day for entry in entries] == [23, 24]
    (of_daemon,) = stored(DAILY, default={"country": "de"})
    assert of_daemon.spec.calendar["country"] == "de"
    (plain,) = stored(Schedule(cron="0 9 * * *"), calendar={"country": "jp"})
    assert plain.spec.calendar == {}


def test_words_take_the_calendar() -> None:
    entries = stored(
        Schedule(words="毎営業日9時"),
        Schedule(words="翌営業日"),
        Schedule(words="平日の9時"),
        calendar={"country": "jp"},
    )
    assert [entry.spec.business_day for entry in entries] == ["only", "", ""]
    assert [entry.next_due and entry.next_due.day for entry in entries] == [24, 24, 23]


def test_without_a_calendar_there_are_no_business_days() -> None:
    with pytest.raises(CalendarError, match="no calendar says which days are business days"):
        stored(DAILY)
    with pytest.raises(PhraseError, match="no calendar says which days are business days"):
        stored(Schedule(words="翌営業日"))


def test_a_changed_calendar_moves_what_is_still_to_come(tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.write_text("2026-11-24\n")
    (entry,) = stored(replace(DAILY, calendar={"file": str(days)}))

    def read(path: str) -> str:
        return Path(path).read_text()

    assert entry.next_due == datetime(2026, 11, 23, 9, tzinfo=UTC)
    assert renewed(entry, FRIDAY, read) is entry
    days.write_text("2026-11-23\n")
    after = renewed(entry, FRIDAY, read)
    assert after.next_due == datetime(2026, 11, 24, 9, tzinfo=UTC)
    assert (after.stored_at, after.occurrences) == (entry.stored_at, entry.occurrences)
    # A time that has come is decided as it was.
    late = renewed(entry, datetime(2026, 11, 23, 10, tzinfo=UTC), read)
    assert late.next_due == entry.next_due
    assert late.spec == after.spec
    days.unlink()
    with pytest.raises(CalendarError, match="cannot read the calendar"):
        renewed(entry, FRIDAY, read)


def test_other_holidays_of_a_release_renew_it() -> None:
    (entry,) = stored(replace(DAILY, calendar={"country": "jp"}))
    older = replace(entry, spec=replace(entry.spec, calendar={"country": "jp", "data": "0.1"}))
    assert renewed(older, FRIDAY, Path.read_text) == entry  # type: ignore[arg-type]
    reminder = replace(older, spec=Schedule(at=FRIDAY))
    assert renewed(reminder, FRIDAY, Path.read_text) is reminder  # type: ignore[arg-type]
