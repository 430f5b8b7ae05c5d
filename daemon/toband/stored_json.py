"""JSON read back from disk. The file may have been changed or damaged, so it is parsed like input.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import json
import math
from typing import Any


def parse(data: str | bytes) -> Any:
    """Raises ValueError for invalid JSON or UTF-8, NaN, a number out of range, or too deep nesting."""
    try:
        return json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_object(data: str | bytes) -> dict[str, Any]:
    """Also raises ValueError if the value is not an object."""
    value = parse(data)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is out of range")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
