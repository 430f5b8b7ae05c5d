"""The words of times in English, and the numbers between them."""

from __future__ import annotations

from toban.definition.timing.words_parts import Part, Token, Unclear, number_token
from toban.definition.timing.words_text import ENGLISH_MONTHS, ENGLISH_WEEKDAYS

ACTIONS = (
    "remind me",
    "remind us",
    "remind",
    "reminder",
    "notify me",
    "notify us",
    "notify",
    "check progress",
    "check the progress",
    "check",
    "follow up",
    "escalate",
    "close it",
    "close",
    "run it",
    "run",
    "start it",
    "start",
)

_SHORT_WEEKDAYS = ("tues", "thur", "thurs")
_SHORT_MONTHS = ("sept",)


def _named(names: tuple[str, ...], short: tuple[str, ...]) -> dict[str, int]:
    """Where each name stands, also by its first three letters and by these shorter forms."""
    full = [name.casefold() for name in names]
    places = {name: place for place, name in enumerate(full)}
    places |= {name[:3]: place for place, name in enumerate(full)}
    return places | {s: next(n for n, name in enumerate(full) if name.startswith(s)) for s in short}


WEEKDAYS = _named(ENGLISH_WEEKDAYS, _SHORT_WEEKDAYS)
PLURAL_WEEKDAYS = {f"{name.casefold()}s": day for day, name in enumerate(ENGLISH_WEEKDAYS)}
MONTHS = {name: place + 1 for name, place in _named(ENGLISH_MONTHS, _SHORT_MONTHS).items()}
PARTS = {
    "morning": Part.MORNING,
    "afternoon": Part.AFTERNOON,
    "evening": Part.EVENING,
    "night": Part.NIGHT,
}
ORDINAL_ENDS = ("st", "nd", "rd", "th")

_UNITS = {
    "second": ("seconds", "sec", "secs", "s"),
    "minute": ("minutes", "min", "mins", "m"),
    "hour": ("hours", "hr", "hrs", "h"),
    "day": ("days", "d"),
    "week": ("weeks", "w"),
    "month": ("months",),
    "year": ("years",),
}
UNITS = {form: unit for unit, forms in _UNITS.items() for form in (unit, *forms)}

_ONES = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"
_TEENS = (
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90}
_NUMBERS = {word: number for number, word in enumerate((*_ONES, *_TEENS))} | _TENS
_ORDINALS = {"first": 1, "second": 2, "third": 3}

_REFUSED = {
    "other": "every other day or week cannot be said with a schedule; every 2 days counts from now",
    "biweekly": "it is understood in two ways; every 2 weeks counts from now",
    "fortnightly": "every other week cannot be said with a schedule; every 2 weeks counts from now",
    "holiday": "there is no calendar of holidays",
    "holidays": "there is no calendar of holidays",
    "business": "there is no calendar of holidays; a weekday is Monday to Friday",
    "except": "exceptions cannot be said with a schedule: name the days",
    "around": "it is vague: name the time itself",
    "about": "it is vague: name the time itself",
    "few": "it is vague: name the number",
    "several": "it is vague: name the number",
    "some": "it is vague: name the number",
    "soon": "it is vague: name the time itself",
    "by": "it is until when, and a time is needed at which to start",
    "until": "it is until when, and a time is needed at which to start",
    "before": "it is until when, and a time is needed at which to start",
    "ago": "it has passed",
    "yesterday": "it has passed",
    "yearly": "it needs a day: write every year on december 1",
}
_WORDS = frozenset(
    {
        *WEEKDAYS,
        *PLURAL_WEEKDAYS,
        *MONTHS,
        *PARTS,
        *ORDINAL_ENDS,
        *UNITS,
        *("today", "tomorrow", "tonight", "now", "noon", "midnight", "weekday", "weekdays"),
        *(
            "weekend",
            "weekends",
            "daily",
            "hourly",
            "weekly",
            "monthly",
            "later",
            "every",
            "each",
            "this",
            "next",
            "last",
            "the",
        ),
        *("a", "an", "half", "and", "in", "at", "on", "of", "from", "to", "through", "after"),
        *("am", "pm", "o'clock", ":", "-", "/", "&"),
    }
)
_BLANK = " ,"
_DIGITS = "0123456789"
_MARKS = ":-/&"


def split_action(text: str) -> tuple[str, str]:
    """The time, and what it says to do then, which may stand before or behind it: at 9am, remind me."""
    text = text.replace("a.m.", "am").replace("p.m.", "pm").replace("\u2019", "'").rstrip(" .!")
    for action in sorted(ACTIONS, key=len, reverse=True):
        for behind in (f" to {action}", f" {action}"):
            if text.endswith(behind):
                return text.removesuffix(behind).rstrip(_BLANK), action
        if text.startswith(f"{action} "):
            return text.removeprefix(f"{action} "), action
    return text, ""


def tokens(text: str) -> list[Token]:
    """Raises Unclear with the word that is not known, or for one that no schedule can follow."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
        elif text[at] in _MARKS:
            found.append(Token(text=text[at], start=at))
            at += 1
        elif text[at] in _DIGITS:
            end = _end(text, at, digits=True)
            found.append(number_token(text[at:end], int(text[at:end][:20]), start=at))
            at = end
        else:
            end = _end(text, at, digits=False)
            found += _word(text[at:end], at, found)
            at = end
    return found


def _end(text: str, at: int, *, digits: bool) -> int:
    while at < len(text) and (text[at] in _DIGITS) is digits and text[at] not in _BLANK + _MARKS:
        at += 1
    return at


def _word(word: str, start: int, before: list[Token]) -> list[Token]:
    if word in _REFUSED:
        raise Unclear(f'"{word}" cannot be used: {_REFUSED[word]}')
    # A second is a unit, the second is a day.
    if word in _ORDINALS and (word not in UNITS or (before and before[-1].text == "the")):
        return [number_token(word, _ORDINALS[word], start=start), Token(text="th", start=start)]
    if word in _NUMBERS:
        return [number_token(word, _NUMBERS[word], start=start)]
    if word not in _WORDS:
        raise Unclear(f'"{word}" is not understood')
    return [Token(text=word, start=start)]
