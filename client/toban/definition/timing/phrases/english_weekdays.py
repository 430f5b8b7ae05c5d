"""Parses English weekdays: monday to friday, and the first and third monday of a month."""

from __future__ import annotations

from toban.definition.timing.cron import LAST_WEEK
from toban.definition.timing.phrases.english_tokens import ORDINAL_ENDS, PLURAL_WEEKDAYS, WEEKDAYS
from toban.definition.timing.phrases.phrase_parts import (
    WEEKEND,
    WORKING_DAYS,
    Cursor,
    Repeat,
    Unclear,
    nth_weekdays,
    weekday_range,
)

UNTIL = ("-", "to", "through")
AND = ("and", "&")
_ANY_WEEKDAY = WEEKDAYS | PLURAL_WEEKDAYS


def weekday_list(at: Cursor) -> frozenset[int]:
    """Monday, wednesday and friday; monday to friday; weekdays. Empty, and nothing taken, if there is none."""
    if at.accept("weekday", "weekdays"):
        return WORKING_DAYS
    if at.accept("weekend", "weekends"):
        return WEEKEND
    days: set[int] = set()
    while (name := at.accept(*_ANY_WEEKDAY)) != "":
        first = last = _ANY_WEEKDAY[name]
        if at.accept(*UNTIL):
            name = at.accept(*_ANY_WEEKDAY)
            if not name:
                raise Unclear(f'expected a weekday, found "{at.word()}"')
            last = _ANY_WEEKDAY[name]
        days |= weekday_range(first, last)
        if at.word() in AND and at.word(1) in _ANY_WEEKDAY:
            at.accept(*AND)
        elif at.word() in _ANY_WEEKDAY and not at.behind_comma:
            raise Unclear("several weekdays need a comma or and between them")
    return frozenset(days)


def is_last_weekday(at: Cursor) -> bool:
    return at.word() == "last" and at.word(1) in WEEKDAYS


def nth_weekday(at: Cursor) -> Repeat | None:
    """First monday, first and third monday, last friday; None, and nothing taken, if it is a day of the month."""
    ahead = 0
    while at.word(ahead) == "last" or at.word(ahead + 1) in ORDINAL_ENDS:
        ahead += 1 if at.word(ahead) == "last" else 2
        if at.word(ahead) in WEEKDAYS:
            return _weeks_and_weekdays(at)
        while at.word(ahead) in (*AND, "the"):
            ahead += 1
    return None


def _weeks_and_weekdays(at: Cursor) -> Repeat:
    weeks: set[int] = set()
    while at.word() not in WEEKDAYS:
        if at.accept("last"):
            weeks.add(LAST_WEEK)
        elif not at.accept("the", *AND):
            weeks.add(at.take_number("the number of a week"))
            at.accept(*ORDINAL_ENDS)
    return nth_weekdays(frozenset(weeks), weekday_list(at))
