"""Times on the command line: `5m` ago, `18:00` today, or a date and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

_SINCE: Final = "a duration such as 5m or 1h30m, or a time such as 2026-02-01T09:00:00+09:00"
_OF_DAY: Final = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII)


def time_option(text: str, option: str, what: str) -> datetime | None:
    """The value of an option that `parse_at` reads; None if it is empty. Raises Failure to do `what`."""
    try:
        return parse_at(text, datetime.now(UTC)) if text else None
    except ValueError as error:
        raise Failure(f"cannot {what}: {option}: {error}", Exit.USAGE) from error


def expiry_option(text: str, option: str, what: str) -> datetime | None:
    """A time in the future, such as `90d` from now or a date; None if it is empty. Raises Failure to do `what`."""
    if not text:
        return None
    now = datetime.now(UTC)
    try:
        length = _length(text)
        at = now + length if length is not None else parse_since(text, now)
    except (ValueError, OverflowError):
        message = f"{text!r} is neither a duration such as 90d nor a date such as 2027-01-31"
        raise Failure(f"cannot {what}: {option}: {message}", Exit.USAGE) from None
    if at <= now:
        raise Failure(f"cannot {what}: {option}: {text} is not in the future", Exit.USAGE)
    return at


def parse_since(text: str, now: datetime) -> datetime:
    """Parses `5m`, `1h30m ago`, or a time with a zone. Raises ValueError."""
    return _parsed(text, now, _SINCE)


def parse_at(text: str, now: datetime) -> datetime:
    """Parses what `parse_since` parses, and a time of today such as `3:00`. Raises ValueError."""
    if _OF_DAY.fullmatch(text):
        of_day = time.fromisoformat(text.rjust(len(text) + (text[1] == ":"), "0"))
        return datetime.combine(now.astimezone().date(), of_day).astimezone()
    return _parsed(text, now, f"{_SINCE}, or 18:00 for today")


def _length(text: str) -> timedelta | None:
    """A duration such as `1h30m`; None if the text is none. Raises OverflowError."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


def _parsed(text: str, now: datetime, expected: str) -> datetime:
    try:
        length = _length(text.removesuffix(" ago").rstrip())
        if length is not None:
            return now - length
        at = datetime.fromisoformat(text)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range: expected {expected}") from None
    except ValueError:
        raise ValueError(f"expected {expected}, not {text!r}") from None
    try:
        # Without a zone, local time.
        return at.astimezone()
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is out of range: expected {expected}") from None
