"""Estimates the cost of an expression from its text and the size of its values.

The expression language cannot be interrupted, so the event loop evaluates only expressions that are certainly cheap,
and leaves the rest to a process that can be killed. The estimate is a coarse upper bound: it may take a cheap
expression for a costly one, but never the reverse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

CHEAP: Final = 4 * 1024 * 1024
"""Bytes that a cheap expression may read or copy in total: a few milliseconds."""
_LONGEST: Final = 2048
_LONGEST_PATTERN: Final = 100
_PER_PATTERN: Final = 64
_BYTES_OF_VALUE: Final = 12  # the minimum that `limits.weight` counts for a value

# The name of a call, with any white space and comments before the parenthesis. Matches inside quotes too, so that no
# call is missed.
_CALLED: Final = r"\b(?:{})(?:\s|//[^\n]*(?:\n|$))*\("
_LOOP: Final = re.compile(_CALLED.format("map|filter|exists|exists_one|all"))
_PATTERN: Final = re.compile(_CALLED.format("matches"))
_OPERATOR: Final = re.compile(r"[-+*/%<>=!?:&|,(\[{]|\bin\b")
# No counted repetitions or letter classes, which become large programs, and no escapes that could hide them.
_SAFE: Final = r"[dDwWsSbB.+*?()|^$/\[\]-]"
_TAME: Final = re.compile(
    rf"""\s*(?:[rR]'(?:[^'\\{{]|\\{_SAFE})*'|[rR]"(?:[^"\\{{]|\\{_SAFE})*\""""
    rf"""|'(?:[^'\\{{]|\\\\{_SAFE})*'|"(?:[^"\\{{]|\\\\{_SAFE})*")\s*\)"""
)


@dataclass(frozen=True, slots=True)
class ExpressionShape:
    """The factors of an expression's cost; `tame` if its patterns are short literals."""

    length: int
    operators: int
    loops: int
    patterns: int
    tame: bool


@lru_cache(maxsize=4096)
def shape_of(text: str) -> ExpressionShape:
    patterns = list(_PATTERN.finditer(text))
    return ExpressionShape(
        length=len(text),
        operators=1 + len(_OPERATOR.findall(text)),
        loops=len(_LOOP.findall(text)),
        patterns=len(patterns),
        tame=all(_is_tame(text, found.end()) for found in patterns),
    )


def _is_tame(text: str, start: int) -> bool:
    """A literal pattern that is short and cannot become large."""
    found = _TAME.match(text, start)
    return found is not None and found.end() - start <= _LONGEST_PATTERN


def is_cheap(text: str, size: int) -> bool:
    """Whether an expression on values of that weight is certainly cheap."""
    shape = shape_of(text)
    if shape.length > _LONGEST or not shape.tame:
        return False
    cost = shape.operators * (size + shape.length)
    if shape.patterns:
        cost *= _PER_PATTERN
    # Each loop has as many rounds as there can be values, and a text grows with each operator.
    rounds = max(size // _BYTES_OF_VALUE, shape.operators)
    for _ in range(shape.loops):
        if cost > CHEAP:
            return False
        cost *= rounds
    return cost <= CHEAP


def cheap_up_to(text: str) -> int:
    """The largest weight of values for which an expression is cheap; -1 if it never is."""
    return bisect_right(range(CHEAP + 1), False, key=lambda size: not is_cheap(text, size)) - 1
