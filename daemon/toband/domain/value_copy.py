"""Changed copies of values, in half the time of `dataclasses.replace`: a transition makes several per event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Copier(Generic[T]):
    """For one frozen dataclass with slots, whose fields are all arguments of `__init__` and checked nowhere."""

    __slots__ = ("_get", "_kind", "_positions", "_setters")

    def __init__(self, kind: type[T]) -> None:
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self._kind = kind
        self._get: Callable[[T], tuple[Any, ...]] = attrgetter(*names)
        self._positions = {name: number for number, name in enumerate(names)}
        self._setters = [kind.__dict__[name].__set__ for name in names]

    def __call__(self, value: T, changes: Mapping[str, object]) -> T:
        """Raises KeyError for a field that the class does not have."""
        values = list(self._get(value))
        for name, change in changes.items():
            values[self._positions[name]] = change
        made = object.__new__(self._kind)
        for put, each in zip(self._setters, values, strict=True):
            put(made, each)
        return made
