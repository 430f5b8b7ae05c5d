"""Fuzz targets, and checks of the values that a reader returns."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from fuzz.mutation import Mutate

CORPUS = Path(__file__).parent / "corpus"
NOTE_SUFFIX = ".note"
MIB = 1024 * 1024

Check = Callable[[bytes], str]
"""Reads one input. Returns a few words on what came of it; an exception is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader of the product. Files of the corpus are its samples, and are read first.

    `opened` is given a directory of its own and prepares the check. `seconds` of wall clock per input end the worker;
    none for targets whose calls have deadlines of their own. `processor_seconds` and `memory` are what one input may
    cost.
    """

    name: str
    reads: str
    mutate: Mutate
    opened: Callable[[Path], AbstractContextManager[Check]]
    samples: Sequence[bytes] = ()
    seconds: float | None = 20.0
    processor_seconds: float = 3.0
    memory: int = 512 * MIB

    def corpus(self) -> Sequence[Path]:
        found = (CORPUS / self.name).glob("*")
        return sorted(path for path in found if path.suffix != NOTE_SUFFIX)

    def inputs(self) -> list[bytes]:
        return [*self.samples, *(path.read_bytes() for path in self.corpus())]


def expect_type(value: Any, declared: Any, where: str = "value") -> None:
    """Raises AssertionError unless a value is what its type says, all the way down, and a database would take it."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared is Any:
        _expect_plain(value, where)
    elif origin in (typing.Union, types.UnionType):
        _expect_one_of(value, arguments, where)
    elif origin is not None and issubclass(origin, Mapping):
        assert isinstance(value, Mapping), f"{where} is {value!r:.200}, declared {declared}"
        for key, inner in value.items():
            expect_type(key, arguments[0], f"{where} key")
            expect_type(inner, arguments[1], f"{where}[{key!r:.40}]")
    elif origin is not None and issubclass(origin, Iterable):
        assert isinstance(value, list | tuple | frozenset), f"{where} is {value!r:.200}"
        for index, inner in enumerate(value):
            expect_type(inner, arguments[0], f"{where}[{index}]")
    else:
        _expect_class(value, declared, where)


def _expect_one_of(value: Any, declared: Sequence[Any], where: str) -> None:
    failures = []
    for each in declared:
        try:
            return expect_type(value, each, where)
        except AssertionError as error:
            failures.append(str(error))
    raise AssertionError("; ".join(failures))


def _expect_class(value: Any, declared: Any, where: str) -> None:
    shown = f"{where} is {value!r:.200}, declared {declared}"
    if declared in (None, types.NoneType):
        assert value is None, shown
    elif declared is float:
        assert type(value) in (int, float), shown
        assert math.isfinite(value), shown
    elif declared is int:
        assert type(value) is int, shown
        assert -(2**63) <= value < 2**63, shown
    else:
        assert isinstance(value, declared), shown
    if isinstance(value, datetime):
        assert value.tzinfo is not None, f"{where} has no time zone: {value}"
    elif isinstance(value, str) and not isinstance(value, Enum):
        value.encode()  # a lone surrogate is no text: no answer could carry it
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, hint in typing.get_type_hints(type(value)).items():
            if name in {field.name for field in dataclasses.fields(value)}:
                expect_type(getattr(value, name), hint, f"{where}.{name}")


def _expect_plain(value: Any, where: str) -> None:
    """JSON as it can be stored and answered."""
    match value:
        case None | bool() | int() | str():
            return
        case float():
            assert math.isfinite(value), f"{where} is {value}"
        case list() | tuple():
            for inner in value:
                _expect_plain(inner, where)
        case dict():
            for key, inner in value.items():
                assert isinstance(key, str), f"{where} has the key {key!r}"
                _expect_plain(inner, where)
        case _:
            raise AssertionError(f"{where} is {value!r:.200}: no JSON")
