"""Parses English times: in 3 days at 9am, every mon, wed and fri at 10:00, the last day of the month at 18:00.

    phrase = a day and a time, in any order, either may be missing
    day    = today … | in amount | amount from now | [this | next] weekday | month and day | the ordinal [of …]
           | every …
    time   = [at] hour [: minutes] [am | pm] | noon | midnight | [in the] morning …

The words are in `english_tokens`; docs/times-in-words.md has the rules.
"""

from __future__ import annotations

from datetime import date, timedelta

from toban.definition.timing.business_days import ONLY
from toban.definition.timing.phrases.english_amounts import amount_of, is_amount, unreadable
from toban.definition.timing.phrases.english_tokens import (
    MONTHS,
    ORDINAL_ENDS,
    PARTS,
    PLURAL_WEEKDAYS,
    WEEKDAYS,
    tokens,
)
from toban.definition.timing.phrases.english_weekdays import AND, UNTIL, is_last_weekday, nth_weekday, weekday_list
from toban.definition.timing.phrases.phrase_parts import (
    Cursor,
    Elapsed,
    Heard,
    Hourly,
    Interval,
    Meaning,
    NextBusinessDay,
    OnDay,
    Part,
    Repeat,
    Unclear,
    after_noon,
    calendar_day,
    check_month_day,
    interval,
    nth_business_day,
    nth_weekday_of,
    upcoming,
)
from toban.definition.timing.phrases.phrase_resolution import months_after

_EVERY = ("every", "each")


def read(text: str, *, today: date) -> Heard:
    """Raises Unclear with the part that cannot be read."""
    return _Reader(Cursor(tokens(text), text), today).read()


class _Reader:
    def __init__(self, at: Cursor, today: date) -> None:
        self.at = at
        self.today = today
        self.heard = Heard()

    def read(self) -> Heard:
        while not self.at.done:
            if self._time():
                continue
            if self.heard.hour is not None and self.at.word() in AND and self._is_time(1):
                raise Unclear("it names a time of day twice: make a schedule of each")
            day = self._day()
            if day is None:
                raise unreadable(self.at)
            if self.heard.day is not None:
                raise Unclear("it names a day twice")
            self.heard.day = day
        return self.heard

    # Times of day

    def _time(self) -> bool:
        """Takes one token about the time of day, if there is one."""
        if self.at.word() in PARTS:
            self._part()
            return True
        if self.at.word() == "in" and self.at.word(1) == "the" and self.at.word(2) in PARTS:
            self.at.accept_all("in", "the")
            self._part()
            return True
        if self.at.accept_all("at", "night"):
            self.heard.set_part(Part.NIGHT, "night")
            return True
        if not (self.at.accept("at") or self._is_clock()):
            return False
        if self.heard.hour is not None:
            raise Unclear("it names a time of day twice: make a schedule of each")
        self._clock()
        return True

    def _part(self) -> None:
        word = self.at.accept(*PARTS)
        self.heard.set_part(PARTS[word], word)

    def _is_time(self, ahead: int) -> bool:
        return self.at.word(ahead) in ("at", "noon", "midnight") or self.at.is_number(ahead)

    def _is_clock(self) -> bool:
        if self.at.word() in ("noon", "midnight"):
            return True
        return self.at.is_number() and self.at.word(1) in (":", "am", "pm", "o'clock")

    def _clock(self) -> None:
        heard = self.heard
        if self.at.accept("noon"):
            heard.hour, heard.exact = 12, True
            return
        if self.at.accept("midnight"):
            heard.hour, heard.exact, heard.midnight = 0, True, True
            return
        heard.hour = self.at.take_number("an hour")
        if self.at.accept(":"):
            heard.minute = self.at.take_number("minutes")
        if half := self.at.accept("am", "pm"):
            if heard.hour == 0:
                raise Unclear(f"there is no 0{half}: write 12{half}")
            # 12am is midnight and 12pm is noon.
            heard.hour = after_noon(heard.hour % 12 if heard.hour == 12 else heard.hour)
            heard.hour -= 12 if half == "am" else 0
            heard.exact = True
        else:
            self.at.accept("o'clock")

    # Days

    def _day(self) -> Meaning | None:
        if self.at.accept(*_EVERY):
            return self._business() or self._every()
        if self.at.accept("in"):
            return amount_of(self.at)
        if is_amount(self.at):
            return self._from_now()
        if (day := self._named() or self._by_adverb()) is not None:
            return day
        self.at.accept("on")
        if (business := self._business()) is not None:
            return business
        return self._weekday() or self._date() or self._day_of_month()

    def _named(self) -> OnDay | None:
        if self.at.accept("today"):
            return OnDay(day=self.today)
        if self.at.accept("tomorrow"):
            return OnDay(day=self.today + timedelta(days=1))
        if self.at.accept_all("the", "day", "after", "tomorrow") or self.at.accept_all("day", "after", "tomorrow"):
            return OnDay(day=self.today + timedelta(days=2))
        if self.at.accept("tonight") or self.at.accept_all("this", "night"):
            self.heard.set_part(Part.TONIGHT, "tonight")
            return OnDay(day=self.today)
        if self.at.word() == "this" and self.at.word(1) in PARTS:
            self.at.accept("this")
            return OnDay(day=self.today)
        return None

    def _by_adverb(self) -> Meaning | None:
        if self.at.accept("hourly"):
            return Hourly(minute=0)
        if self.at.accept("daily"):
            return Repeat()
        if self.at.accept("weekly"):
            return self._every_week()
        if self.at.accept("monthly"):
            return self._every_month()
        return None

    # Amounts: in 3 days, every 2 hours

    def _from_now(self) -> Elapsed:
        amount = amount_of(self.at)
        if self.at.accept_all("from", "now") or self.at.accept("later"):
            return amount
        raise Unclear("a duration alone is not a time: write in or every before it")

    # Recurring times

    def _every(self) -> Meaning:
        if self.at.accept("day"):
            return Repeat()
        if self.at.word() in PARTS:
            return Repeat()
        if self.at.accept("week"):
            return self._every_week()
        if self.at.accept("month"):
            return self._every_month()
        if self.at.accept("year"):
            self.at.accept("on")
            return self._every_year()
        if self.at.word() in MONTHS:
            return self._every_year()
        if not self.at.is_number() and (unit := self.at.accept("hour", "minute", "second")):
            if not self.at.done:
                raise Unclear(f'"every {unit}" stands alone, without a day or a time')
            return Interval(seconds={"hour": 3600, "minute": 60, "second": 1}[unit])
        if self.at.word() == "last" or self.at.word(1) in ORDINAL_ENDS:
            return self._every_day_of_month()
        if is_amount(self.at):
            return self._interval()
        days = weekday_list(self.at)
        if not days:
            raise unreadable(self.at)
        return Repeat(weekdays=days)

    def _interval(self) -> Interval:
        amount = amount_of(self.at)
        if amount.months:
            raise Unclear("months differ in length: write on the 1st of every month")
        return interval(amount.days * 86400 + amount.seconds)

    def _every_week(self) -> Repeat:
        self.at.accept("on")
        days = weekday_list(self.at)
        if not days:
            raise Unclear("every week needs a weekday: write every monday")
        return Repeat(weekdays=days)

    def _every_month(self) -> Repeat:
        self.at.accept("on")
        self.at.accept("the")
        if not (self.at.is_number() or self.at.word() == "last"):
            raise Unclear("every month needs a day: write on the 1st of every month")
        if (nth := nth_weekday(self.at)) is not None:
            return nth
        days, last_day = self._days_of_month()
        return Repeat(days=days, last_day=last_day)

    def _every_year(self) -> Repeat:
        if self.at.word() not in MONTHS:
            raise Unclear("every year needs a day: write every year on december 1")
        month, day = self._month_and_day()
        check_month_day(month, day)
        return Repeat(month=month, days=frozenset({day}))

    def _every_day_of_month(self) -> Repeat:
        if (nth := nth_weekday(self.at)) is not None:
            # "every second tuesday" is the one of each month; every other week cannot be expressed.
            if self.at.accept("of"):
                self.at.accept("the", *_EVERY)
                if not self.at.accept("month"):
                    raise unreadable(self.at)
            return nth
        days, last_day = self._days_of_month()
        if not (self.at.accept_all("of", "the", "month") or self.at.accept_all("of", "month")):
            raise Unclear("every how many is not clear: write on the 1st of every month")
        return Repeat(days=days, last_day=last_day)

    # Business days

    def _business_day(self) -> bool:
        return self.at.accept_all("business", "day") or self.at.accept_all("business", "days")

    def _business(self) -> Meaning | None:
        """Business days, the next business day, the last or the 3rd business day of a month."""
        ahead = 1 if self.at.word() == "the" else 0
        if self.at.word(ahead + 1) == "business" and self.at.word(ahead) == "next":
            self.at.accept("the")
            self.at.accept("next")
            self._business_day()
            return NextBusinessDay()
        if not ahead and self._business_day():
            return Repeat(business=ONLY)
        last = self.at.word(ahead) == "last"
        if self.at.word(ahead + (1 if last else 2)) != "business":
            return None
        self.at.accept("the")
        nth = -1
        if not self.at.accept("last"):
            nth = self.at.take_number("the number of a business day")
            self.at.accept(*ORDINAL_ENDS)
        if not self._business_day():
            raise unreadable(self.at)
        found = nth_business_day(nth)
        if self.at.accept("of"):
            self.at.accept("the", *_EVERY)
            if not self.at.accept("month"):
                raise unreadable(self.at)
        return found

    # One day, or several when it is plural

    def _weekday(self) -> Meaning | None:
        if self.at.word() in (*PLURAL_WEEKDAYS, "weekdays", "weekends"):
            return Repeat(weekdays=weekday_list(self.at))
        if self.at.word(1) in WEEKDAYS and (week := self.at.accept("this", "next")):
            return self._in_week(1 if week == "next" else 0)
        if self.at.accept_all("next", "week"):
            self.at.accept("on")
            if self.at.word() not in WEEKDAYS:
                raise Unclear("next week needs a weekday: write next friday")
            return self._in_week(1)
        name = self.at.accept(*WEEKDAYS)
        if not name:
            return None
        if self.at.word() in WEEKDAYS or self.at.word() in (*UNTIL, *AND):
            raise Unclear("several weekdays need a repetition: write every before them")
        if self.at.accept_all("of", "next", "week") or self.at.accept_all("next", "week"):
            return self._weekday_of(1, name)
        ahead = (WEEKDAYS[name] - self.today.weekday() - 1) % 7 + 1
        return OnDay(day=self.today + timedelta(days=ahead))

    def _in_week(self, weeks: int) -> OnDay:
        return self._weekday_of(weeks, self.at.accept(*WEEKDAYS))

    def _weekday_of(self, weeks: int, name: str) -> OnDay:
        monday = self.today - timedelta(days=self.today.weekday())
        return OnDay(day=monday + timedelta(days=7 * weeks + WEEKDAYS[name]))

    def _date(self) -> Meaning | None:
        """December 24, 24 december, 24th december, 2026-12-24."""
        if self.at.word() in MONTHS:
            month, day = self._month_and_day()
            return self._in_year(month, day)
        if not self.at.is_number():
            return None
        if self.at.word(2 if self.at.word(1) in ORDINAL_ENDS else 1) in MONTHS:
            day = self.at.take_number("a day")
            self.at.accept(*ORDINAL_ENDS)
            return self._in_year(MONTHS[self.at.accept(*MONTHS)], day)
        mark = self.at.word(1)
        if mark not in ("-", "/"):
            return None
        if len(self.at.word()) != 4:
            raise Unclear(f"{self.at.word()}{mark}{self.at.word(2)} is ambiguous: write december 1, or 2026-12-01")
        year = self.at.take_number("a year")
        self.at.accept(mark)
        month = self.at.take_number("a month")
        if not self.at.accept(mark):
            raise unreadable(self.at)
        return OnDay(day=calendar_day(year, month, self.at.take_number("a day")))

    def _month_and_day(self) -> tuple[int, int]:
        name = self.at.accept(*MONTHS)
        self.at.accept("the")
        if self._is_year():
            raise Unclear(f"{name} needs a day: write {name} 1")
        day = self.at.take_number("a day of the month")
        self.at.accept(*ORDINAL_ENDS)
        return MONTHS[name], day

    def _in_year(self, month: int, day: int) -> Meaning:
        if self._is_year():
            return OnDay(day=calendar_day(self.at.take_number("a year"), month, day))
        return upcoming(month, day)

    def _is_year(self) -> bool:
        return self.at.word().isdecimal() and len(self.at.word()) == 4

    def _day_of_month(self) -> Meaning | None:
        """The 1st, the last day of the month, the 1st and 15th of every month, next month on the 1st."""
        if self.at.accept_all("next", "month"):
            self.at.accept("on")
            self.at.accept("the")
            if (nth := nth_weekday(self.at)) is not None:
                return self._nth_in_month(1, nth)
            return self._in_month(1, *self._days_of_month())
        if not (self.at.accept("the") or self.at.word(1) in ORDINAL_ENDS or is_last_weekday(self.at)):
            return None
        if (nth := nth_weekday(self.at)) is not None:
            return self._nth_of_month(nth)
        days, last_day = self._days_of_month()
        if self.at.accept("of") or self.at.word() in MONTHS:
            if self.at.word() in MONTHS and len(days) == 1 and not last_day:
                return self._in_year(MONTHS[self.at.accept(*MONTHS)], *days)
            which = self.at.accept("the", "this", "next", *_EVERY)
            if not (which and self.at.accept("month")):
                raise unreadable(self.at)
            if which in ("this", "next"):
                return self._in_month(1 if which == "next" else 0, days, last_day)
            return Repeat(days=days, last_day=last_day)
        if len(days) == 1 and not last_day:
            return upcoming(None, *days)
        raise Unclear("of which month is not clear: write of this month or of every month")

    def _days_of_month(self) -> tuple[frozenset[int], bool]:
        """Ordinals, and whether the last day is among them."""
        days: set[int] = set()
        last_day = False
        while True:
            if self.at.accept("last"):
                if not self.at.accept("day"):
                    raise unreadable(self.at)
                last_day = True
            elif self.at.is_number() and self.at.word(1) in ORDINAL_ENDS:
                day = self.at.take_number("a day")
                self.at.accept(*ORDINAL_ENDS)
                self.at.accept("day")
                check_month_day(None, day)
                days.add(day)
            else:
                raise unreadable(self.at)
            if not (self.at.accept(*AND) or (self.at.behind_comma and self._is_day_of_month())):
                return frozenset(days), last_day
            self.at.accept("the")

    # The n-th weekday of a month

    def _nth_of_month(self, nth: Repeat) -> Meaning:
        if not self.at.accept("of"):
            raise Unclear("of which month is not clear: write of this month or of every month")
        which = self.at.accept("the", "this", "next", *_EVERY)
        if not (which and self.at.accept("month")):
            raise unreadable(self.at)
        return self._nth_in_month(1 if which == "next" else 0, nth) if which in ("this", "next") else nth

    def _nth_in_month(self, months: int, nth: Repeat) -> OnDay:
        return OnDay(day=nth_weekday_of(months_after(self.today.replace(day=1), months), nth))

    def _is_day_of_month(self) -> bool:
        ahead = 1 if self.at.word() == "the" else 0
        return self.at.word(ahead) == "last" or self.at.word(ahead + 1) in ORDINAL_ENDS

    def _in_month(self, months: int, days: frozenset[int], last_day: bool) -> OnDay:
        first = months_after(self.today.replace(day=1), months)
        if last_day and not days:
            return OnDay(day=months_after(first, 1) - timedelta(days=1))
        if len(days) != 1 or last_day:
            raise Unclear("several days need a repetition: write of every month")
        return OnDay(day=calendar_day(first.year, first.month, *days))
