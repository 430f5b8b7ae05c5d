"""Tokens of English times: words and numbers."""

from __future__ import annotations

from dataclasses import replace

from toban.definition.timing.phrases.english_numbers import written
from toban.definition.timing.phrases.phrase_parts import Part, PhraseToken, Unclear, number_token
from toban.definition.timing.phrases.phrase_text import ENGLISH_MONTHS, ENGLISH_WEEKDAYS

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
    """The index of each name, also by its first three letters and by these shorter forms."""
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

_REFUSED = {
    "other": "every other day or week cannot be expressed as a schedule; every 2 days counts from now",
    "biweekly": "it is ambiguous; every 2 weeks counts from now",
    "fortnightly": "every other week cannot be expressed as a schedule; every 2 weeks counts from now",
    "holiday": "write business_day: never with a crontab expression",
    "holidays": "write business_day: never with a crontab expression",
    "except": "exceptions cannot be expressed as a schedule: name the days",
    "around": "it is vague: name the time itself",
    "about": "it is vague: name the time itself",
    "few": "it is vague: name the number",
    "several": "it is vague: name the number",
    "some": "it is vague: name the number",
    "soon": "it is vague: name the time itself",
    "by": "it is a deadline, and a schedule needs a start time",
    "until": "it is a deadline, and a schedule needs a start time",
    "before": "it is a deadline, and a schedule needs a start time",
    "ago": "it is in the past",
    "yesterday": "it is in the past",
    "yearly": "it needs a day: write every year on december 1",
}
WORDS = frozenset(
    {
        *WEEKDAYS,
        *PLURAL_WEEKDAYS,
        *MONTHS,
        *PARTS,
        *ORDINAL_ENDS,
        *UNITS,
        *("today", "tomorrow", "tonight", "now", "noon", "midnight", "weekday", "weekdays", "business"),
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
    """The time, and the action, which may come before or after it: at 9am, remind me."""
    text = text.replace("a.m.", "am").replace("p.m.", "pm").replace("\u2019", "'").rstrip(" .!")
    for action in sorted(ACTIONS, key=len, reverse=True):
        for behind in (f" to {action}", f" {action}"):
            if text.endswith(behind):
                return text.removesuffix(behind).rstrip(_BLANK), action
        if text.startswith(f"{action} "):
            return text.removeprefix(f"{action} "), action
    return text, ""


def tokens(text: str) -> list[PhraseToken]:
    """Raises Unclear with an unknown word, or for a word that no schedule can express."""
    found: list[PhraseToken] = []
    at = 0
    comma = False
    while at < len(text):
        if text[at] in _BLANK:
            comma |= text[at] == ","
            at += 1
            continue
        first, *more = _next(text, at, found, comma=comma)
        found += [replace(first, comma=comma), *more]
        comma = False
        at = first.start + len(first.text)
    return found


def _next(text: str, at: int, before: list[PhraseToken], *, comma: bool) -> list[PhraseToken]:
    """The tokens of the next word: the first has all of its text."""
    if text[at] in _MARKS:
        return [PhraseToken(text=text[at], start=at)]
    if text[at] in _DIGITS:
        end = _end(text, at, digits=True)
        return [number_token(text[at:end], int(text[at:end][:20]), start=at)]
    word = text[at : _end(text, at, digits=False)]
    if word in _REFUSED:
        raise Unclear(f'"{word}" cannot be used: {_REFUSED[word]}')
    ordinals = _names_day(before, comma=comma) or _before_weekday(text, at + len(word))
    number = written(text, word, at, ordinals=ordinals)
    if number is not None:
        token = number_token(text[at : at + number.length], number.value, start=at)
        return [token, PhraseToken(text="th", start=at)] if number.ordinal else [token]
    if word not in WORDS:
        raise Unclear(f'"{word}" is not understood')
    return [PhraseToken(text=word, start=at)]


def _end(text: str, at: int, *, digits: bool) -> int:
    while at < len(text) and (text[at] in _DIGITS) is digits and text[at] not in _BLANK + _MARKS:
        at += 1
    return at


def _before_weekday(text: str, at: int) -> bool:
    """Whether a weekday follows: every second tuesday."""
    start = at + 1 if text[at : at + 1] == " " else at
    return start > at and text[start : _end(text, start, digits=False)] in WEEKDAYS


def _names_day(before: list[PhraseToken], *, comma: bool) -> bool:
    """Whether a day of a month is likely to follow: the …, december …, the first and …."""
    last = before[-1].text if before else ""
    if last in ("and", "&") and len(before) > 1:
        last, comma = before[-2].text, True
    return last == "the" or last in MONTHS or (comma and last in ORDINAL_ENDS)
