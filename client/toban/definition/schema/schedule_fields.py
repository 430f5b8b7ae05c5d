"""Field types of schedules: crontab expressions, times, time zones, windows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from toban.definition.scalars.durations import parse_duration
from toban.definition.scalars.values import describe
from toban.definition.schema.field_types import DURATION_SCHEMA, Text
from toban.definition.timing.blackouts import parse_blackout
from toban.definition.timing.business_days import MODES, MOST_NTH, WEEKDAY_NAMES, check_calendar
from toban.definition.timing.cron import LAST_YEAR, parse_cron
from toban.definition.timing.zones import check_zone

MOST_SCHEDULES = 100
_FIRST_YEAR = 1970
_LEAST_INTERVAL = 1.0
_ENDLESS = 1e18
_MOST_JITTER = 7 * 86400.0
_MOMENT_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})"
)
_MOMENT = re.compile(_MOMENT_PATTERN)
_LOCAL = re.compile(_MOMENT_PATTERN.removesuffix(r"(Z|[+-][0-9]{2}:?[0-9]{2})"))
_MOMENT_FORM = "write a time with its offset from UTC, such as 2026-12-01T09:00:00+09:00"


def parse_moment(value: Any) -> datetime:
    """A time of ISO 8601 with its offset; raises ValueError with the found text and the expected form."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        if isinstance(value, str) and _LOCAL.fullmatch(value):
            raise ValueError(f'"{value}" has no offset from UTC: add it, as in {value}+09:00, or Z for UTC')
        raise ValueError(f"expected a time, found {describe(value)}: {_MOMENT_FORM}")
    try:
        moment = datetime.fromisoformat(value)
        year = moment.astimezone(UTC).year
    except (ValueError, OverflowError):
        raise ValueError(f"{describe(value)} is not a valid date: {_MOMENT_FORM}") from None
    if not _FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"expected a time from {_FIRST_YEAR} to {LAST_YEAR}, found {describe(value)}")
    return moment


def _cron(value: str) -> str:
    return parse_cron(value).text


def _window(value: str) -> str:
    return parse_blackout(value).text


def _business_day(value: Any) -> str | int:
    if value in MODES and isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= abs(value) <= MOST_NTH:
        return value
    raise ValueError(
        f"expected {', '.join(MODES)}, or the number of a business day in its month, such as 3, or -1 for the last, "
        f"found {describe(value)}"
    )


def _not_too_often(value: float) -> float:
    if value < _LEAST_INTERVAL:
        raise ValueError("expected an interval of at least 1s")
    return value


def _milliseconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number of milliseconds, found {describe(value)}: write every for a duration")
    return parse_duration(min(value, _ENDLESS) / 1000)


def _not_too_wide(value: float) -> float:
    if value > _MOST_JITTER:
        raise ValueError("expected at most 7d: runs would start in another week than they are due")
    return value


CronText = Annotated[
    str,
    AfterValidator(_cron),
    WithJsonSchema({"type": "string", "examples": ["0 3 * * *", "*/15 8-18 * * mon-fri", "@daily"]}),
]
Every = Annotated[
    float,
    BeforeValidator(parse_duration),
    AfterValidator(_not_too_often),
    WithJsonSchema(DURATION_SCHEMA),
]
Milliseconds = Annotated[
    float,
    BeforeValidator(_milliseconds),
    AfterValidator(_not_too_often),
    WithJsonSchema({"type": "number", "minimum": _LEAST_INTERVAL * 1000, "examples": [60000]}),
]
Spread = Annotated[
    float,
    BeforeValidator(parse_duration),
    AfterValidator(_not_too_wide),
    WithJsonSchema(DURATION_SCHEMA),
]
Moment = Annotated[
    datetime,
    BeforeValidator(parse_moment),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{_MOMENT_PATTERN}$",
            "examples": ["2026-12-01T09:00:00+09:00"],
        }
    ),
]
ZoneName = Annotated[
    str,
    AfterValidator(check_zone),
    WithJsonSchema({"type": "string", "examples": ["Asia/Tokyo", "Europe/Berlin", "UTC"]}),
]
Window = Annotated[
    str,
    AfterValidator(_window),
    WithJsonSchema({"type": "string", "examples": ["0 2 * * sun/2h"]}),
]
_DATES = {"type": "array", "items": {"type": "string", "format": "date", "examples": ["2026-12-29"]}}
_COUNTRY = {"type": "string", "examples": ["jp", "us-ca"]}
CalendarInput = Annotated[
    Any,
    BeforeValidator(check_calendar),
    WithJsonSchema(
        {
            "anyOf": [
                _COUNTRY,
                {
                    "type": "object",
                    "properties": {"file": {"type": "string", "examples": ["/etc/toban/holidays"]}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {
                        "country": _COUNTRY,
                        "weekend": {"type": "array", "items": {"enum": list(WEEKDAY_NAMES)}, "maxItems": 6},
                        "holidays": _DATES,
                        "workdays": _DATES,
                    },
                    "minProperties": 1,
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
BusinessDay = Annotated[
    Any,
    BeforeValidator(_business_day),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(MODES)},
                {"type": "integer", "minimum": 1, "maximum": MOST_NTH},
                {"type": "integer", "minimum": -MOST_NTH, "maximum": -1},
            ]
        }
    ),
]
# Whether they are understood depends on the time zone, and is checked later.
Words = Annotated[
    Text,
    WithJsonSchema({"type": "string", "examples": ["every weekday at 15:00", "毎週月曜9時"]}),
]
