"""Position of a reader in the output of a run, as a text that a later stream continues from exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from toband.engine.errors import BadPositionError
from toband.engine.runs.log_view import PLACE, LogPlace

_N: Final = "[0-9]{1,18}"
_DONE: Final = None
_POSITION: Final = re.compile(rf"1\.{_N}(?:t{_N}-{_N})?(?:\.(?:{_N}-(?:{PLACE}(?:x{_N})?|-1)|{_N}_{_N}))*")


@dataclass(slots=True)
class LogPosition:
    """For every attempt whose log is not read to its end, the place reached in that log.

    Attempts are numbered in the order of their launch; those below `first` are read completely. `places` has attempts
    from `first` on; _DONE marks those read to their end. Attempts below `tail_below` that have no place begin with
    their last `tail` lines. `left_out` says how many lines after its place are left out of an attempt with a tail.

    As text: `1.FIRST`, `tTAIL-BELOW` if there is a tail, then `.N-PLACE` for an attempt, with `xLINES` for lines that
    are left out, and `.N--1` or `.N_M` for attempts read to their end.
    """

    first: int = 0
    places: dict[int, LogPlace | None] = field(default_factory=dict)
    tail: int = 0
    tail_below: int = 0
    left_out: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        tail = f"t{self.tail}-{self.tail_below}" if self.first < self.tail_below else ""
        parts: list[str] = []
        begin = end = -1
        for ordinal in sorted(self.places):
            place = self.places[ordinal]
            if place is not _DONE:
                lines = self.left_out.get(ordinal, 0)
                parts.append(f".{ordinal}-{place}" + (f"x{lines}" if lines else ""))
            elif ordinal == end + 1 and begin >= 0:
                end = ordinal
                parts[-1] = f".{begin}_{end}"
            else:
                begin = end = ordinal
                parts.append(f".{ordinal}--1")
        return f"1.{self.first}{tail}{''.join(parts)}"

    @classmethod
    def parse(cls, text: str, launches: int) -> LogPosition:
        """In a run with so many attempts. Raises BadPositionError."""
        if not text:
            return cls()
        if not _POSITION.fullmatch(text):
            raise BadPositionError(text)
        _, head, *rest = text.split(".")
        first, _, tail = head.partition("t")
        lines, _, below = tail.partition("-")
        made = cls(int(first), tail=int(lines or 0), tail_below=int(below or 0))
        if max(made.first, made.tail_below) > launches:
            raise BadPositionError(text)
        try:
            for item in rest:
                made._add(item, launches)
        except ValueError:
            raise BadPositionError(text) from None
        return made

    def _add(self, item: str, launches: int) -> None:
        """Raises ValueError for an attempt that does not exist."""
        number, dash, place = item.partition("-")
        begin, _, end = number.partition("_")
        last = int(end or begin)
        if last >= launches:
            raise ValueError("no such attempt")
        if not dash or place == "-1":
            self.places.update(dict.fromkeys(range(int(begin), last + 1), _DONE))
            return
        place, _, lines = place.partition("x")
        self.places[last] = LogPlace.parse(place)
        if lines:
            self.left_out[last] = int(lines)

    def done(self, ordinal: int) -> bool:
        return ordinal < self.first or self.places.get(ordinal, LogPlace()) is _DONE

    def begun(self, ordinal: int) -> bool:
        return self.places.get(ordinal) is not None

    def tail_of(self, ordinal: int) -> int:
        """With how many last lines to begin; 0: from the first line on, or where its place is."""
        return self.tail if ordinal < self.tail_below and not self.begun(ordinal) else 0

    def finish(self, ordinal: int) -> None:
        self.places[ordinal] = _DONE
        self.left_out.pop(ordinal, None)
        while self.places.get(self.first, LogPlace()) is _DONE:
            del self.places[self.first]
            self.first += 1
