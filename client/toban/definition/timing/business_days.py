"""Business days: calendars of holidays, and how a schedule uses them.

A calendar is a mapping: `country`, an ISO code such as `jp` or `us-ca`, whose holidays the package `holidays` knows;
`weekend`, `holidays` and `workdays` of its own; or `file`, the path of a file with these, and its `content` once the
daemon has read it. `data` is the version of the package, so that other holidays are another calendar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from importlib.metadata import version
from pathlib import PureWindowsPath
from typing import Any, Protocol

from toban.definition.timing.cron import DAY_SECONDS, Cron

WEEKDAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
OWN_FIELDS = ("country", "weekend", "holidays", "workdays")
ONLY, NEXT, PREVIOUS, NEVER = "only", "next", "previous", "never"
MODES = (ONLY, NEXT, PREVIOUS, NEVER)
MOST_NTH = 23
"""No month has more business days from Monday to Friday."""
_FILE_FORMS = "one date per line, or YAML with country, weekend, holidays or workdays"
_WEEKEND = frozenset({5, 6})
_MOST_DATES = 10_000
# How far a due time is looked for: a rule that matches no day for so long is never due.
_FAR_DAYS = 30 * 366
# No country is closed for so long.
_LONGEST_CLOSURE = 366


class CalendarError(ValueError):
    """A schedule lacks a calendar, or its calendar cannot be read."""


class _CountryDays(Protocol):
    def is_working_day(self, day: date) -> bool: ...

    def __contains__(self, day: date) -> bool: ...


@dataclass(frozen=True, slots=True)
class BusinessCalendar:
    """Says which days are business days. `country` is None without one; `weekend` is None for that of the country."""

    country: _CountryDays | None
    weekend: frozenset[int] | None
    holidays: frozenset[date]
    workdays: frozenset[date]

    def is_open(self, day: date) -> bool:
        if day in self.workdays:
            return True
        if day in self.holidays:
            return False
        if self.country is not None and self.weekend is None:
            return self.country.is_working_day(day)
        if day.weekday() in (_WEEKEND if self.weekend is None else self.weekend):
            return False
        return self.country is None or day not in self.country

    def next(self, day: date) -> date | None:
        """The first business day from this one on; None if there is none in a year."""
        return self._found(day, 1)

    def previous(self, day: date) -> date | None:
        """The last business day up to this one."""
        return self._found(day, -1)

    def _found(self, day: date, step: int) -> date | None:
        days = (day + timedelta(days=step * count) for count in range(_LONGEST_CLOSURE))
        return next((each for each in days if self.is_open(each)), None)

    def is_nth(self, day: date, nth: int) -> bool:
        """Whether it is the n-th business day of its month; negative numbers count from its end."""
        if not self.is_open(day):
            return False
        step = timedelta(days=1 if nth < 0 else -1)
        count, each = 0, day
        while each.month == day.month:
            count += self.is_open(each)
            each += step
        return count == abs(nth)


# ------------------------------------------------------------------------------------------------ reading


def check_calendar(value: Any) -> dict[str, Any]:
    """The calendar that a definition or a setting describes; raises ValueError with what is wrong."""
    if isinstance(value, str):
        return {"country": check_country(value)}
    if not isinstance(value, Mapping):
        raise ValueError("expected the code of a country such as jp, or a mapping with country, file or holidays")
    if "file" in value:
        path = value["file"]
        if len(value) > 1:
            raise ValueError("a calendar with file has no other fields: write them into the file")
        if not isinstance(path, str) or not _is_absolute(path):
            raise ValueError(f"expected the absolute path of a file, found {path!r}")
        return {"file": path}
    return _own(value)


def _is_absolute(path: str) -> bool:
    """On the machine of the daemon, which may be another one."""
    return path.startswith("/") or PureWindowsPath(path).is_absolute()


def check_country(code: str) -> str:
    """The code in lower case, such as `jp` or `us-ca`; raises ValueError if its holidays are not known."""
    import holidays

    country, _, part = code.strip().upper().partition("-")
    known = holidays.list_supported_countries(include_aliases=True)
    if country not in known:
        raise ValueError(f'unknown country "{code}": write a code of ISO 3166 such as jp, us or us-ca')
    if part and part not in known[country]:
        raise ValueError(f'"{country.lower()}" has no part "{part.lower()}" with holidays of its own')
    return code.strip().lower()


def read_calendar_file(text: str) -> dict[str, Any]:
    """The content of a calendar file: YAML with the fields of a calendar, or one holiday per line.

    Raises ValueError.
    """
    lines = [stripped for line in text.splitlines() if (stripped := line.partition("#")[0].strip())]
    if all(line[:4].isdecimal() for line in lines):
        return _own({"holidays": lines})
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"expected {_FILE_FORMS}")
    return _own(found)


def _own(value: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, given in value.items():
        match name:
            case "country":
                found[name] = check_country(str(given))
            case "weekend":
                found[name] = _weekend(given)
            case "holidays" | "workdays":
                found[name] = _dates(name, given)
            case _:
                raise ValueError(f'unknown field "{name}" (known: {", ".join((*OWN_FIELDS, "file"))})')
    if not found:
        raise ValueError("the calendar is empty: give it a country, holidays or a weekend")
    if len(found.get("weekend", ())) == len(WEEKDAY_NAMES):
        raise ValueError("every day is a weekend: leave out the business days")
    return found


def _weekend(given: Any) -> list[str]:
    names = given if isinstance(given, list) else [given]
    for name in names:
        if name not in WEEKDAY_NAMES:
            raise ValueError(f"weekend: expected days such as [sat, sun], found {name!r}")
    return sorted(set(names), key=WEEKDAY_NAMES.index)


def _dates(name: str, given: Any) -> list[str]:
    if not isinstance(given, list) or len(given) > _MOST_DATES:
        raise ValueError(f"{name}: expected a list of at most {_MOST_DATES:,} dates such as 2026-12-29")
    found = set()
    for each in given:
        try:
            found.add(each if isinstance(each, date) else date.fromisoformat(each))
        except (TypeError, ValueError):
            raise ValueError(f"{name}: expected a date such as 2026-12-29, found {each!r}") from None
    return sorted(day.isoformat() for day in found)


def default_calendar(setting: str) -> dict[str, Any]:
    """The calendar that a setting names: a country, or the path of a file; empty if it is empty. Raises ValueError."""
    return check_calendar({"file": setting} if _is_absolute(setting) else setting) if setting else {}


def with_data(calendar: Mapping[str, Any], read_file: Callable[[str], str]) -> dict[str, Any]:
    """The calendar with all that its days depend on: the content of its file, the version of the holidays.

    Raises CalendarError if the file cannot be read.
    """
    bare = {name: value for name, value in calendar.items() if name not in ("content", "data")}
    if "file" in bare:
        try:
            content = read_calendar_file(read_file(bare["file"]))
        except OSError as error:
            raise CalendarError(f"cannot read the calendar {bare['file']}: {error.strerror or error}") from None
        except ValueError:
            # It may be any file of the machine: the error quotes nothing of it.
            raise CalendarError(f"the file {bare['file']} is no calendar: expected {_FILE_FORMS}") from None
        return bare | {"content": with_data(content, read_file)}
    if "country" in bare:
        return bare | {"data": version("holidays")}
    return bare


def calendar_name(calendar: Mapping[str, Any]) -> str:
    """For people: the country, or the file."""
    return str(calendar.get("file") or calendar.get("country") or "own calendar")


def load_calendar(calendar: Mapping[str, Any]) -> BusinessCalendar:
    """Raises ValueError for a file that was not read, and for a country that is no longer known."""
    return _loaded(json.dumps(calendar, sort_keys=True, default=dict))


@lru_cache(maxsize=64)
def _loaded(text: str) -> BusinessCalendar:
    described = json.loads(text)
    if "file" in described:
        if "content" not in described:
            raise ValueError(f"the calendar {described['file']} was not read: the daemon reads it")
        described = described["content"]
    country: _CountryDays | None = None
    if "country" in described:
        import holidays

        code, _, part = described["country"].upper().partition("-")
        try:
            country = holidays.country_holidays(code, subdiv=part or None)
        except NotImplementedError as error:
            raise ValueError(f"the holidays of {described['country']} are not known: {error}") from None
    weekend = described.get("weekend")
    return BusinessCalendar(
        country=country,
        weekend=None if weekend is None else frozenset(map(WEEKDAY_NAMES.index, weekend)),
        holidays=frozenset(map(date.fromisoformat, described.get("holidays", ()))),
        workdays=frozenset(map(date.fromisoformat, described.get("workdays", ()))),
    )


# ------------------------------------------------------------------------------------------------ schedules


@dataclass(frozen=True, slots=True)
class BusinessCron:
    """A crontab expression whose days depend on a calendar. Replaces a `Cron` where due times are computed."""

    cron: Cron
    calendar: BusinessCalendar
    mode: str | int

    @property
    def wild(self) -> bool:
        return self.cron.wild

    def next_local(self, moment: int) -> int | None:
        """As `Cron.next_local`; None if no day matches for decades."""
        first, second = divmod(moment, DAY_SECONDS)
        for day in self._days(first):
            if day > first:
                second = 0
            begin = self.cron.next_time(second)
            if begin is not None:
                return day * DAY_SECONDS + begin
        return None

    def _days(self, first: int) -> Iterator[int]:
        """The days on which it is due, from `first` on."""
        if self.mode in (NEXT, PREVIOUS):
            return self._moved(first)
        return self._chosen(first)

    def _chosen(self, first: int) -> Iterator[int]:
        day = self.cron.next_day(first)
        while day is not None and day - first < _FAR_DAYS:
            if self._matches(date.fromordinal(day)):
                yield day
            day = self.cron.next_day(day + 1)

    def _matches(self, day: date) -> bool:
        match self.mode:
            case int(nth):
                return self.calendar.is_nth(day, nth)
            case str(mode):
                return self.calendar.is_open(day) == (mode != NEVER)

    def _moved(self, first: int) -> Iterator[int]:
        """Every day of the expression on its business day; a business day once."""
        day, last = first, 0
        if self.mode == NEXT:
            # Days off before the first one may be moved to it.
            before = self.calendar.previous(date.fromordinal(max(first - 1, 1)))
            day = first if before is None else before.toordinal() + 1
        found = self.cron.next_day(day)
        while found is not None and found - first < _FAR_DAYS:
            of = date.fromordinal(found)
            target = self.calendar.next(of) if self.mode == NEXT else self.calendar.previous(of)
            if target is not None and (at := target.toordinal()) >= first and at > last:
                yield at
                last = at
            found = self.cron.next_day(found + 1)
