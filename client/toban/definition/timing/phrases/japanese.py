"""Parses Japanese times: 3日後の朝9時, 毎週月・水・金の10時, 月末の18時, 15分おき.

    phrase   = interval | [day] [の] [part of the day] [の] [hour]
    interval = amount (ごと | おき | 間隔)
    day      = amount 後 | 今日 … | [今週 | 来週 | 再来週 | 次] weekday | [year] [month] day | 毎… | 平日 | 月末

The words are in `japanese_tokens`; docs/times-in-words.md has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

from toban.definition.timing.business_days import ONLY
from toban.definition.timing.phrases.japanese_amounts import amount_of, is_amount, said
from toban.definition.timing.phrases.japanese_tokens import (
    BETWEEN,
    BUSINESS_DAY,
    DAYS,
    EVERY,
    EVERY_OR_GAP,
    EVERY_PART,
    LAST_DAY,
    LAST_NTH,
    MONTHS,
    PARTS,
    UNTIL,
    WEEK_NUMBER,
    WEEKDAY_ENDS,
    WEEKDAYS,
    WEEKS,
    YEARS,
    tokens,
)
from toban.definition.timing.phrases.japanese_weekdays import nth_weekday, weekday_list
from toban.definition.timing.phrases.phrase_parts import (
    WEEKEND,
    WORKING_DAYS,
    Cursor,
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
    upcoming_end,
)
from toban.definition.timing.phrases.phrase_resolution import months_after
from toban.definition.timing.phrases.phrase_text import JAPANESE_WEEKDAYS

_NEXT_BUSINESS = ("次", "の", BUSINESS_DAY)


def read(text: str, *, today: date) -> Heard:
    """Raises Unclear with the part that cannot be read."""
    return _Reader(Cursor(tokens(text), text), today).read()


class _Reader:
    def __init__(self, at: Cursor, today: date) -> None:
        self.at = at
        self.today = today
        self.heard = Heard()

    def read(self) -> Heard:
        self.heard.day = self._day()
        self._only_one()
        self._of()
        self._part()
        self._of()
        self._hour()
        self._only_one()
        if self.at.accept("まで"):
            raise Unclear('"まで" is a deadline, and a schedule needs a start time')
        self.at.accept("に")
        self.at.accept("です")
        if not self.at.done:
            raise self.at.refuse()
        return self.heard

    def _of(self) -> None:
        """Particles between a day and its time."""
        self.at.accept("の", "、", ",")

    def _only_one(self) -> None:
        """Raises Unclear when another day or another hour follows."""
        if not (self.at.word() in BETWEEN and self.at.is_number(1)):
            return
        is_hour = self.at.word(2) in ("時", ":")
        if is_hour and self.heard.hour is not None:
            raise Unclear("it names a time of day twice: make a schedule of each")
        if not is_hour and (self.heard.day or self.heard.hour) is not None:
            raise Unclear("it names more than one time: make a schedule of each")

    def _part(self) -> None:
        if word := self.at.accept(*PARTS):
            self.heard.set_part(PARTS[word], word)

    def _hour(self) -> None:
        heard = self.heard
        if self.at.accept("正午"):
            heard.hour, heard.exact = 12, True
        elif self.at.accept("真夜中"):
            heard.hour, heard.exact, heard.midnight = 0, True, True
        elif half := self.at.accept("午前", "午後"):
            self._dial(half)
        elif self.at.is_number():
            heard.hour, heard.minute = self._hour_and_minute()

    def _dial(self, half: str) -> None:
        self._of()
        if not self.at.is_number():
            raise Unclear(f"{half} needs an hour")
        hour, self.heard.minute = self._hour_and_minute()
        if hour == 12:
            raise Unclear(f"{half}12時 is ambiguous: write 正午 or 0時")
        self.heard.hour = after_noon(hour) - (12 if half == "午前" else 0)
        self.heard.exact = True

    def _hour_and_minute(self) -> tuple[int, int]:
        hour = self.at.take_number("an hour")
        if self.at.accept(":"):
            return hour, self.at.take_number("minutes")
        if not self.at.accept("時"):
            raise Unclear(f"{hour} is missing its unit: expected 時, 分後 or the like behind it")
        if self.at.accept("半"):
            return hour, 30
        if self.at.is_number():
            minute = self.at.take_number("minutes")
            if not self.at.accept("分"):
                raise self.at.refuse()
            return hour, minute
        return hour, 0

    def _day(self) -> Meaning | None:
        for form in (self._named_day, self._counted, self._repeated, self._weekday, self._dated):
            if (day := form()) is not None:
                return day
        return None

    def _named_day(self) -> Meaning | None:
        if word := self.at.accept(*DAYS):
            return OnDay(day=self.today + timedelta(days=DAYS[word]))
        if self.at.accept("翌営業日") or self.at.accept_all("次", BUSINESS_DAY) or self.at.accept_all(*_NEXT_BUSINESS):
            return NextBusinessDay()
        if word := self.at.accept("今夜", "今晩"):
            self.heard.set_part(Part.TONIGHT, word)
            return OnDay(day=self.today)
        return None

    # Amounts: 30分後, 1時間半ごと

    def _counted(self) -> Meaning | None:
        if not is_amount(self.at):
            return None
        amount, units = amount_of(self.at)
        if self.at.accept("後"):
            return amount
        every = self.at.accept(*EVERY_OR_GAP)
        if not every:
            raise Unclear(f"{said(units)} alone is not a time: write 後 or ごと behind it")
        if every not in EVERY and not set(units) <= {"時間", "分", "秒"}:
            raise Unclear(f"{said(units)}おき is ambiguous: write ごと")
        if amount.months:
            raise Unclear("months differ in length: write 毎月 and the day")
        return interval(amount.days * 86400 + amount.seconds)

    # Recurring times: 毎日, 毎週月曜, 平日, 月末

    def _repeated(self) -> Meaning | None:
        forms: dict[str, Callable[[], Meaning]] = {
            "毎日": Repeat,
            "毎分": lambda: Interval(seconds=60),
            "毎時": self._every_hour,
            "平日": lambda: Repeat(weekdays=WORKING_DAYS),
            "毎週末": lambda: Repeat(weekdays=WEEKEND),
            "毎週": self._every_week,
            "毎月": self._every_month,
            "毎年": self._every_year,
            BUSINESS_DAY: lambda: Repeat(business=ONLY),
            "毎営業日": lambda: Repeat(business=ONLY),
            "月末": self._end_of_every_month,
            "月末日": lambda: Repeat(last_day=True),
        }
        if word := self.at.accept(*EVERY_PART):
            self.heard.set_part(EVERY_PART[word], word)
            return Repeat()
        if word := self.at.accept(*forms):
            return forms[word]()
        return self._nth()

    def _nth(self) -> Repeat | None:
        """第2火曜, 最終金曜, 第3営業日, 最終営業日; None, and nothing taken, if it is something else."""
        if self.at.accept_all(LAST_NTH, BUSINESS_DAY):
            return nth_business_day(-1)
        if self.at.word() == WEEK_NUMBER and self.at.is_number(1) and self.at.word(2) == BUSINESS_DAY:
            self.at.accept(WEEK_NUMBER)
            nth = self.at.take_number("a number")
            self.at.accept(BUSINESS_DAY)
            return nth_business_day(nth)
        return nth_weekday(self.at)

    def _end_of_every_month(self) -> Repeat:
        if self.at.accept_all("の", LAST_NTH, BUSINESS_DAY) or self.at.accept_all(LAST_NTH, BUSINESS_DAY):
            return nth_business_day(-1)
        return Repeat(last_day=True)

    def _every_hour(self) -> Hourly:
        self._of()
        minute = 0
        if self.at.is_number():
            minute = self.at.take_number("minutes")
            if minute > 59 or not self.at.accept("分"):
                raise Unclear(f"毎時 goes with 0分 to 59分, found {minute}{self.at.word()}")
        return Hourly(minute=minute)

    def _every_week(self) -> Repeat:
        self._of()
        days = weekday_list(self.at)
        if not days:
            raise Unclear("毎週 needs a weekday: write 毎週月曜")
        return Repeat(weekdays=days)

    def _every_month(self) -> Repeat:
        self._of()
        if (nth := self._nth()) is not None:
            return nth
        if self.at.word() in LAST_DAY and BUSINESS_DAY in (self.at.word(2), self.at.word(3)):
            self.at.accept(*LAST_DAY)
            return self._end_of_every_month()
        days: set[int] = set()
        last_day = False
        while True:
            if self.at.accept(*LAST_DAY):
                last_day = True
            else:
                day = self._day_number("毎月 needs a day: write 毎月1日 or 毎月末")
                check_month_day(None, day)
                days.add(day)
            another = self.at.word(1) in LAST_DAY or (self.at.is_number(1) and self.at.word(2) == "日")
            if not (another and self.at.accept(*BETWEEN)):
                return Repeat(days=frozenset(days), last_day=last_day)

    def _every_year(self) -> Repeat:
        self._of()
        month = self.at.take_number("a month")
        if not self.at.accept("月"):
            raise self.at.refuse()
        day = self._day_number("毎年 needs a day: write 毎年12月1日")
        check_month_day(month, day)
        return Repeat(month=month, days=frozenset({day}))

    def _day_number(self, otherwise: str) -> int:
        if not (self.at.is_number() and self.at.word(1) == "日"):
            raise Unclear(otherwise)
        day = self.at.take_number("a day")
        self.at.accept("日")
        return day

    # One day: 来週の金曜日, 12月24日, 来月末

    def _weekday(self) -> Meaning | None:
        week = self.at.accept(*WEEKS, "次")
        if week:
            self._of()
        name = self.at.accept(*WEEKDAYS)
        if not name:
            if week:
                raise Unclear(f"{week} needs a weekday: write {week}の月曜")
            return None
        if not self.at.accept(*WEEKDAY_ENDS):
            if self.at.word() in (*BETWEEN, *UNTIL, *WEEKDAYS):
                raise Unclear("several weekdays need a repetition: write 毎週 before them")
            raise Unclear(f'"{name}" alone is not clear: write {name}曜')
        if self.at.word() in (*BETWEEN, *UNTIL) and self.at.word(1) in WEEKDAYS:
            raise Unclear("several weekdays need a repetition: write 毎週 before them")
        day = WEEKDAYS[name]
        if week in WEEKS:
            monday = self.today - timedelta(days=self.today.weekday())
            return OnDay(day=monday + timedelta(days=7 * WEEKS[week] + day))
        return OnDay(day=self.today + timedelta(days=(day - self.today.weekday() - 1) % 7 + 1))

    def _dated(self) -> Meaning | None:
        if word := self.at.accept(*MONTHS):
            return self._in_month(word)
        year = self._year()
        if year is None and self.at.is_number() and self.at.word(1) == "日":
            return upcoming(None, self._day_number(""))
        marks = ("月", "月末", "月末日", "/", *(() if year is None else ("-",)))
        if not (self.at.is_number() and self.at.word(1) in marks):
            if year is not None:
                raise Unclear("a year needs a month and a day behind it")
            return None
        month = self.at.take_number("a month")
        if self.at.accept("月末", "月末日"):
            return _end_of_month(year, month)
        if self.at.accept("月"):
            if self.at.accept("末日", "末"):
                return _end_of_month(year, month)
            day = self._day_number(f"{month}月 needs a day: write {month}月1日")
        else:
            self.at.accept("/", "-")
            day = self.at.take_number("a day")
        if year is None:
            return upcoming(month, day)
        return OnDay(day=self._checked_weekday(calendar_day(year, month, day)))

    def _year(self) -> int | None:
        if word := self.at.accept(*YEARS):
            self._of()
            return self.today.year + YEARS[word]
        if self.at.is_number() and self.at.word(1) in ("年", "/", "-") and self._is_year():
            year = self.at.take_number("a year")
            self.at.accept("年", "/", "-")
            return year
        return None

    def _is_year(self) -> bool:
        return self.at.word(1) == "年" or len(self.at.word()) == 4

    def _checked_weekday(self, day: date) -> date:
        """A weekday in brackets is optional, but must be that day's weekday."""
        if not self.at.accept("("):
            return day
        name = self.at.accept(*WEEKDAYS)
        self.at.accept(*WEEKDAY_ENDS)
        if not name or not self.at.accept(")"):
            raise self.at.refuse()
        if WEEKDAYS[name] != day.weekday():
            raise Unclear(f"{day} is a {JAPANESE_WEEKDAYS[day.weekday()]}曜日, not a {name}曜日")
        return day

    def _in_month(self, word: str) -> OnDay:
        self._of()
        first = months_after(self.today.replace(day=1), MONTHS[word])
        if (nth := nth_weekday(self.at)) is not None:
            return OnDay(day=nth_weekday_of(first, nth))
        if self.at.accept(*LAST_DAY):
            return OnDay(day=months_after(first, 1) - timedelta(days=1))
        day = self._day_number(f"{word} needs a day: write {word}1日 or {word}末")
        return OnDay(day=calendar_day(first.year, first.month, day))


def _end_of_month(year: int | None, month: int) -> Meaning:
    if year is None:
        return upcoming_end(month)
    return OnDay(day=months_after(calendar_day(year, month, 1), 1) - timedelta(days=1))
