"""Schedules whose time is said in words: whether the words can be read, and what they mean once it is some time."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

from toban.definition.timing.phrases.phrase import PhraseError, Understood, interpret
from toban.definition.timing.schedule_spec import Schedule

# Long ago, so that dates with a year are still to come; whether they are is for whoever stores them to say. The first
# is a Monday that begins a month, so that all of its day, week and month is to come too, and the next month has 31
# days. From the second, the month after the next has them.
_REFERENCES = (date(1996, 7, 1), date(1996, 5, 1))
# What a schedule does anyway; other things that a phrase may say to do are not for it.
_STARTS = ("run", "start", "実行", "起動", "開始")


def check_words(text: str, zone: ZoneInfo) -> Understood:
    """What the words would mean on some day; raises ValueError if they cannot be read whatever day it is.

    Only their shape can be known from it: a day that is named may have passed when they are stored.
    """
    first: PhraseError | None = None
    for reference in _REFERENCES:
        try:
            understood = interpret(text, now=datetime.combine(reference, time(), zone), zone=zone)
        except PhraseError as error:
            first = first or error
            continue
        if understood.rest and not understood.rest.startswith(_STARTS):
            raise ValueError(f'a schedule can only start runs: write the time without "{understood.rest}"')
        return understood
    assert first is not None
    raise first


def resolve_words(schedule: Schedule, *, now: datetime, zone: ZoneInfo) -> Schedule:
    """The schedule with the time that its words mean at `now`; one that says its time otherwise is as it was.

    Words that were resolved before are resolved anew. Raises PhraseError if they cannot be read or the time has
    passed, ValueError if `now` is naive.
    """
    if not schedule.words:
        return schedule
    meant = interpret(schedule.words, now=now, zone=zone).schedule
    return replace(schedule, cron=meant.cron, every=meant.every, at=meant.at)
