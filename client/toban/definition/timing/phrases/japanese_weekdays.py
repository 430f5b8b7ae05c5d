"""Parses Japanese weekdays: 月・水・金, 月曜から金曜まで, and 第2火曜 or 最終金曜 of a month."""

from __future__ import annotations

from toban.definition.timing.cron import LAST_WEEK
from toban.definition.timing.phrases.japanese_tokens import (
    BETWEEN,
    LAST_NTH,
    UNTIL,
    WEEK_NUMBER,
    WEEKDAY_ENDS,
    WEEKDAYS,
)
from toban.definition.timing.phrases.phrase_parts import (
    WORKING_DAYS,
    Cursor,
    Repeat,
    Unclear,
    nth_weekdays,
    weekday_range,
)


def weekday_list(at: Cursor) -> frozenset[int]:
    """Empty, and nothing taken, if there is none."""
    if at.accept("平日"):
        return WORKING_DAYS
    days: set[int] = set()
    while (name := at.accept(*WEEKDAYS)) != "":
        first = last = WEEKDAYS[name]
        at.accept(*WEEKDAY_ENDS)
        if at.accept(*UNTIL):
            name = at.accept(*WEEKDAYS)
            if not name:
                raise Unclear("expected a weekday behind から")
            last = WEEKDAYS[name]
            at.accept(*WEEKDAY_ENDS)
            at.accept("まで")
        days |= weekday_range(first, last)
        if at.word() in BETWEEN and at.word(1) in WEEKDAYS:
            at.accept(*BETWEEN)
    return frozenset(days)


def nth_weekday(at: Cursor) -> Repeat | None:
    """第2火曜, 第1・第3月曜, 第2、4土曜, 最終金曜; None, and nothing taken, if it is something else."""
    weeks: set[int] = set()
    while word := at.accept(WEEK_NUMBER, LAST_NTH):
        weeks |= {LAST_WEEK} if word == LAST_NTH else _week_numbers(at)
        if at.word(1) in (WEEK_NUMBER, LAST_NTH):
            at.accept(*BETWEEN)
    if not weeks:
        return None
    days = weekday_list(at)
    if not days:
        raise Unclear("第 and 最終 need a weekday behind them: write 第2火曜 or 最終金曜")
    if at.word() in BETWEEN and at.word(1) in (WEEK_NUMBER, LAST_NTH):
        raise Unclear("it names several weekdays in different weeks: make a schedule of each")
    return nth_weekdays(frozenset(weeks), days)


def _week_numbers(at: Cursor) -> set[int]:
    weeks = {at.take_number("a number behind 第")}
    while at.word() in BETWEEN and at.is_number(1) and at.word(2) in (*WEEKDAYS, *BETWEEN):
        at.accept(*BETWEEN)
        weeks.add(at.take_number("a number"))
    return weeks
