"""Parses Japanese amounts of time: 3日, 1時間半, 半年."""

from __future__ import annotations

from toban.definition.timing.phrases.japanese_tokens import EVERY_OR_GAP, MONTHS_LONG, UNITS
from toban.definition.timing.phrases.phrase_parts import Cursor, Elapsed, Unclear


def is_amount(at: Cursor) -> bool:
    """Whether an amount starts here, rather than a date or an hour."""
    if at.word() == "半年":
        return True
    if not (at.is_number() and at.word(1) in UNITS):
        return False
    if at.word(1) not in ("日", "年"):
        return True
    ahead = 0
    while at.is_number(ahead) and at.word(ahead + 1) in UNITS:
        if at.word(ahead + 1) in ("時間", *MONTHS_LONG):
            return True
        ahead += 2
    return at.word(ahead) in ("後", *EVERY_OR_GAP)


def amount_of(at: Cursor) -> tuple[Elapsed, dict[str, int]]:
    """The amount, and the number and unit that express it. Raises Unclear."""
    if at.accept("半年"):
        return Elapsed(months=6), {"か月": 6}
    months = days = seconds = 0
    units: dict[str, int] = {}
    while at.is_number():
        count = at.take_number("a number")
        unit = at.accept(*UNITS)
        if not unit or unit in units:
            raise at.refuse() if not unit else Unclear(f"{unit} is given twice")
        units[unit] = count
        match unit:
            case "年":
                months += 12 * count
            case "週間" | "週":
                days += 7 * count
            case "日":
                days += count
            case "時間":
                seconds += 3600 * count + _half_hour(at)
            case "分":
                seconds += 60 * count
            case "秒":
                seconds += count
            case _:
                months += count
    if not months + days + seconds:
        raise Unclear(f"{said(units)} is not a duration")
    return Elapsed(months=months, days=days, seconds=seconds), units


def _half_hour(at: Cursor) -> int:
    if not at.accept("半"):
        return 0
    if at.is_number():
        raise Unclear("nothing can follow 半: write the minutes as a number")
    return 1800


def said(units: dict[str, int]) -> str:
    """The amount as written in the phrase."""
    return "".join(f"{count}{unit}" for unit, count in units.items())
