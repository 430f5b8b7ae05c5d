"""Sizes in bytes (`64KiB`, `512MiB`, `2GiB`, a number of bytes)."""

from __future__ import annotations

import re
from fractions import Fraction

# Databases, messages and the kernel store a size in 63 bits.
MAX_SIZE = 2**63 - 1

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[A-Za-z]*)")
_FORMS = "write 64KiB, 512MiB, 2GiB or a number of bytes"
_LONGEST_TEXT = 64


def parse_size(value: str | int) -> int:
    """Bytes. Raises ValueError with the found text and the expected form."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"expected a size, found {type(value).__name__}: {_FORMS}")
    size = _size_text(value) if isinstance(value, str) else value
    if size < 0:
        raise ValueError(f"a size cannot be negative, found {value}: {_FORMS}")
    if size > MAX_SIZE:
        raise ValueError("the size is larger than 8 EiB: leave the field out for no limit")
    return size


def _size_text(text: str) -> int:
    match = _SIZE.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise ValueError(f'expected a size, found "{text[:_LONGEST_TEXT]}": {_FORMS}')
    factor = _UNITS.get(match["unit"])
    if factor is None:
        raise ValueError(f'"{match["unit"]}" is not a unit of size: {_FORMS}')
    size = Fraction(match["number"]) * factor
    if size.denominator != 1:
        raise ValueError(f'"{text}" is not a whole number of bytes: {_FORMS}')
    return int(size)


def format_size(size: int) -> str:
    """A text that `parse_size` reads back exactly, in the largest unit that needs no fraction."""
    if size < 0:
        raise ValueError(f"expected a size that is not negative, found {size}")
    for unit, factor in reversed(_UNITS.items()):
        if factor > 1 and size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)
