"""How much an expression may cost, told from its text and the size of what it sees.

The expression language cannot be interrupted, so the event loop evaluates only what is cheap for certain,
and leaves the rest to a process that can be ended. The bound is a coarse one from above: it may take a cheap expression
for a costly one, but not the other way round.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

CHEAP: Final = 4 * 1024 * 1024
"""Bytes that a cheap expression may look at or copy in all: a few milliseconds."""
_LONGEST: Final = 2048
_LONGEST_PATTERN: Final = 100
_PER_PATTERN: Final = 64
_BYTES_OF_VALUE: Final = 12  # the least that `limits.weight` counts for one

# A name that something is called by, whatever white space and comments stand between. Found in the bare text, also
# inside quotes: nothing that could be a call is missed.
_CALLED: Final = r"\b(?:{})(?:\s|//[^\n]*(?:\n|$))*\("
_LOOP: Final = re.compile(_CALLED.format("map|filter|exists|exists_one|all"))
_PATTERN: Final = re.compile(_CALLED.format("matches"))
_OPERATOR: Final = re.compile(r"[-+*/%<>=!?:&|,(\[{]|\bin\b")
# Neither counted repetitions nor classes of letters, which become large programs, nor escapes that could hide them.
_SAFE: Final = r"[dDwWsSbB.+*?()|^$/\[\]-]"
_TAME: Final = re.compile(
    rf"""\s*(?:[rR]'(?:[^'\\{{]|\\{_SAFE})*'|[rR]"(?:[^"\\{{]|\\{_SAFE})*\""""
    rf"""|'(?:[^'\\{{]|\\\\{_SAFE})*'|"(?:[^"\\{{]|\\\\{_SAFE})*")\s*\)"""
)


@dataclass(frozen=True, slots=True)
class ExpressionShape:
    """What the cost of an expression depends on; `tame` if its patterns are short and written out."""

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
    """A pattern that is written out, short, and cannot become large."""
    found = _TAME.match(text, start)
    return found is not None and found.end() - start <= _LONGEST_PATTERN


def is_cheap(text: str, size: int) -> bool:
    """Whether an expression that sees values of that weight costs next to nothing for certain."""
    shape = shape_of(text)
    if shape.length > _LONGEST or not shape.tame:
        return False
    cost = shape.operators * (size + shape.length)
    if shape.patterns:
        cost *= _PER_PATTERN
    # In each loop as many rounds as there can be values, and a text that grows by each operator.
    rounds = max(size // _BYTES_OF_VALUE, shape.operators)
    for _ in range(shape.loops):
        if cost > CHEAP:
            return False
        cost *= rounds
    return cost <= CHEAP


def cheap_up_to(text: str) -> int:
    """The largest weight of values for which an expression is cheap; -1 if it never is."""
    return bisect_right(range(CHEAP + 1), False, key=lambda size: not is_cheap(text, size)) - 1
