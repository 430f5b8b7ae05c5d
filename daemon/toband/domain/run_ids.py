"""Ids of runs: uuid7, so that they sort by the time when they were made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def first_id(at: datetime) -> str:
    """Sorts behind every id that was made before that millisecond, or in it."""
    digits = f"{(at - _EPOCH) // timedelta(milliseconds=1) + 1:012x}"
    return f"{digits[:8]}-{digits[8:]}"
