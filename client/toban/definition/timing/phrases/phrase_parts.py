"""Values that the grammars of all languages produce.

A grammar parses a phrase into `Heard`: a day and the time of day, as written. `meaning` joins the two, and refuses
ambiguous ones.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date, datetime
from enum import Enum

from toban.definition.scalars.durations import MAX_DURATION
from toban.definition.timing.business_days import MOST_NTH
from toban.definition.timing.cron import LAST_WEEK

MONDAY, FRIDAY, SATURDAY, SUNDAY = 0, 4, 5, 6
WORKING_DAYS = frozenset(range(MONDAY, FRIDAY + 1))
WEEKEND = frozenset({SATURDAY, SUNDAY})
MOST_WEEKS = 5
"""A month has at most so many of each weekday."""


class Unclear(Exception):  # noqa: N818 - it is the reason of a PhraseError, not an error of its own
    """A phrase is not understood; the text says why, and becomes part of a `PhraseError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTime:
    """A time of day. 24:00 ends the day; `late` hours are those that people count as the evening before."""

    hour: int
    minute: int = 0
    second: int = 0
    late: bool = False

    def __str__(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"


LAST_HOUR = 24
"""It ends the day."""

DEFAULT_CLOCK = ClockTime(hour=9)
"""Of a day without a time."""


class Part(Enum):
    """A part of the day. The value: its own hour if it has one, and how hours on a dial are meant in it."""

    MORNING = 9, {h: h for h in range(4, 12)}
    MIDDAY = 12, {11: 11, 12: 12} | {h: h + 12 for h in range(1, 5)}
    AFTERNOON = None, {12: 12} | {h: h + 12 for h in range(1, 7)}
    DUSK = 18, {h: h + 12 for h in range(3, 8)}
    EVENING = 18, {h: h + 12 for h in range(4, 12)}
    NIGHT = 21, {h: h for h in range(6)} | {h: h + 12 for h in range(6, 12)} | {12: 0}
    TONIGHT = 21, {h: h + 12 for h in range(6, 12)} | {0: 24, 12: 24}
    SMALL_HOURS = 0, {h: h for h in range(6)} | {10: 22, 11: 23, 12: 0}

    def __init__(self, own_hour: int | None, dial: Mapping[int, int]) -> None:
        self.own_hour = own_hour
        self.dial = dial

    def hour(self, hour: int, *, exact: bool) -> int | None:
        """The hour of 24, if this part of the day has it; `exact` hours are not moved by half a day."""
        if not exact and hour in self.dial:
            return self.dial[hour]
        if hour in self.dial.values():
            return hour
        if exact and hour == 0 and self is Part.TONIGHT:
            return 24
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed:
    """A time after now. Months and days follow the calendar, seconds the elapsed time."""

    months: int = 0
    days: int = 0
    seconds: int = 0
    clock: ClockTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDay:
    day: date
    clock: ClockTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcomingDay:
    """The first future time: on any day, on this day of a month, or on this day of a year.

    A month without a day is the last day of that month.
    """

    month: int | None = None
    day: int | None = None
    clock: ClockTime | None = None

    @property
    def any_day(self) -> bool:
        return self.month is None and self.day is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """At a regular interval of seconds."""

    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hourly:
    minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """On every matching day. Weekdays count from Monday, 0. `last_day` is the last day of the month.

    `weeks` limits the weekdays to the first, second … of the month, or the last: `LAST_WEEK`. `business` is the
    `business_day` of its schedule.
    """

    weekdays: frozenset[int] = frozenset()
    weeks: frozenset[int] = frozenset()
    month: int | None = None
    days: frozenset[int] = frozenset()
    last_day: bool = False
    business: str | int = ""
    clock: ClockTime | None = None

    @property
    def daily(self) -> bool:
        return not (self.weekdays or self.days or self.last_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBusinessDay:
    """The first business day after today."""

    clock: ClockTime | None = None


Dated = Elapsed | OnDay | UpcomingDay | NextBusinessDay | Repeat
Meaning = Dated | Instant | Interval | Hourly


@dataclass(slots=True, kw_only=True)
class Heard:
    """The parts that a grammar has parsed so far."""

    day: Meaning | None = None
    part: Part | None = None
    part_word: str = ""
    hour: int | None = None
    minute: int = 0
    second: int = 0
    exact: bool = False
    """The hour is one of 24: 午後3時, 3pm, noon."""
    midnight: bool = False

    def set_part(self, part: Part, word: str) -> None:
        """Raises Unclear if the phrase has two parts of the day."""
        if self.part is not None and self.part is not part:
            raise Unclear(f'it says both "{self.part_word}" and "{word}"')
        self.part, self.part_word = part, word


def meaning(heard: Heard) -> Meaning:
    """Joins day and time. Raises Unclear if they contradict each other, or could mean either of two days."""
    clock = _clock(heard)
    match heard.day:
        case None if clock is None:
            raise Unclear("it says nothing about a time")
        case None:
            day: Meaning = UpcomingDay()
        case _:
            day = heard.day
    if clock is None:
        return day
    match day:
        case Instant() | Interval() | Hourly():
            raise Unclear(f"a time of day ({clock}) cannot be combined with a repetition")
        case Elapsed(seconds=seconds) if seconds:
            raise Unclear(f"hours and minutes from now already give a time, so {clock} is too much")
        case Elapsed() | OnDay() | UpcomingDay() | NextBusinessDay() | Repeat():
            pass
    if clock.late and not _any_day(day):
        raise Unclear(
            f"{clock} of the middle of the night could be at the beginning of that day or after its end:"
            f" name the day on which it is {clock}, and leave out the night"
        )
    if clock.hour == LAST_HOUR and isinstance(day, Repeat):
        if not day.daily:
            raise Unclear("24:00 does not repeat: write 0:00 of the following day")
        clock = replace(clock, hour=0)
    return replace(day, clock=clock)


def _any_day(day: Dated) -> bool:
    match day:
        case UpcomingDay():
            return day.any_day
        case Repeat():
            return day.daily and day.business == ""
        case _:
            return False


def _clock(heard: Heard) -> ClockTime | None:
    part, hour = heard.part, heard.hour
    if hour is None:
        if part is None:
            return None
        if part.own_hour is None:
            raise Unclear(f'"{heard.part_word}" needs an hour')
        return ClockTime(hour=part.own_hour, late=part is Part.SMALL_HOURS)
    if heard.minute > 59:
        raise Unclear(f"an hour has no minute {heard.minute}")
    if heard.second > 59:
        raise Unclear(f"a minute has no second {heard.second}")
    if hour > LAST_HOUR or (hour == LAST_HOUR and heard.minute + heard.second):
        raise Unclear(f"a day ends with 24:00, so there is no {hour}:{heard.minute:02}")
    late = heard.midnight
    if part is not None:
        meant = part.hour(hour, exact=heard.exact)
        if meant is None:
            raise Unclear(
                f'{hour}:{heard.minute:02} and "{heard.part_word}" contradict each other:'
                f' leave "{heard.part_word}" out, name the day, and count the hours from 0 to 23'
            )
        hour = meant
        late |= hour < 6 and part in (Part.NIGHT, Part.SMALL_HOURS)
    late = late and part is not Part.TONIGHT
    return ClockTime(hour=hour, minute=heard.minute, second=heard.second, late=late)


def after_noon(hour: int) -> int:
    """The hour of 24 for one on the dial, from noon to midnight; 12 is left to the grammar. Raises Unclear."""
    if hour > 11:
        instead = f": write {hour}:00" if hour <= LAST_HOUR else ""
        raise Unclear(f"{hour} is more than the 12 hours of half a day{instead}")
    return hour + 12


def calendar_day(year: int, month: int, day: int) -> date:
    """Raises Unclear when the calendar has no such day."""
    check_month_day(month, day)
    if not 1 <= year <= MAXYEAR:
        raise Unclear(f"there is no year {year}")
    if day > monthrange(year, month)[1]:
        raise Unclear(f"{year}-{month:02} has no day {day}")
    return date(year, month, day)


def check_month_day(month: int | None, day: int) -> None:
    """Raises Unclear when no year has such a day, or, without a month, no month."""
    if month is not None and not 1 <= month <= 12:
        raise Unclear(f"there is no month {month}")
    # 2000 is a leap year.
    longest = 31 if month is None else monthrange(2000, month)[1]
    if not 1 <= day <= longest:
        raise Unclear(f"there is no day {day}" + (f" in month {month}" if month else " in a month"))


def upcoming(month: int | None, day: int) -> UpcomingDay:
    """Raises Unclear when there is never such a day."""
    check_month_day(month, day)
    return UpcomingDay(month=month, day=day)


def upcoming_end(month: int) -> UpcomingDay:
    """The last day of the month. Raises Unclear when there is no such month."""
    check_month_day(month, 1)
    return UpcomingDay(month=month)


def nth_weekdays(weeks: frozenset[int], weekdays: frozenset[int]) -> Repeat:
    """Raises Unclear when no month has so many weeks."""
    for week in weeks:
        if week != LAST_WEEK and not 1 <= week <= MOST_WEEKS:
            raise Unclear(f"a month has at most {MOST_WEEKS} of each weekday, found {week}")
    return Repeat(weekdays=weekdays, weeks=weeks)


def nth_weekday_of(first: date, repeat: Repeat) -> date:
    """The day of this one month, given by its first. Raises Unclear when it has none, or there are several."""
    if len(repeat.weeks) != 1 or len(repeat.weekdays) != 1:
        raise Unclear("several days need a repetition: make a schedule of each, or let it repeat every month")
    (week,), (weekday,) = repeat.weeks, repeat.weekdays
    length = monthrange(first.year, first.month)[1]
    days = [day for day in range(1, length + 1) if first.replace(day=day).weekday() == weekday]
    if week > len(days):
        raise Unclear(f"{first:%Y-%m} has only {len(days)} of this weekday")
    return first.replace(day=days[week if week == LAST_WEEK else week - 1])


def nth_business_day(nth: int) -> Repeat:
    """Raises Unclear when no month has so many."""
    if not 1 <= abs(nth) <= MOST_NTH:
        raise Unclear(f"a month has at most {MOST_NTH} business days, found {nth}")
    return Repeat(business=nth)


def interval(seconds: int) -> Interval:
    """Raises Unclear for more than the longest duration."""
    if seconds > MAX_DURATION:
        raise Unclear("the interval is longer than 100 years")
    return Interval(seconds=seconds)


def weekday_range(first: int, last: int) -> frozenset[int]:
    """Both included, wrapping around the end of the week if necessary."""
    return frozenset((first + n) % 7 for n in range((last - first) % 7 + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseToken:
    """A known word of the language, or a number; `value` is that number, or -1. `start` is its offset in the phrase.

    `comma`: a comma precedes it, in a language where a comma is not a token.
    """

    text: str
    start: int
    value: int = -1
    comma: bool = False


MAX_NUMBER = 999_999


def number_token(text: str, value: int, *, start: int) -> PhraseToken:
    """Raises Unclear for numbers that are too large."""
    if value > MAX_NUMBER:
        raise Unclear(f'the number "{text[:20]}" is too large')
    return PhraseToken(text=text, value=value, start=start)


class Cursor:
    """Iterates over tokens, forwards only."""

    __slots__ = ("_at", "_phrase", "_tokens")

    def __init__(self, tokens: list[PhraseToken], phrase: str) -> None:
        self._tokens = tokens
        self._phrase = phrase
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    def word(self, ahead: int = 0) -> str:
        """The text of a token, without taking it; empty after the end."""
        place = self._at + ahead
        return self._tokens[place].text if place < len(self._tokens) else ""

    def is_number(self, ahead: int = 0) -> bool:
        place = self._at + ahead
        return place < len(self._tokens) and self._tokens[place].value >= 0

    @property
    def number(self) -> int:
        """The next number, without taking it; -1 if the next token is not a number."""
        return -1 if self.done else self._tokens[self._at].value

    @property
    def behind_comma(self) -> bool:
        return not self.done and self._tokens[self._at].comma

    def accept(self, *words: str) -> str:
        """Takes the next token if it is one of these words; its text, else nothing."""
        word = self.word()
        if word and word in words:
            self._at += 1
            return word
        return ""

    def accept_all(self, *words: str) -> bool:
        """Takes all of these words, or none."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def take_number(self, wanted: str) -> int:
        """Raises Unclear if the next token is not a number."""
        if not self.is_number():
            found = f'found "{self.word()}"' if not self.done else "it ends there"
            raise Unclear(f"expected {wanted}, {found}")
        self._at += 1
        return self._tokens[self._at - 1].value

    def refuse(self) -> Unclear:
        """The error if nothing matches here: it names the remaining text."""
        if self.done:
            return Unclear("the end is missing")
        left = self._phrase[self._tokens[self._at].start :]
        return Unclear(f'"{left}" is not expected there')
