"""Values of parameters and templates: which are allowed, and their text form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Integers of the expression language have 64 bits.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
_MAX_DEPTH = 64
_LONGEST_BITS = 128


def describe(value: Any) -> str:
    """A value's type, for error texts."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if value.bit_length() > _LONGEST_BITS:
            return "a very long number"
        case int() | float():
            return f"the number {value}"
        case str():
            text = value if len(value) <= 40 else value[:40] + "…"
            # A lone surrogate cannot be printed: show its escape.
            return json.dumps(text, ensure_ascii=not _is_whole(text))
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def checked_text(value: str) -> str:
    """The text, if it can be passed to a process; raises ValueError."""
    if "\0" in value:
        raise ValueError("the text contains a NUL character")
    if not _is_whole(value):
        raise ValueError("the text is not valid Unicode")
    return value


def _is_whole(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def checked_value(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """Plain data that templates can use, with tuples as lists; raises ValueError otherwise."""
    match value:
        case None | bool() | float():
            return value
        case str():
            return checked_text(value)
        case int():
            if MIN_INTEGER <= value <= MAX_INTEGER:
                return value
            raise ValueError("an integer is out of range: templates have 64 bits for it")
        case list() | tuple() if depth:
            return [checked_value(item, depth - 1) for item in value]
        case dict() if depth:
            if not all(isinstance(key, str) for key in value):
                raise ValueError("a mapping has keys that are not strings")
            return {checked_text(key): checked_value(v, depth - 1) for key, v in value.items()}
        case list() | tuple() | dict():
            raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
        case _:
            raise ValueError(f"found {describe(value)}: turn it into text with string(…)")


def to_text(value: Any) -> str:
    """The form of a value inside a text, an argument or the environment; raises ValueError."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case _:
            return to_json(value)


def to_json(value: Any) -> str:
    """Compact JSON; raises ValueError for values without a JSON form."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ValueError("JSON has no number that is not finite") from None
