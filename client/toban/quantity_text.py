"""Text for quantities: sizes, durations and counts as people read them.

Standard library only: the command line and the daemon share it. `format_size` and `format_duration` of the definition
format write values that the format reads back; these here are rounded.
"""

from __future__ import annotations

from datetime import timedelta


def size_text(size: int) -> str:
    """A number of bytes: `512 B`, `1.5 KiB`, `200 MiB`."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{f'{value:.1f}'.removesuffix('.0')} {unit}"


def duration_text(value: timedelta) -> str:
    """A duration: `450ms`, `3.2s`, `1m 02s`, `2h`, `1d 03h`."""
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    if seconds < 10:
        return f"{int(seconds * 10) / 10:g}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return _parts(whole, 60, "m", 1, "s")
    if whole < 86400:
        return _parts(whole, 3600, "h", 60, "m")
    return _parts(whole, 86400, "d", 3600, "h")


def _parts(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_unit}" + (f" {rest:02d}{small_unit}" if rest else "")


def counted(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun: `1 step`, `2 steps`, `3 entries`, `4 processes`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {plural or _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"
