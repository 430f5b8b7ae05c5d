"""Parses English amounts of time: 3 days, an hour and a half, 2h30m."""

from __future__ import annotations

from toban.definition.timing.phrases.english_tokens import UNITS
from toban.definition.timing.phrases.phrase_parts import LAST_HOUR, Cursor, Elapsed, Unclear


def is_amount(at: Cursor) -> bool:
    """Whether an amount begins here: a number alone does not."""
    if at.word() in ("a", "an", "half"):
        return True
    return at.is_number() and (at.word(1) in UNITS or (at.word(1) == "and" and at.word(2) == "a"))


def amount_of(at: Cursor) -> Elapsed:
    """2 hours and 30 minutes, an hour and a half, 1h30m. Raises Unclear."""
    amounts = dict.fromkeys(("month", "day", "second"), 0)
    units: set[str] = set()
    halves = 0
    while True:
        if halves:
            raise Unclear("nothing can follow a half: write the minutes as a number")
        if at.accept("half"):
            count = 0
            halves += 1
            at.accept("a", "an")
        elif at.accept("a", "an"):
            count = 1
        else:
            count = at.take_number("how many")
            halves += at.accept_all("and", "a", "half")
        word = at.accept(*UNITS)
        if not word:
            raise unreadable(at)
        if UNITS[word] in units:
            raise Unclear(f"{UNITS[word]} is given twice")
        units.add(UNITS[word])
        halves += at.accept_all("and", "a", "half")
        _add(amounts, UNITS[word], count, halves)
        if at.word() == "and" and (at.is_number(1) or at.word(1) in ("a", "an")):
            at.accept("and")
        elif not (at.is_number() and at.word(1) in UNITS):
            break
    if not any(amounts.values()):
        raise Unclear("0 is not a duration")
    return Elapsed(months=amounts["month"], days=amounts["day"], seconds=amounts["second"])


def _add(amounts: dict[str, int], unit: str, count: int, halves: int) -> None:
    if halves > (1 if unit == "hour" else 0):
        raise Unclear(f"half a {unit} is not clear: write it as a whole number")
    match unit:
        case "year":
            amounts["month"] += 12 * count
        case "week":
            amounts["day"] += 7 * count
        case "hour":
            amounts["second"] += 3600 * count + 1800 * halves
        case "minute":
            amounts["second"] += 60 * count
        case _:
            amounts[unit] += count


def unreadable(at: Cursor) -> Unclear:
    """The error if nothing matches here."""
    if at.is_number() and not at.word(1):
        if at.number > LAST_HOUR:
            instead = "write an hour as 15:00, how long as 30 minutes"
        else:
            instead = f"write at {at.number}:00 if it is the hour"
        return Unclear(f"{at.word()} is missing its unit: {instead}")
    return at.refuse()
