"""Parses times in words, Japanese and English: `3日後の朝9時`, `every weekday at 15:00`.

The small grammar is in docs/times-in-words.md. A phrase outside of it is an error; nothing is guessed, and the
interpretation is always returned as text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from toban.definition.timing.business_days import calendar_name, load_calendar
from toban.definition.timing.phrases import english, iso_times, japanese
from toban.definition.timing.phrases.english_tokens import split_action as english_action
from toban.definition.timing.phrases.japanese_tokens import split_action as japanese_action
from toban.definition.timing.phrases.phrase_parts import (
    Hourly,
    Interval,
    Meaning,
    NextBusinessDay,
    Repeat,
    Unclear,
    meaning,
)
from toban.definition.timing.phrases.phrase_resolution import NO_CALENDAR, resolve
from toban.definition.timing.phrases.phrase_text import Tongue, say
from toban.definition.timing.schedule_spec import Schedule

LONGEST_PHRASE = 200

EXAMPLES = {
    Tongue.JAPANESE: (
        "3日後の朝9時",
        "明日の15時",
        "30分後",
        "毎週月曜9時",
        "平日の15時",
        "月末の18時",
    ),
    Tongue.ENGLISH: (
        "in 3 days at 9am",
        "tomorrow at 15:00",
        "in 30 minutes",
        "every monday at 9:00",
        "every weekday at 15:00",
        "every 2 hours",
    ),
}

# Hiragana, katakana, ideographs and the marks between them.
_JAPANESE = re.compile("[\u3001-\u30ff\u3400-\u9fff]")


class PhraseError(ValueError):
    """A phrase is not understood as a time. `text` names the phrase and the problematic part."""

    def __init__(self, text: str, examples: tuple[str, ...]) -> None:
        self.text = text
        self.examples = examples
        super().__init__(f"{text} (examples: {', '.join(examples)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """The meaning of a phrase. `text` is the interpretation in its language, `rest` the action, if any."""

    schedule: Schedule
    recurring: bool
    text: str
    rest: str = ""


def interpret(text: str, *, now: datetime, zone: ZoneInfo, calendar: Mapping[str, Any] | None = None) -> Understood:
    """The meaning of the phrase at `now` (aware), in `zone`. `calendar` says which days are business days.

    A single time is always after `now`. Raises PhraseError if the phrase is not understood, is ambiguous, or means a
    time that has passed or that a clock change skips; ValueError if `now` is naive.
    """
    if now.tzinfo is None:
        raise ValueError("the present time needs a time zone")
    # The length is that of the stored text; longer ones are not parsed.
    phrase = _plain(text[:LONGEST_PHRASE])
    tongue = _tongue(phrase)
    try:
        if len(text) > LONGEST_PHRASE:
            raise Unclear(f"it is longer than {LONGEST_PHRASE} characters")
        meant, rest = _read(phrase, tongue, now.astimezone(zone).date())
        business = _uses_calendar(meant)
        if business and not calendar:
            raise Unclear(NO_CALENDAR)
        days = load_calendar(calendar) if business and calendar else None
        when = resolve(meant, now=now, zone=zone, calendar=days)
        said = say(meant, when, zone=zone, tongue=tongue, calendar=calendar_name(calendar or {}))
    except Unclear as unclear:
        raise _refused(text, str(unclear), tongue) from None
    except OverflowError:
        raise _refused(text, "that is beyond the end of the calendar", tongue) from None
    schedule = Schedule(
        cron=when.cron,
        every=when.every,
        at=when.at,
        words=text,
        timezone=zone.key,
        calendar=calendar if business and calendar else {},
        business_day=meant.business if isinstance(meant, Repeat) else "",
    )
    recurring = isinstance(meant, Repeat | Interval | Hourly)
    return Understood(schedule=schedule, recurring=recurring, text=said, rest=rest)


def _uses_calendar(meant: Meaning) -> bool:
    return isinstance(meant, NextBusinessDay) or (isinstance(meant, Repeat) and meant.business != "")


def _refused(text: str, reason: str, tongue: Tongue) -> PhraseError:
    shown = text if len(text) <= LONGEST_PHRASE else text[:LONGEST_PHRASE] + "…"
    return PhraseError(f'cannot read the time "{shown}": {reason}', EXAMPLES[tongue])


def _tongue(phrase: str) -> Tongue:
    return Tongue.JAPANESE if _JAPANESE.search(phrase) else Tongue.ENGLISH


def _plain(text: str) -> str:
    """Normalises character width, case and blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _read(phrase: str, tongue: Tongue, today: date) -> tuple[Meaning, str]:
    if not phrase:
        raise Unclear("it is empty")
    if tongue is Tongue.JAPANESE:
        phrase, rest = japanese_action(phrase)
        return iso_times.read(phrase) or meaning(japanese.read(phrase, today=today)), rest
    phrase, rest = english_action(phrase)
    return iso_times.read(phrase) or meaning(english.read(phrase, today=today)), rest
