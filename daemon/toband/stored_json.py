"""JSON that was read back from a disk: anybody may have changed it, so that it is read like input.

Standard library only: the shim uses it.
"""

from __future__ import annotations

import json
import math
from typing import Any


def parse(data: str | bytes) -> Any:
    """Raises ValueError for whatever cannot be read: no JSON, no UTF-8, NaN, too large a number, nested too deeply."""
    try:
        return json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_object(data: str | bytes) -> dict[str, Any]:
    """Raises ValueError for all that is not an object too."""
    value = parse(data)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.40} is too large a number")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
