"""Durations (`250ms`, `1h30m`, a number of seconds)."""

from __future__ import annotations

import math
import re

# Longer than any real duration, short enough to stay exact to the microsecond in a float.
MAX_DURATION = 100 * 365.25 * 86400

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = r"(?:(?P<{name}>[0-9]+(?:\.[0-9]+)?){unit})?"
_DURATION = re.compile(
    "".join(_PART.format(name=unit, unit=unit + ("(?!s)" if unit == "m" else "")) for unit in _UNITS)
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION_FORMS = "write 250ms, 30s, 5m, 2h, 1d, 1h30m or a number of seconds"
_LONGEST_TEXT = 64


def parse_duration(value: str | int | float) -> float:
    """Seconds. Raises ValueError with the found text and the expected form."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"expected a duration, found {type(value).__name__}: {_DURATION_FORMS}")
    seconds = _duration_text(value) if isinstance(value, str) else _duration_number(value)
    if not math.isfinite(seconds):
        raise ValueError(f"expected a duration, found {value}: {_DURATION_FORMS}")
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative, found {value}: {_DURATION_FORMS}")
    if seconds > MAX_DURATION:
        raise ValueError("the duration is longer than 100 years: leave the field out for no limit")
    return seconds


def _duration_number(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return MAX_DURATION * 2


def _duration_text(text: str) -> float:
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"expected a duration, found a long text: {_DURATION_FORMS}")
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f'expected a duration, found "{text}": {_DURATION_FORMS}')
    parts = {unit: number for unit, number in match.groupdict().items() if number is not None}
    return math.fsum(float(number) * _UNITS[unit] for unit, number in parts.items()) / 1000


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back, to the millisecond."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"expected a duration that is finite and not negative, found {seconds}")
    rest = round(seconds * 1000)
    out = []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out) or "0s"
