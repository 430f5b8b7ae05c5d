"""Parses numbers written out in English: fifteen, twenty-five, the thirty-first."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = {
    name: 10 * tens
    for tens, name in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), start=2)
}
_ORDINAL_ONES = (
    *(
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
        "ninth",
        "tenth",
    ),
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth", "twentieth"),
)
_NUMBERS = {name: number for number, name in enumerate(_ONES)} | _TENS
_ORDINALS = {name: number for number, name in enumerate(_ORDINAL_ONES, start=1)} | {"thirtieth": 30}
_BEHIND_TENS = re.compile(f"([ -])({'|'.join((*_ONES[1:10], *_ORDINAL_ONES[:9]))})(?![a-z'])", re.ASCII)
_UNIT_OR_ORDINAL = "second"

NUMBER_WORDS = frozenset({*_NUMBERS, *_ORDINALS})


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenNumber:
    """`length` is its number of characters in the text."""

    value: int
    ordinal: bool
    length: int


def written(text: str, word: str, start: int, *, ordinals: bool) -> WrittenNumber | None:
    """The number that starts with the word there, if any.

    A second is a unit and the second is a day: it is an ordinal after a hyphen, or if `ordinals` says that a day is
    named there.
    """
    if word in _TENS and (found := _BEHIND_TENS.match(text, start + len(word))):
        mark, ones = found.groups()
        if ones != _UNIT_OR_ORDINAL or ordinals or mark == "-":
            value = _TENS[word] + (_NUMBERS.get(ones) or _ORDINALS[ones])
            return WrittenNumber(value=value, ordinal=ones in _ORDINALS, length=found.end() - start)
    if word in _ORDINALS and (word != _UNIT_OR_ORDINAL or ordinals):
        return WrittenNumber(value=_ORDINALS[word], ordinal=True, length=len(word))
    if word in _NUMBERS:
        return WrittenNumber(value=_NUMBERS[word], ordinal=False, length=len(word))
    return None
