"""The steps of a run by id, as a persistent map that is cheap to change: a new map shares unchanged steps with the old.

A run of ten thousand instances changes some twenty thousand times. Copying all of its steps each time would cost more
than the steps themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from toband.domain.run_model import StepRun

_BITS = 6
_CHUNK = 1 << _BITS
_REST = _CHUNK - 1


class StepMap(Mapping[str, StepRun]):
    """A map of steps in insertion order; none is ever removed.

    The steps are stored in chunks. The position of a name is recorded once for all maps derived from each other: older
    maps just do not know the later names. `index` is derived from these steps, see `run_index`.
    """

    __slots__ = ("_chunks", "_places", "_size", "index")

    def __init__(self) -> None:
        self._chunks: tuple[list[StepRun], ...] = ()
        self._places: dict[str, int] = {}
        self._size = 0
        self.index: Any = None

    @classmethod
    def of(cls, steps: Mapping[str, StepRun]) -> StepMap:
        return steps if isinstance(steps, cls) else cls().changed(steps)

    def __getitem__(self, name: str) -> StepRun:
        place = self._places[name]
        if place >= self._size:
            raise KeyError(name)
        return self._chunks[place >> _BITS][place & _REST]

    def __iter__(self) -> Iterator[str]:
        return (step.id for step in self.all())

    def __len__(self) -> int:
        return self._size

    def all(self) -> Iterator[StepRun]:
        """As `values`, and faster."""
        return chain.from_iterable(self._chunks)

    def changed(self, steps: Mapping[str, StepRun]) -> StepMap:
        """A map in which these steps replace those of the same names; new names are appended."""
        if not steps:
            return self
        made = StepMap()
        made._places = self._places
        if len(self._places) > self._size and not steps.keys() <= self.keys():
            # Another map derived from this one has added steps already.
            made._places = dict(zip(self, range(self._size), strict=True))
        places, chunks, size = made._places, list(self._chunks), self._size
        copied: set[int] = set()
        for name, step in steps.items():
            place = places.get(name, size)
            if place >= size:
                place = places[name] = size
                size += 1
            number = place >> _BITS
            if number == len(chunks):
                chunks.append([])
                copied.add(number)
            elif number not in copied:
                chunks[number] = chunks[number][:]
                copied.add(number)
            chunk = chunks[number]
            if (place & _REST) == len(chunk):
                chunk.append(step)
            else:
                chunk[place & _REST] = step
        made._chunks, made._size = tuple(chunks), size
        return made


class StepEdit:
    """A map being changed. `changes` contains the steps that were set, and nothing else."""

    __slots__ = ("_base", "changes")

    def __init__(self, base: StepMap) -> None:
        self._base = base
        self.changes: dict[str, StepRun] = {}

    def __getitem__(self, name: str) -> StepRun:
        found = self.changes.get(name)
        return found if found is not None else self._base[name]

    def get(self, name: str) -> StepRun | None:
        found = self.changes.get(name)
        return found if found is not None else self._base.get(name)

    def __setitem__(self, name: str, step: StepRun) -> None:
        self.changes[name] = step

    def values(self) -> list[StepRun]:
        """All steps, with the changes so far."""
        changes = self.changes
        found = [changes.get(step.id, step) for step in self._base.all()]
        return found + [step for name, step in changes.items() if name not in self._base]

    def done(self) -> StepMap:
        return self._base.changed(self.changes)
