"""Schedules in words: checks whether the words are understood, and resolves them at a given time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition.timing.phrases.phrase import PhraseError, Understood, interpret
from toban.definition.timing.schedule_spec import Schedule

# Long ago, so that dates with a year are in the future; storing checks whether they really are. The first is a Monday
# that begins a month, so that its whole day, week and month are in the future too, and the next month has 31 days. From
# the second, the month after the next has them.
_REFERENCES = (date(1996, 7, 1), date(1996, 5, 1))
# Replaces that of the schedule, the workflow or the daemon: only the form of words is checked.
_ANY_CALENDAR = {"weekend": ["sat", "sun"]}
# Actions that every schedule has; others that a phrase may name are refused.
_STARTS = ("run", "start", "実行", "起動", "開始")


def check_words(text: str, zone: ZoneInfo) -> Understood:
    """The meaning of the words on a sample day; raises ValueError if they can be understood on no day.

    Only its shape is meaningful: a named day may have passed when they are stored.
    """
    first: PhraseError | None = None
    for reference in _REFERENCES:
        try:
            now = datetime.combine(reference, time(), zone)
            understood = interpret(text, now=now, zone=zone, calendar=_ANY_CALENDAR)
        except PhraseError as error:
            first = first or error
            continue
        if understood.rest and not understood.rest.startswith(_STARTS):
            raise ValueError(f'a schedule can only start runs: write the time without "{understood.rest}"')
        return understood
    assert first is not None
    raise first


def resolve_words(
    schedule: Schedule, *, now: datetime, zone: ZoneInfo, calendar: Mapping[str, Any] | None = None
) -> Schedule:
    """The schedule with the time that its words mean at `now`; a schedule without words is unchanged.

    `calendar` says which days are business days.

    Words that were resolved before are resolved again. Raises PhraseError if they are not understood or the time has
    passed, ValueError if `now` is naive.
    """
    if not schedule.words:
        return schedule
    meant = interpret(schedule.words, now=now, zone=zone, calendar=calendar).schedule
    return with_meaning(schedule, meant)


def with_meaning(schedule: Schedule, meant: Schedule) -> Schedule:
    """The schedule with the time of another one that has the same words."""
    return replace(
        schedule,
        cron=meant.cron,
        every=meant.every,
        at=meant.at,
        business_day=meant.business_day if meant.business_day != "" else schedule.business_day,
    )
