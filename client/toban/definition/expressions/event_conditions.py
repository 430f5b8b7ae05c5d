"""Evaluates many conditions for one event after another.

An event is converted for the expression language once. A condition, which was checked when it was stored, is compiled
on first use, and cached while it is used and there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, Final, NamedTuple

from toban.definition.errors import CostlyError, RenderError
from toban.definition.expressions.cel import (
    EvaluationError,
    Prepared,
    check_length,
    compile_unchecked,
    is_costly,
    longest,
)
from toban.definition.expressions.expression_cost import CHEAP, cheap_up_to
from toban.definition.scalars.values import MAX_INTEGER, MIN_INTEGER, describe
from toban.limits import weight

# A compiled condition takes some 65 bytes per character, so that the cache takes 65 MB at most. That is enough for
# 10,000 conditions of the usual length.
_MOST_CHARACTERS: Final = 1_000_000
_LEAST_WEIGHT: Final = 16
_MAX_DEPTH: Final = 64
_TOO_LONG: Final = 10**308  # for any number
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class EventView:
    """One event as conditions see it. May be used from any thread."""

    def __init__(self, event: Mapping[str, Any], *, cheap_only: bool = False) -> None:
        """`event` has the fields that templates know; it is copied at the first condition."""
        self._event = event
        self._cheap_only = cheap_only

    def matches(self, condition: str) -> bool:
        """Whether the condition is true for the event; an empty condition is always true.

        Raises RenderError with the reason if it is neither true nor false, such as for a missing field, and with
        `cheap_only` CostlyError if it may take long.
        """
        if not condition:
            return True
        try:
            program = _PROGRAMS.get(condition)
            if self._cheap_only and self._size > program.cheap_up_to:
                raise CostlyError(condition)
            if program.costly:
                check_length(self._longest)
            found = self._prepared.value(program.compiled)
        except (EvaluationError, ValueError) as error:
            raise RenderError(f"cannot evaluate the condition: {error}") from None
        except MemoryError:
            raise RenderError("cannot evaluate the condition: it needs too much memory") from None
        if isinstance(found, bool):
            return found
        reason = f"expected true or false, found {describe(found)}"
        raise RenderError(f"cannot evaluate the condition: {reason}")

    @cached_property
    def _prepared(self) -> Prepared:
        """Raises ValueError if the event cannot be converted."""
        return Prepared({"event": _converted(self._event, _MAX_DEPTH + 1)})

    @cached_property
    def _size(self) -> int:
        return weight(self._event, CHEAP)

    @cached_property
    def _longest(self) -> int:
        return longest(self._event)


def judge_conditions(event: Mapping[str, Any], conditions: Sequence[str]) -> list[bool | str]:
    """Whether each is true for the event, or why that is unknown."""
    view = EventView(event)
    found: list[bool | str] = []
    for condition in conditions:
        try:
            found.append(view.matches(condition))
        except RenderError as error:
            found.append(str(error))
    return found


class _Program(NamedTuple):
    compiled: Any
    costly: bool
    cheap_up_to: int


class _Programs:
    """Cache of compiled conditions; evicts the least recently used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._compiled: OrderedDict[str, _Program] = OrderedDict()
        self._lock = Lock()

    def get(self, condition: str) -> _Program:
        """Raises EvaluationError if it does not compile."""
        try:
            compiled = self._compiled[condition]
            self._compiled.move_to_end(condition)
            return compiled
        except KeyError:  # not cached, or just evicted by another thread
            compiled = _Program(compile_unchecked(condition), is_costly(condition), cheap_up_to(condition))
        with self._lock:
            if condition not in self._compiled:
                self._compiled[condition] = compiled
                self._weight += _weight(condition)
            while self._weight > self._most and len(self._compiled) > 1:
                oldest, _ = self._compiled.popitem(last=False)
                self._weight -= _weight(oldest)
        return compiled


def _weight(condition: str) -> int:
    return max(len(condition), _LEAST_WEIGHT)


_PROGRAMS: Final = _Programs(_MOST_CHARACTERS)


def _converted(value: Any, depth: int) -> Any:
    """A copy that the expression language can represent; raises ValueError if it is nested too deeply.

    A character that it cannot represent is replaced: it would end the text there, and make it equal to another. An
    integer that is too long becomes an inexact number, or null: it would make any condition fail.
    """
    match value:
        case str():
            return _text(value)
        case int() if not MIN_INTEGER <= value <= MAX_INTEGER:
            return float(value) if abs(value) < _TOO_LONG else None
        case Mapping() if depth:
            return {_text(str(key)): _converted(item, depth - 1) for key, item in value.items()}
        case list() | tuple() if depth:
            return [_converted(item, depth - 1) for item in value]
        case Mapping() | list() | tuple():
            raise ValueError(f"the payload is nested more than {_MAX_DEPTH} levels deep")
        case _:
            return value


def _text(value: str) -> str:
    if "\0" in value:
        value = value.replace("\0", _REPLACEMENT)
    return value if value.isascii() else value.encode(errors="replace").decode()
