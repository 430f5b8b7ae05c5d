"""The parameters of a command, read from the annotations of its function."""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

from toban.cli.syntax.declare import Argument, Option

_REQUIRED = object()


class Parameter:
    """An option or argument with its type. `many`: it takes a list. `choices` are the values of an Enum."""

    __slots__ = ("choices", "default", "kind", "many", "name", "spec")

    def __init__(self, name: str, kind: type, spec: Option | Argument, default: Any, *, many: bool) -> None:
        self.name = name
        self.kind = kind
        self.spec = spec
        self.default = default
        self.many = many
        self.choices = [str(one.value) for one in kind] if issubclass(kind, Enum) else []

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def flag(self) -> bool:
        return self.kind is bool

    @property
    def metavar(self) -> str:
        return self.spec.metavar or self.name.upper()

    @property
    def label(self) -> str:
        """How messages name it."""
        if isinstance(self.spec, Option):
            return "/".join(sorted(self.spec.names, key=len))
        return f"{self.metavar}..." if self.many else self.metavar

    def value(self, text: str) -> Any:
        """The value of a word. Raises ValueError."""
        if issubclass(self.kind, Enum):
            if text not in self.choices:
                raise ValueError(f"{text!r} is not one of {', '.join(map(repr, self.choices))}")
            return self.kind(text)
        if self.kind not in (int, float):
            return text
        try:
            number = self.kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a valid {'integer' if self.kind is int else 'number'}") from None
        low, high = self.spec.min, self.spec.max
        if (low is not None and number < low) or (high is not None and number > high) or number != number:
            raise ValueError(f"{text} is not in the range {range_text(self)}")
        return number

    def without(self) -> Any:
        """Its value if it is not given."""
        if self.default is _REQUIRED:
            return [] if self.many else ""
        return self.default


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """All but the context, in the order of the function."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(given) : code.co_argcount], given, strict=True))
    defaults |= function.__kwdefaults__ or {}
    found = []
    for name in names:
        hint = function.__annotations__[name]
        if isinstance(hint, str):
            hint = eval(hint, function.__globals__)  # noqa: S307 - the annotation of our own function
        kind, *notes = get_args(hint) or (hint,)
        if notes and isinstance(notes[0], Option | Argument):
            found.append(_parameter(name, kind, notes[0], defaults.get(name, _REQUIRED)))
    return found


def range_text(parameter: Parameter) -> str:
    """The range of a number, or an empty text."""
    low, high = parameter.spec.min, parameter.spec.max
    if low is None:
        return "" if high is None else f"x<={high}"
    return f"x>={low}" if high is None else f"{low}<=x<={high}"


def _parameter(name: str, hint: Any, spec: Option | Argument, default: Any) -> Parameter:
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    many = get_origin(hint) is list
    kind = get_args(hint)[0] if many else hint
    if isinstance(spec, Option) and not spec.names:
        spec.names = (f"--{name.replace('_', '-')}",)
    return Parameter(name, kind, spec, default, many=many)
